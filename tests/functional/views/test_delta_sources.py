"""Views over Delta tables are kept from their changes, fed or not."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support import patience
from tests.support.spark_child import paths

pytestmark = pytest.mark.processes

SCRIPT = "tests.functional.views.delta_sources"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    done = patience.run(
        [sys.executable, "-m", SCRIPT, str(tmp_path_factory.mktemp("delta")), "7"],
        env=paths(),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_views_over_delta_tables_equal_their_queries_after_every_change(result):
    assert result["problems"] == []


def test_changes_of_delta_tables_are_taken_in_and_not_recomputed(result):
    for modes in result["modes"].values():
        assert modes["incremental"] + modes["append"] > modes["full"], modes
        assert modes["noop"] >= 6
