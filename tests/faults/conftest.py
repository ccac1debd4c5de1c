"""The warehouse of the kill tests, and their tally."""

from __future__ import annotations

from collections import Counter

import pytest
from fault_world import World

TALLY: Counter[str] = Counter()
"""Kills by durable step, for the summary."""


@pytest.fixture(scope="session")
def world(spark, tmp_path_factory):
    """The shop, built once; tests put it back to a saved state."""
    made = World(spark, tmp_path_factory.mktemp("faults"))
    made.build()
    return made


@pytest.fixture(scope="session")
def tally():
    """Count a kill: `tally[step] += 1`."""
    return TALLY


def pytest_terminal_summary(terminalreporter):
    if TALLY:
        failed = [
            report
            for report in terminalreporter.stats.get("failed", [])
            if "tests/faults" in report.nodeid
        ]
        terminalreporter.write_line(
            f"kills: {sum(TALLY.values())}, durable steps hit: {len(TALLY)}, "
            f"failures: {len(failed)}"
        )
