"""After every epoch every view equals its query: random tables, changes and queries.

`STREAMSQL_EPOCHS` is the number of view-epochs, `STREAMSQL_SEED` the first seed. `STREAMSQL_WAY`,
the first words of one of `WAYS`, plays all scenarios in that way; else they take turns.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest

from dbt_streamsql import StreamSqlError
from tests.property.grammar import Scenario, scenario
from tests.property.playing import WAYS, Difference, play
from tests.support.tuning import tuned

EPOCHS = int(os.environ.get("STREAMSQL_EPOCHS", "100"))
WANTED = [way for way in WAYS if way.startswith(os.environ.get("STREAMSQL_WAY", ""))]
SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))
VIEWS, ROUNDS = 10, 5
SCENARIOS = max(1, -(-EPOCHS // (VIEWS * ROUNDS)))


def fails(engine, chosen: Scenario) -> bool:
    try:
        play(engine, chosen)
    except Difference:
        return True
    except StreamSqlError:
        return False
    return False


def shrink(engine, failing: Scenario) -> Scenario:
    """Drop epochs and statements while the scenario still fails."""
    smaller = True
    while smaller:
        smaller = False
        for number, statements in enumerate(failing.epochs):
            for cut in range(len(statements)):
                fewer = (*statements[:cut], *statements[cut + 1 :])
                epochs = (*failing.epochs[:number], fewer, *failing.epochs[number + 1 :])
                candidate = replace(failing, epochs=epochs)
                if fails(engine, candidate):
                    failing, smaller = candidate, True
                    break
            if smaller:
                break
    return failing


@pytest.fixture(scope="module")
def modes():
    counted = Counter()
    yield counted
    print(f"\n{sum(counted.values())} view-epochs from seed {SEED}: {dict(counted)}")


@pytest.mark.parametrize("seed", range(SEED, SEED + SCENARIOS))
def test_every_view_equals_its_query_after_every_epoch(engine, modes, seed):
    way = WANTED[seed % len(WANTED)]
    chosen = scenario(seed, VIEWS, ROUNDS)
    with tuned(engine, **WAYS[way]):
        try:
            play(engine, chosen, modes)
        except Difference as error:
            raise AssertionError(f"{way}: {error}\n{shrink(engine, chosen).script()}") from error
