"""After every epoch every view equals its query: random tables, changes and queries.

`STREAMSQL_EPOCHS` is the number of view-epochs, `STREAMSQL_SEED` the first seed.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
from grammar import Scenario, scenario
from tests_support import drop_schema

from dbt_streamsql import StreamSqlError
from dbt_streamsql.runtime import write, write_driver

EPOCHS = int(os.environ.get("STREAMSQL_EPOCHS", "100"))
SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))
VIEWS, ROUNDS = 10, 5
SCENARIOS = max(1, -(-EPOCHS // (VIEWS * ROUNDS)))


class Difference(AssertionError):
    """A view that is not its query."""


def play(engine, chosen: Scenario, modes: Counter | None = None) -> None:
    """Run a scenario in a schema of its own; raise `Difference` at the first wrong view."""
    schema = f"lake.p_{chosen.seed}"
    engine.spark.sql(f"DROP NAMESPACE IF EXISTS {schema}")
    engine.spark.sql(f"CREATE NAMESPACE {schema}")
    try:
        for statement in chosen.create:
            engine.spark.sql(statement.format(schema=schema))
        made: list[str] = []
        seen: dict[str, object] = {}
        engine.begin()
        for number, sql in enumerate(chosen.views):
            name = f"{schema}.v{number}"
            text = sql.replace("{schema}", schema).replace("{{", "{").replace("}}", "}")
            engine.create_materialized_view(name, text, refresh_mode="incremental")
            made.append(name)
        engine.publish()
        for number, statements in enumerate(chosen.epochs):
            for statement in statements:
                engine.spark.sql(statement.format(schema=schema))
            report = engine.advance()
            for name in made:
                if "stored rows" in report.tables[name].reason:
                    raise Difference(f"{name} was wrong in epoch {number}, a full refresh hid it")
                if modes is not None:
                    modes[report.tables[name].mode] += 1
                state = version_of(engine, name)
                if seen.get(name) == state:
                    continue
                seen[name] = state
                wrong = engine.verify(name)
                if wrong:
                    raise Difference(f"{name} after epoch {number}: {wrong[:4]}")
    finally:
        engine.abort()
        drop_schema(engine, schema.removeprefix("lake."))


def version_of(engine, name):
    """The version of a view and of what it was computed from: equal means nothing to verify."""
    latest = engine._warehouse.store.latest(name)
    return latest.snapshot, dict(latest.inputs)


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


WAYS = {
    "the driver writes": (write_driver.DRIVER_ROWS, write.SMALL_TABLE),
    "small tables are rewritten": (-1, write.SMALL_TABLE),
    "big tables are merged into": (-1, -1),
}
"""How changes are written: the limits (rows of a change, rows of a small table) that lead there."""


@pytest.mark.parametrize("seed", range(SEED, SEED + SCENARIOS))
def test_every_view_equals_its_query_after_every_epoch(engine, modes, seed, monkeypatch):
    way = list(WAYS)[seed % len(WAYS)]
    changed, small = WAYS[way]
    monkeypatch.setattr(write_driver, "DRIVER_ROWS", changed)
    monkeypatch.setattr(write, "SMALL_TABLE", small)
    chosen = scenario(seed, VIEWS, ROUNDS)
    try:
        play(engine, chosen, modes)
    except Difference as error:
        raise AssertionError(f"{way}: {error}\n{shrink(engine, chosen).script()}") from error
