"""What else can go wrong between the stages of a barrier: other people's writes, errors, first runs."""

from __future__ import annotations

from collections import Counter

import pytest

from dbt_streamsql import Engine
from tests.faults import fault_scenario as scenario
from tests.support.product import embedded

pytestmark = pytest.mark.spark

DEEDS = (
    "INSERT INTO lake.shop.lines VALUES (999, 'nowhere', 1)",
    "DROP TABLE lake.shop.big_cities PURGE",
    "DROP TABLE lake.shop.redone PURGE",
    "CREATE TABLE lake.shop.extra (other INT)",
)


@pytest.fixture
def at(observe):
    """Do something the first time that this process reaches a durable step."""

    def plan(step, moment, action):
        done = []

        def passed(*passing):
            if passing == (step, moment) and not done:
                done.append(passing)
                action()

        observe(passed)

    return plan


def test_what_others_do_while_a_barrier_is_published_does_not_stop_it(world, at):
    world.restore("start")
    engine = world.engine()
    try:
        at("barrier.precommit", "after", lambda: [engine.spark.sql(deed) for deed in DEEDS])
        scenario.epoch(engine)
        assert engine.store.unfinished() == []
        seen = world.tables()
        assert "big_cities" not in seen
        assert seen == {name: seen[name] for name in world.after if name != "big_cities"}
        for name, rows in seen.items():
            assert rows == world.after[name], name
        engine.advance()
        engine.sweep()
        assert world.tables() == world.after
        for name in world.after:
            assert engine.verify(f"{scenario.SCHEMA}.{name}") == []
    finally:
        engine.close()


def test_what_arrives_during_an_epoch_belongs_to_the_next(world):
    world.restore("start")
    engine = world.engine()
    lines = f"{scenario.SCHEMA}.lines"
    try:
        engine.begin()
        engine.spark.sql("INSERT INTO lake.shop.orders VALUES (300, 8, 1.00, 1)")
        scenario.epoch(engine)
        assert world.tables() == world.after
        for name in world.after:
            assert engine.verify(f"{scenario.SCHEMA}.{name}") == []
        report = engine.advance().tables[lines]
        assert (report.mode, report.rows_inserted) == ("append", 1)
        assert world.leftovers(engine, swept=False) == []
    finally:
        engine.close()


def test_an_error_while_publishing_is_repaired_by_the_next_epoch(world, at):
    world.restore("start")
    engine = world.engine()

    def fail():
        raise RuntimeError("the disk is full")

    try:
        at("table.written", "before", fail)
        with pytest.raises(RuntimeError, match="the disk is full"):
            scenario.epoch(engine)
        assert not engine.epochs.is_open
        assert world.committed(engine) == world.before
        staged = world.precommitted(engine)
        assert staged == {name: world.after[name] for name in staged}, "it only goes forward"
        added = engine.sql(f"SELECT * FROM {scenario.SCHEMA}.extra", "read_committed")
        assert Counter(map(tuple, added.collect())) == world.after["extra"]
        engine.advance()
        assert world.tables() == world.after
        assert world.leftovers(engine, swept=False) == []
    finally:
        engine.close()


def test_a_process_that_dies_before_anything_was_ever_staged_is_cleaned_up_after(spark, tmp_path):
    folder = str(tmp_path / "new")
    first = Engine.open(folder, spark=embedded(folder))
    store = first.store
    store.begin(store.acquire(), {})
    store.close()  # as its death does: the lock is free, the fence was not given back
    second = Engine.open(folder, spark=embedded(folder))
    try:
        assert second.advance().tables == {}
        assert second.store.unfinished() == []
        assert second.sweep() == 0
    finally:
        second.close()
