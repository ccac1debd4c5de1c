"""A process is killed while it builds plain tables, and the next one cleans up after it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dbt_streamsql.quoting import TableName
from tests.faults import fault_scenario as scenario
from tests.support.product import STAGED_STEPS, Build, TableSpec, staged_tables

pytestmark = pytest.mark.spark

OLD = [(n, "old") for n in range(5)]
NEW = [(n, n % 7) for n in range(9)]
STATES = {"plain": None, "left": ("stage", "staged.commit", "before", 1)}
"""A table at rest, and what an earlier kill left: a replacement staged and checked."""

SHORT = [
    ("plain", "stage", "staged.record", "before", 1),
    ("plain", "stage", "staged.begin", "before", 1),
    ("plain", "stage", "staged.begin", "before", 2),
    ("plain", "stage", "staged.commit", "before", 1),
    ("plain", "stage", "staged.commit", "before", 2),
    ("plain", "stage", "staged.forget", "before", 1),
    ("plain", "stage", "staged.forget", "before", 2),
    ("plain", "stage", "staged.forget", "after", 2),
    ("left", "sweep", "staged.abort", "before", 1),
    ("left", "sweep", "staged.abort", "after", 1),
    ("left", "sweep", "staged.forget", "after", 1),
]
EVERY = [
    (state, task, step, moment, nth)
    for state, task, times in (("plain", "stage", 2), ("left", "sweep", 1))
    for step in STAGED_STEPS
    for moment in ("before", "after")
    for nth in range(1, times + 1)
    if (step in ("staged.abort", "staged.forget") if task == "sweep" else step != "staged.abort")
]
CASES = EVERY if os.environ.get("STREAMSQL_KILLS") else SHORT


def test_the_short_list_kills_at_every_step_of_a_staged_table():
    assert {case[2] for case in SHORT} == set(STAGED_STEPS)


@pytest.mark.parametrize(("state", "task", "step", "moment", "nth"), CASES)
def test_a_killed_build_leaves_the_old_table_or_the_new_one_and_nothing_else(
    world, tally, state, task, step, moment, nth
):
    _put(world, state)
    assert world.kill(task, step, moment, nth)
    tally[step] += 1
    published = _published(task, step, moment, nth)
    engine = world.engine()
    try:
        assert _seen(engine) == published
        engine.sweep()
        assert _seen(engine) == published
        _check_nothing_is_left(world, engine)
        scenario.stage(engine)
        assert _seen(engine) == {"plain": NEW, "fresh": NEW}
        engine.sweep()
        _check_nothing_is_left(world, engine)
        old = engine.spark.sql("SELECT snapshot_id FROM lake.shop.plain.snapshots").collect()
        found = engine.spark.sql(
            "SELECT count(*), max(name) FROM lake.shop.plain VERSION AS OF "
            f"{min(old, key=lambda row: _committed(engine, row[0]))[0]}"
        ).collect()
        assert tuple(found[0]) == (5, "old")
    finally:
        engine.close()


def _put(world, state):
    if not world.saved("plain"):
        world.restore("start")
        engine = world.engine()
        spec = TableSpec(TableName("lake", "shop", "plain"))
        engine.create_table_as(Build(spec, "SELECT id, 'old' AS name FROM range(5)"))
        engine.close()
        world.save("plain")
    if not world.saved(state):
        world.restore("plain")
        assert world.kill(*STATES[state])
        world.save(state)
    world.restore(state)


def _published(task, step, moment, nth):
    """What a reader sees after the kill: each table changes with its commit."""
    seen = {"plain": OLD}
    if task == "stage":
        done = step == "staged.forget" or (step, moment) == ("staged.commit", "after")
        if done or nth == 2:
            seen["plain"] = NEW
        if done and nth == 2:
            seen["fresh"] = NEW
    return seen


def _seen(engine):
    rows = engine.spark.sql("SHOW TABLES IN lake.shop").collect()
    names = {row["tableName"] for row in rows} & {"plain", "fresh"}
    return {
        name: sorted(map(tuple, engine.spark.table(f"lake.shop.{name}").collect()))
        for name in names
    }


def _committed(engine, snapshot):
    return engine.spark.sql(
        "SELECT committed_at FROM lake.shop.plain.snapshots WHERE snapshot_id = :id",
        args={"id": snapshot},
    ).collect()[0][0]


def _check_nothing_is_left(world, engine):
    assert engine.store.staged.records() == []
    assert staged_tables(engine.spark, "lake") == []
    folders = {path for path in Path(world.warehouse).rglob("_streamsql_*") if path.is_dir()}
    folders |= set((world.warehouse / "shop").glob("fresh-*"))
    names = _seen(engine)
    used = {
        row[0].removeprefix("file:")
        for name in names
        for row in engine.spark.sql(f"SELECT file_path FROM lake.shop.{name}.all_files").collect()
    }
    unused = [f for f in folders if not any(path.startswith(f"{f}/") for path in used)]
    assert unused == []
    assert not list(world.warehouse.glob("*.owner-*"))
