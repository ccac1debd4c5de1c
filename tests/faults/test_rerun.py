"""The inputs of a barrier are recorded before work begins: what comes of an epoch that was killed
depends on them alone, whatever becomes of the sources meanwhile."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import fault_scenario as shop
from tests.faults.fault_stages import opened

pytestmark = [pytest.mark.spark, pytest.mark.processes]

STAGED = ("barrier.precommit", "before")
DECIDED = ("barrier.precommit", "after")
MEANWHILE = (
    "INSERT INTO lake.shop.orders VALUES (900, 3, 4.00, 1)",
    "DELETE FROM lake.shop.users WHERE id = 5",
)


def test_a_barrier_that_is_published_by_a_recovery_has_the_bytes_that_were_staged(
    bare_world, stages
):
    world = bare_world
    ready = stages.ready("maintain")
    assert world.kill("maintain", *DECIDED)
    before = _digests(world)
    with opened(world) as engine:
        store = engine.store
        barrier = store.unfinished()[0].id
        recorded = store.inputs(barrier)
        _change(engine)
        shop.recover(engine)
        assert store.last_committed() == barrier
        assert store.inputs(barrier) == recorded
        assert world.tables() == ready.contents[-1]
        files = _files(engine, ready.contents[-1])
        assert files
        after = _digests(world)
        changed = [file for file in files if before.get(file) != after[file]]
        assert not changed


def test_a_barrier_that_was_undone_gives_the_same_rows_again_from_the_same_inputs(
    bare_world, stages
):
    world = bare_world
    ready = stages.ready("maintain")
    assert world.kill("maintain", *STAGED)
    with opened(world) as engine:
        store = engine.store
        undone = store.unfinished()[0].id
        recorded, staged = store.inputs(undone), _staged(engine, ready.contents[-1])
        ready.scenario.task(engine)
        again = store.last_committed()
        assert again > undone
        assert store.inputs(again) == recorded
        assert world.tables() == staged == ready.contents[-1]


def test_after_an_undone_barrier_the_next_one_reads_the_sources_as_they_are_then(
    bare_world, stages
):
    world = bare_world
    ready = stages.ready("maintain")
    assert world.kill("maintain", *STAGED)
    with opened(world) as engine:
        store = engine.store
        undone = store.unfinished()[0].id
        recorded = store.inputs(undone)
        _change(engine)
        ready.scenario.task(engine)
        assert set(store.inputs(store.last_committed()).values()).isdisjoint(recorded.values())
        assert store.inputs(undone) == recorded, "what an undone barrier was to read stays known"
        for view in ready.contents[-1]:
            assert engine.verify(f"{shop.SCHEMA}.{view}") == []
        assert world.tables() != ready.contents[-1]


def _change(engine):
    for statement in MEANWHILE:
        engine.spark.sql(statement)


def _staged(engine, names):
    """The rows of an open barrier."""
    return {
        name: Counter(
            map(
                tuple,
                engine.sql(f"SELECT * FROM {shop.SCHEMA}.{name}", "read_uncommitted").collect(),
            )
        )
        for name in names
    }


def _files(engine, names):
    """The data files and the files of deleted rows of the visible versions."""
    return {
        row[0].removeprefix("file:")
        for name in names
        for row in engine.spark.sql(f"SELECT file_path FROM {shop.SCHEMA}.{name}.files").collect()
    }


def _digests(world):
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(world.warehouse).rglob("*")
        if path.suffix in (".parquet", ".puffin")
    }
