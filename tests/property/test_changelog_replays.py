"""The changes between two barriers, replayed onto the first, give the second: random views."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from tests.property.grammar import scenario
from tests.support.catalogs import drop_schema

SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))
SCENARIOS = max(1, int(os.environ.get("STREAMSQL_EPOCHS", "300")) // 200)
VIEWS, ROUNDS, RANGES = 6, 5, 1


def bag(frame):
    return Counter(tuple(row) for row in frame.collect())


def replay_retract(rows, changes):
    """Redo and undo, barrier by barrier: an undone row must be there."""
    rows = Counter(rows)
    for change in changes:
        row = tuple(change)[:-2]
        rows[row] += 1 if change["_op"] == "+" else -1
        assert rows[row] >= 0, f"{row} went at barrier {change['_barrier']} and was not there"
    return +rows


def replay_upsert(rows, changes, key):
    """Redo by key: `+` must be new, `*` and `-` must be known."""
    assert set(rows.values()) <= {1}
    columns = changes[0].__fields__[:-2] if changes else []
    at = [columns.index(name) for name in key] if changes else []
    known = {tuple(row[i] for i in at): row for row in rows} if changes else {}
    for change in changes:
        row, place = tuple(change)[:-2], tuple(change[i] for i in at)
        assert (place in known) is (change["_op"] != "+"), (place, change)
        if change["_op"] == "-":
            assert all(value is None for i, value in enumerate(row) if i not in at)
            del known[place]
        else:
            known[place] = row
    return Counter(known.values()) if changes else rows


@pytest.mark.parametrize("seed", range(SEED, SEED + SCENARIOS))
def test_the_changes_replayed_onto_one_barrier_give_another(engine, seed, tune):
    tune(engine, **({}, {"driver_rows": -1})[seed % 2])
    tune(engine, **({}, {"small_table": -1})[seed // 2 % 2])
    chosen, random = scenario(seed, VIEWS, ROUNDS), Random(seed)
    schema = f"lake.c_{seed}"
    engine.spark.sql(f"CREATE NAMESPACE {schema}")
    try:
        for statement in chosen.create:
            engine.spark.sql(statement.format(schema=schema))
        before = engine.store.last_committed()
        names = [f"{schema}.v{number}" for number in range(VIEWS)]
        engine.begin()
        for name, sql in zip(names, chosen.views, strict=True):
            text = sql.replace("{schema}", schema).replace("{{", "{").replace("}}", "}")
            engine.create_materialized_view(name, text)
        barriers = [engine.publish().barrier]
        for number, statements in enumerate(chosen.epochs):
            for statement in statements:
                engine.spark.sql(statement.format(schema=schema))
            if number == ROUNDS // 2:
                job = engine.store.jobs()[names[0]]
                engine.create_materialized_view(names[0], job.sql, full_refresh=True)
            barriers.append(engine.advance().barrier)
        barriers = sorted({before, *barriers})
        for name in names:
            ranges = [(before, barriers[-1])]
            ranges += [sorted(random.sample(barriers[1:], 2)) for _ in range(RANGES)]
            for first, last in ranges:
                check(engine, name, first, last, new=first == before)
    finally:
        drop_schema(engine, schema.removeprefix("lake."))


def check(engine, name, first, last, *, new):
    then = Counter() if new else bag(engine.sql(f"SELECT * FROM {name}", barrier=first))
    now = bag(engine.sql(f"SELECT * FROM {name}", barrier=last))
    order = ("_barrier", "_op")
    changes = engine.changelog(name, first, last).orderBy(*order, ascending=[True, False])
    assert replay_retract(then, changes.collect()) == now, (name, first, last)
    key = key_of(engine, name)
    if key is None:
        return
    changes = engine.changelog(name, first, last, "upsert").orderBy("_barrier").collect()
    keys = Counter((row["_barrier"], *(row[k] for k in key)) for row in changes)
    assert set(keys.values()) <= {1}
    assert replay_upsert(then, changes, key) == now, (name, first, last)


def key_of(engine, name):
    """The columns that identify a row, None when there are none to be seen."""
    plan = engine.store.jobs()[name].plan["plan"]
    hidden = any(column.startswith(HIDDEN_PREFIX) for column in plan["key"])
    return plan["key"] if plan["strategy"] in ("fold", "replace") and not hidden else None
