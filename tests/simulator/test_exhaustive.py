"""The small model: two writers, three tables, three barriers, and a crash anywhere, all of it."""

from __future__ import annotations

import pytest

from tests.simulator.planted_protocol import PLANTED, planted
from tests.simulator.sim_exhaustive import Space
from tests.simulator.sim_runtime import substituted

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("way", "connect"), [("one_writer", False), ("one_writer", True), ("two_writers", False)]
)
def test_no_state_that_can_be_reached_breaks_an_invariant(way, connect):
    """Over Connect the refs of a table are moved one by one: there are more places to die in."""
    with substituted():
        found = getattr(Space(connect=connect), way)()
    print(
        f"{way}: {found.states:,} states, {found.runs:,} runs, {found.pairs:,} ways to take turns"
    )
    assert found.broken == []
    # Far fewer would mean that crashes are not tried, or not told apart.
    assert found.states > 500


@pytest.mark.parametrize(
    "wrong",
    [
        "sweep takes what a successor stages",
        "recorded as published before it is",
        "recovery rolls PRECOMMIT back",
        "no fence check",
    ],
)
def test_a_planted_bug_is_found_in_the_small_model_too(wrong):
    with substituted(), planted(PLANTED[wrong]):
        assert Space().two_writers().broken
