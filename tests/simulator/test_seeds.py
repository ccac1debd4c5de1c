"""Processes die, fail, lose their lock and take turns, and no invariant breaks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.simulator.sim_campaign import SHOWN, campaign, told

FIRST = int(os.environ.get("STREAMSQL_SEED", "0"))
FEW, MANY, PARTS = 50, 2500, 8
"""Seeds of every run, and of each part of a campaign of 20,000."""
KEPT = Path(__file__).with_name("regressions.txt")


def _check(tally):
    print(tally)
    failing = "\n\n".join(told(outcome) for outcome in tally.failed[:SHOWN])
    assert not tally.failed, f"{failing}\n{tally}"


def test_no_seed_breaks_an_invariant():
    _check(campaign(range(FIRST, FIRST + FEW)))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_of_a_campaign_breaks_an_invariant(part):
    first = FIRST + part * MANY
    _check(campaign(range(first, first + MANY)))


def test_no_seed_that_once_failed_breaks_an_invariant():
    lines = KEPT.read_text().splitlines()
    _check(campaign(int(line.split()[0]) for line in lines if line and line[0] != "#"))


def test_a_seed_is_the_same_each_time():
    first, again = (campaign([77]).trace for _ in range(2))
    assert first == again
