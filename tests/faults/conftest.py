"""The warehouse of the kill tests, and their tally."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.fault_campaign import Tally
from tests.faults.fault_stages import Stages
from tests.faults.fault_world import World

TALLY: Counter[str] = Counter()
"""Kills by durable step, for the summary."""

FAULTS = Tally()
"""Faults of all kinds, for the summary."""


@pytest.fixture(scope="session")
def bare_world(spark, tmp_path_factory):
    """A place for warehouses that can be put back to a saved state."""
    return World(spark, tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="session")
def world(bare_world):
    """The same, with the shop, built once."""
    bare_world.build()
    return bare_world


@pytest.fixture(scope="session")
def stages(bare_world):
    """The scenarios of `fault_scenarios.py`, each made when a test first asks for it."""
    return Stages(bare_world)


@pytest.fixture(scope="session")
def tally():
    """Count a kill: `tally[step] += 1`."""
    return TALLY


@pytest.fixture(scope="session")
def faults():
    """Count a fault of any kind."""
    return FAULTS


def pytest_terminal_summary(terminalreporter):
    failed = [
        report
        for report in terminalreporter.stats.get("failed", [])
        if "tests/faults" in report.nodeid
    ]
    if TALLY:
        terminalreporter.write_line(
            f"kills: {sum(TALLY.values())}, durable steps hit: {len(TALLY)}, "
            f"failures: {len(failed)}"
        )
    if FAULTS.met:
        terminalreporter.write_line(str(FAULTS))
