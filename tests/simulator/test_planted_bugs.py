"""The simulator finds what is wrong: each planted bug within a few hundred seeds."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.simulator.planted_protocol import PLANTED, planted
from tests.simulator.sim_runtime import substituted
from tests.simulator.sim_store import MemoryLeases, MemoryStore
from tests.simulator.sim_world import simulate

pytestmark = pytest.mark.long

ENOUGH = 1000
"""Seeds in which each bug has to be found."""


@pytest.mark.parametrize("wrong", PLANTED)
def test_a_planted_bug_is_found(wrong):
    sound = _held()
    with substituted(), planted(PLANTED[wrong]):
        found = (outcome for outcome in map(simulate, range(ENOUGH)) if outcome.broken)
        first = list(islice(found, 1))
    assert first, f"{ENOUGH} seeds have not found: {wrong}"
    print(f"{wrong}: seed {first[0].seed}: {first[0].broken[0][:100]}")
    assert _held() == sound, "the bug has stayed in the process"


def _held():
    """What the classes of the store hold, which planted bugs replace."""
    return [dict(vars(kind)) for kind in (MemoryStore, MemoryLeases)]


def test_without_a_bug_the_same_seeds_are_well():
    with substituted():
        assert [simulate(seed).broken for seed in range(100)] == [()] * 100
