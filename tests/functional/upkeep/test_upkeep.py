"""A view that is maintained for long neither slows its readers down nor keeps all its versions."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import pytest

from dbt_streamsql.meta import Retention
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.upkeep import worn_tables
from dbt_streamsql.storage.iceberg import jvm_cleanup, metadata
from dbt_streamsql.storage.iceberg.commits import tags
from dbt_streamsql.storage.java import java_class

pytestmark = pytest.mark.spark

ROWS = 150_000
"""More than what is rewritten whole."""


@pytest.fixture
def views(spark, engine, schema):
    """A grouped view of many rows, and one that reads it."""
    base, groups, totals = (f"lake.{schema}.{name}" for name in ("base", "groups", "totals"))
    spark.sql(f"CREATE TABLE {base} (k BIGINT, v BIGINT) TBLPROPERTIES ('format-version' = '3')")
    spark.sql(f"INSERT INTO {base} SELECT id, id % 10 FROM range({ROWS})")
    engine.begin()
    # Not `auto`: on a busy machine that may find full refreshes quicker.
    for name, query in (
        (groups, f"SELECT k, sum(v) AS v, count(*) AS n FROM {base} GROUP BY k"),
        (totals, f"SELECT n, count(*) AS groups FROM {groups} GROUP BY n"),
    ):
        engine.create_materialized_view(name, query, refresh_mode="incremental")
    engine.publish()
    return base, groups, totals


def _epochs(spark, engine, base, number):
    modes = []
    for epoch in range(number):
        keys = (
            f"SELECT id * 1009 % {ROWS + 50}, {epoch} FROM range({epoch * 20}, {epoch * 20 + 20})"
        )
        spark.sql(f"INSERT INTO {base} {keys}")
        modes.append({name: report.mode for name, report in engine.advance().tables.items()})
    return modes


def _files(spark, view):
    meta = metadata.load(spark, TableName.parse(view))
    return meta.snapshots[meta.current].count("total-data-files")


def test_small_files_are_merged_and_the_views_stay_right(spark, engine, views, tune):
    base, groups, totals = views
    tune(engine, small_files=4)
    first = _files(spark, groups)
    modes = _epochs(spark, engine, base, 8)
    assert {mode for epoch in modes for mode in epoch.values()} == {"incremental"}, modes
    assert _files(spark, groups) < first + 4
    meta = metadata.load(spark, TableName.parse(groups))
    assert any(snapshot.operation == "replace" for snapshot in meta.snapshots.values())
    assert engine.verify(groups) == engine.verify(totals) == []
    assert {report.mode for report in engine.advance().tables.values()} == {"noop"}


def test_what_a_compaction_has_replaced_can_be_read_whoever_expires_snapshots(
    spark, engine, schema, tune
):
    base, view = f"lake.{schema}.base", f"lake.{schema}.counts"
    spark.sql(f"CREATE TABLE {base} AS SELECT id % 10 AS k, id AS v FROM range(1000)")
    engine.create_materialized_view(
        view, f"SELECT k, count(*) AS n FROM {base} GROUP BY k", refresh_mode="incremental"
    )
    tune(engine, compacted_above=0, small_files=1)
    spark.sql(f"INSERT INTO {base} VALUES (1, 1), (3, 1)")
    engine.advance()
    meta = metadata.load(spark, TableName.parse(view))
    assert meta.snapshots[meta.current].operation == "replace", "it was not compacted"
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{schema}.counts', "
        "older_than => now(), retain_last => 1)"
    )
    look, counts = f"SELECT k, n FROM {view}", {k: 100 + (k in (1, 3)) for k in range(10)}
    for level in ("read_uncommitted", "read_committed"):
        assert dict(engine.sql(look, consistency=level).collect()) == counts, level
    with engine.reader() as reader:
        assert dict(reader.sql(look).collect()) == counts
    assert engine.verify(view) == []

    tune(engine, compacted_above=1000)
    spark.sql(f"INSERT INTO {base} VALUES (1, 1)")
    assert engine.advance().tables[view].mode == "incremental"
    assert engine.verify(view) == []
    assert not tags.of(metadata.load(spark, TableName.parse(view)), engine.warehouse.store_id)


def test_without_wear_nothing_is_rewritten(spark, engine, views):
    base, groups, _ = views
    _epochs(spark, engine, base, 3)
    meta = metadata.load(spark, TableName.parse(groups))
    assert all(snapshot.operation != "replace" for snapshot in meta.snapshots.values())


def test_old_versions_go_but_not_those_that_somebody_needs(spark, engine, views, tune):
    base, groups, totals = views
    # What other tests read at repeatable_read is held until the engine is closed.
    for lease in engine.store.leases.live():
        engine.store.leases.give_back(lease.id)
    tune(engine, Retention(barriers=2), barriers_together=2)
    spark.sql(f"ALTER TABLE {groups} CREATE TAG audited")
    audited = spark.table(groups).count()
    _epochs(spark, engine, base, 6)
    kept = metadata.load(spark, TableName.parse(groups)).snapshots
    assert len(kept) <= 2 + 2 + 1
    assert spark.sql(f"SELECT * FROM {groups} VERSION AS OF 'audited'").count() == audited
    assert engine.verify(groups) == engine.verify(totals) == []


def test_a_compaction_that_fails_harms_nothing(spark, engine, views, tune, monkeypatch, caplog):
    base, groups, totals = views
    tune(engine, small_files=1)
    monkeypatch.setattr(
        worn_tables.table_maintenance,
        "compact",
        lambda *_: spark.sql("SELECT raise_error('no room')").collect(),
    )
    _epochs(spark, engine, base, 2)
    assert "could not be compacted" in caplog.text
    assert engine.verify(groups) == engine.verify(totals) == []


@pytest.fixture
def allocators(spark, engine, tune):
    """Where Iceberg's readers leave theirs; none is too few to be closed."""
    tune(engine, idle_readers=1)
    jvm_cleanup.close_idle(spark, 1)
    return java_class(spark, "org.apache.iceberg.arrow.ArrowAllocation").rootAllocator()


@pytest.mark.parametrize("held", [False, True])
def test_what_readers_left_in_memory_is_given_back_after_an_epoch(
    spark, engine, views, allocators, held
):
    left = len(allocators.getChildAllocators())
    for _ in range(3):
        spark.table(views[1]).collect()
    assert len(allocators.getChildAllocators()) > left, "this Iceberg closes them: ours can go"
    with ExitStack() as task:
        if held:
            other = allocators.newChildAllocator("of a task that was cancelled", 0, 1 << 20)
            task.callback(other.close)
            task.callback(other.buffer(64).close)
        _epochs(spark, engine, views[0], 1)
        assert len(allocators.getChildAllocators()) == left + held


def test_while_a_job_runs_no_reader_loses_its_memory(spark, views, allocators):
    spark.table(views[1]).collect()
    left = len(allocators.getChildAllocators())
    sleeping = spark.range(1).selectExpr("java_method('java.lang.Thread', 'sleep', 4000L)")
    job = threading.Thread(target=sleeping.collect)
    job.start()
    active = spark.sparkContext._jsc.sc().dagScheduler().activeJobs
    while not active().nonEmpty():
        time.sleep(0.05)
    assert jvm_cleanup.close_idle(spark, 1) == 0
    assert len(allocators.getChildAllocators()) == left
    job.join()
    assert jvm_cleanup.close_idle(spark, 1) == left
