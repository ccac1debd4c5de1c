"""Random wide tables are what their branches say: the compiler's plans, run on DuckDB.

`STREAMSQL_DUCK_WIDE` is the number of epochs, `STREAMSQL_SEED` the first seed.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from dbt_streamsql.errors import Place
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.redefinition import METADATA, SHADOW
from tests.differential.duck_catalog import DuckCatalog
from tests.differential.duck_dialect import to_duck
from tests.differential.duck_epoch import DuckEpoch
from tests.differential.duck_world import DuckWorld
from tests.property.wide_tables import COLUMNS, World, plain
from tests.support.product import compile_view, redefinition, wide_of, wide_query

pytestmark = [pytest.mark.hunts, pytest.mark.long]

EPOCHS = int(os.environ.get("STREAMSQL_DUCK_WIDE", "400"))
SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))
ROUNDS = 25


def test_a_wide_table_is_what_its_branches_say(capsys):
    tally: Counter[str] = Counter()
    for seed in range(SEED, SEED + EPOCHS // ROUNDS):
        _play(seed, tally)
    with capsys.disabled():
        print(f"\nwide tables on DuckDB, seeds {SEED} to {seed}: {dict(tally)}")


def _play(seed: int, tally: Counter[str]) -> None:
    wide, other = World(seed, "s"), Random(seed)
    known = {name: [tuple(c.lower().split()) for c in COLUMNS] for name in wide.tables}
    world = DuckWorld(known, {})
    catalog = DuckCatalog(world.connection, world.tables)
    filling = [line for line in wide.create() if not line.startswith("CREATE")]
    world.advance(list(map(_here, filling)), quiet=True)
    view = DuckEpoch(world, _compiled(wide, catalog), "wide")
    view.fill()
    for number in range(ROUNDS):
        what = "filled"
        if number:
            world.advance(list(map(_here, wide.changes())), quiet=True)
            what = "advanced"
            if other.random() < 0.12:
                wide.another()
                view, what = _redefined(view, _compiled(wide, catalog), catalog)
            view.run(printed=bool(seed % 2))
            view.relations.fresh = frozenset()
        tally[what] += 1
        _check(view, wide, f"seed {seed}, epoch {number} ({what}): {wide.options()}")
    world.close()


def _compiled(wide: World, catalog: DuckCatalog) -> CompiledPlan:
    given = wide.options()
    made = wide_of(given.pop("key"), given.pop("branches"), **given, place=Place("wide"))
    plan = compile_view(wide_query(made, catalog, Place("wide")), catalog, table="lake.v.wide")
    assert plan.mode == "incremental", plan.reasons
    assert CompiledPlan.from_stored(plan.to_stored()) == plan
    return plan


def _redefined(old: DuckEpoch, plan: CompiledPlan, catalog: DuckCatalog) -> tuple[DuckEpoch, str]:
    """The view under its new definition, with the rows that it starts from."""
    verdict = redefinition(old.plan, plan, catalog)
    new = DuckEpoch(old.world, plan, "wide")
    if verdict.verdict == SHADOW:
        new.fill()
        new.relations.fresh = frozenset(plan.tables)
    elif verdict.verdict != METADATA:
        new.follow(old, verdict.sql)
    return new, verdict.verdict


def _check(view: DuckEpoch, wide: World, script: str) -> None:
    columns = ", ".join(f'"{column.name}"' for column in view.plan.columns)
    stored = view.world.rows(f"SELECT {columns} FROM {view.stored()}")
    meant = wide.meant(lambda sql: view.world.rows(to_duck(sql)))
    assert _sorted(stored) == _sorted(meant), script
    every = ", ".join(f'"{column.name}"' for column in view.columns)
    full = view.world.rows(f"SELECT {every} FROM ({view.full})")
    assert _sorted(view.world.rows(f"SELECT {every} FROM {view.stored()}")) == _sorted(full), (
        script
    )


def _sorted(rows: list) -> list:
    return sorted((tuple(map(plain, row)) for row in rows), key=str)


def _here(statement: str) -> str:
    return statement.replace("lake.s.", "")
