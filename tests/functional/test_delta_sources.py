"""Views over Delta tables are kept from their changes, fed or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("delta_sources.py")
TESTS = Path(__file__).parents[1]
PATIENCE = 1500
"""Seconds after which a process is hung; nothing here is timed."""


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path_factory.mktemp("delta")), "7"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS / "staged")])},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_views_over_delta_tables_equal_their_queries_after_every_change(result):
    assert result["problems"] == []


def test_changes_of_delta_tables_are_taken_in_and_not_recomputed(result):
    for modes in result["modes"].values():
        assert modes["incremental"] + modes["append"] > modes["full"], modes
        assert modes["noop"] >= 6
