"""After every epoch every view equals its query: the compiler's own plans, run on DuckDB.

`STREAMSQL_DUCK_EPOCHS` is the number of view-epochs of a campaign, `STREAMSQL_SEED` the first seed, `STREAMSQL_DUCK_FAILURES` how many wrong views to
collect before the end, `STREAMSQL_DUCK_PAIRS=1` prints the table of all pairs of operators,
`STREAMSQL_DUCK_OPERATORS=left join,group basic` makes queries of these operators alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from tests.differential.duck_campaign import REGRESSIONS, Failure, Tally, keep, play
from tests.differential.duck_dialect import to_duck
from tests.differential.duck_grammar import TABLES, Scenario, scenario
from tests.differential.duck_grammar import VIEWS as PLAIN
from tests.differential.duck_shrink import shrink, turned
from tests.differential.duck_world import DuckWorld

EPOCHS = int(os.environ.get("STREAMSQL_DUCK_EPOCHS", "5000"))
FEW, PARTS = 5, 8
"""Views of every run, three epochs each, and the parts of a campaign."""
SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))
FAILURES = int(os.environ.get("STREAMSQL_DUCK_FAILURES", "3"))
ONLY = tuple(filter(None, os.environ.get("STREAMSQL_DUCK_OPERATORS", "").split(",")))
PAIRS = os.environ.get("STREAMSQL_DUCK_PAIRS", "") == "1"
VIEWS, ROUNDS = 10, 10


def test_every_view_equals_its_query_after_every_epoch(capsys):
    _equal(SEED, 3 * FEW, capsys, views=FEW, rounds=3)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_every_view_of_a_campaign_equals_its_query_after_every_epoch(part, capsys):
    share = EPOCHS // PARTS
    _equal(SEED + part * share, share, capsys)


def _equal(first, epochs, capsys, views=VIEWS, rounds=ROUNDS):
    """Play scenarios from a seed on until there were so many view-epochs."""
    tally, failures, seed = Tally(), list[Failure](), first
    while tally.epochs < epochs and len(failures) < FAILURES:
        failures += play(scenario(seed, views, rounds, ONLY), tally)
        seed += 1
    with capsys.disabled():
        print(f"\nseeds {first} to {seed - 1}: {tally.report(table=PAIRS)}")
    small = [shrink(failure) for failure in failures[:FAILURES]]
    paths = keep(small)
    texts = [
        f"{failure.kind}: {failure.text}\n{failure.scenario.script()}\nkept as {path.name}"
        for failure, path in zip(small, paths, strict=True)
    ]
    assert not small, "\n\n".join(texts)


@pytest.mark.skipif(
    duckdb.__version__.startswith("1."), reason="DuckDB 1 does not join all sub-queries"
)
def test_a_query_of_the_grammar_has_one_answer():
    """Whatever the order of rows in the tables: else its view could not equal it."""
    for seed in range(SEED, SEED + 5):
        chosen = scenario(seed, VIEWS, 0)
        answers = []
        for create in (chosen.create, [turned(statement) for statement in chosen.create]):
            world = DuckWorld(TABLES, PLAIN)
            world.advance(create, quiet=True)
            answers.append([world.rows(to_duck(view.sql)) for view in chosen.views])
            world.close()
        for view, one, other in zip(chosen.views, *answers, strict=True):
            assert sorted(map(repr, one)) == sorted(map(repr, other)), (seed, view.sql)


@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_wrong_once_stays_right(path: Path):
    failures = play(Scenario.from_json(path.read_text()))
    assert not failures, failures[0].text
