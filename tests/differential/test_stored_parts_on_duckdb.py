"""Views that store random parts of their queries equal them after every epoch, and so do the state
tables, which views share and which come and go in mid-history.

`STREAMSQL_DUCK_EPOCHS`, `STREAMSQL_SEED` and `STREAMSQL_DUCK_OPERATORS` as in
`test_plans_on_duckdb.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.differential.duck_campaign import Tally
from tests.differential.duck_grammar import scenario
from tests.differential.duck_stored import play
from tests.differential.test_plans_on_duckdb import EPOCHS, ONLY, PARTS, ROUNDS, SEED, VIEWS


def test_views_with_stored_parts_equal_their_queries(capsys):
    _equal(SEED, 40, capsys, views=6, rounds=4)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_views_of_a_campaign_with_stored_parts_equal_their_queries(part, capsys):
    share = EPOCHS // PARTS
    _equal(SEED + part * share, share, capsys)


def _equal(first, epochs, capsys, views=VIEWS, rounds=ROUNDS):
    tally, uses, seed = Tally(), Counter[str](), first
    while tally.epochs < epochs:
        try:
            play(scenario(seed, views, rounds, ONLY), tally, uses)
        except Exception as error:
            error.add_note(f"seed {seed}, {views} views, {rounds} epochs")
            raise
        seed += 1
    with capsys.disabled():
        print(f"\nseeds {first} to {seed - 1}: stored {dict(uses)}")
        print(tally.report(table=False).partition("\noperator:")[0])
