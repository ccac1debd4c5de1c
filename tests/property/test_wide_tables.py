"""Random wide tables are what their branches say, after every epoch, restart and other branch."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from dbt_streamsql import Engine
from tests.property.playing import WAYS
from tests.property.wide_tables import World, plain
from tests.support.product import Tuning

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))
EPOCHS = int(os.environ.get("STREAMSQL_WIDE", "18"))
ROUNDS = 6


@pytest.fixture(scope="module")
def tally():
    """What the epochs did, printed at the end."""
    found: Counter[str] = Counter()
    yield found
    print(f"\nwide tables from seed {SEED}: {dict(found)}")


@pytest.mark.parametrize("seed", range(SEED, SEED + EPOCHS // ROUNDS))
def test_a_wide_table_is_what_its_branches_say(engine, spark, schema, seed, tune, tally):
    way = WAYS[list(WAYS)[seed % len(WAYS)]]
    tune(engine, **way)
    world, other = World(seed, schema), Random(seed)
    wide = f"lake.{schema}.wide"
    for statement in world.create():
        spark.sql(statement)
    report = engine.create_partial_update(wide, **world.options())
    for number in range(ROUNDS):
        if number:
            for statement in world.changes():
                spark.sql(statement)
            if other.random() < 0.25:
                world.another()
                report = engine.create_partial_update(wide, **world.options())
                tally[f"{report.definition or report.mode} after a redefinition"] += 1
            elif other.random() < 0.3:
                again = Engine.open(spark=spark, tuning=Tuning(**way))
                report = again.advance().tables[wide]
                again.close()
                tally["after a restart"] += 1
            else:
                report = engine.advance().tables[wide]
        tally[report.mode] += 1
        script = f"seed {seed}, epoch {number} ({report.mode}): {world.options()}"
        found = [tuple(map(plain, row)) for row in engine.sql(f"SELECT * FROM {wide}").collect()]
        meant = [
            tuple(map(plain, row)) for row in world.meant(lambda sql: spark.sql(sql).collect())
        ]
        assert sorted(found, key=str) == sorted(meant, key=str), script
        assert engine.verify(wide) == [], script
