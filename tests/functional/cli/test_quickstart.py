"""The README and the tutorial, followed by a newcomer with the built wheel and an empty home."""

from __future__ import annotations

import sys

import pytest

from dbt_streamsql.quickstart import Background
from dbt_streamsql.runtime.spark.jars import cache_folder
from scripts import newcomer
from tests.support import patience

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("page", newcomer.PAGES)
def test_a_page_can_be_followed_word_for_word(page, tmp_path):
    done = patience.run(
        [
            sys.executable,
            str(newcomer.ROOT / "scripts" / "newcomer.py"),
            *("--page", page, "--folder", str(tmp_path)),
            *("--packages", sys.prefix, "--jars", str(cache_folder() / "jars")),
        ]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    left = [Background(folder).find("runner") for folder in tmp_path.glob("*/home/shop")]
    assert left == [None], "what it has started has ended"
