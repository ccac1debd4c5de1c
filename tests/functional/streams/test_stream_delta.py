"""Delta tables as streams, in a process of their own."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support import patience
from tests.support.spark_child import paths


@pytest.mark.processes
def test_the_rows_that_came_between_two_versions_of_a_delta_table_are_read_once(tmp_path):
    done = patience.run(
        [sys.executable, "-m", "tests.functional.streams.delta_stream", str(tmp_path)],
        env=paths(),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == []
