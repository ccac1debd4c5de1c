"""When nothing changed, an epoch reads metadata only."""

from __future__ import annotations

import pytest

from dbt_streamsql.runtime.core.ways import Costs

pytestmark = pytest.mark.spark

VIEWS = 20


@pytest.fixture
def views(spark, engine, schema):
    """Twenty views over one table, in chains of two, made in one epoch."""
    orders = f"lake.{schema}.orders"
    spark.sql(
        f"CREATE TABLE {orders} (id BIGINT, city STRING, amount INT) TBLPROPERTIES "
        "('format-version'='3', 'write.delete.mode'='merge-on-read')"
    )
    spark.sql(f"INSERT INTO {orders} SELECT id, concat('c', id % 5), id % 7 FROM range(40)")
    spark.sql(f"INSERT INTO {orders} SELECT id, 'new', 1 FROM range(100, 110)")
    spark.sql(f"DELETE FROM {orders} WHERE id % 10 = 0")
    queries = {}
    for number in range(0, VIEWS, 2):
        grouped = f"lake.{schema}.v{number}"
        queries[grouped] = (
            f"SELECT city, count(*) AS n FROM {orders} WHERE amount >= {number // 4} GROUP BY city"
        )
        queries[f"lake.{schema}.v{number + 1}"] = f"SELECT city FROM {grouped} WHERE n > {number}"
    engine.begin()
    for name, query in queries.items():
        engine.create_materialized_view(name, query)
    engine.publish()
    return list(queries)


def _jobs(spark):
    """How many Spark jobs were started so far."""
    return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


def _snapshots(engine, views):
    versions = engine.store.latest_all()
    return {name: versions[name].snapshot for name in views}


def test_an_epoch_without_changes_starts_no_spark_job(spark, engine, views):
    barrier, jobs = engine.store.last_committed(), _jobs(spark)
    for _ in range(2):
        report = engine.advance()
        assert [report.tables[name].mode for name in views] == ["noop"] * VIEWS
        assert report.barrier == barrier
        assert _jobs(spark) == jobs
    assert spark.table(views[0]).count() > 0
    assert _jobs(spark) > jobs, "the counter counts"


def test_a_compaction_of_the_source_changes_no_view(spark, engine, schema, views):
    before = _snapshots(engine, views)
    done = spark.sql(
        "CALL lake.system.rewrite_data_files(table => :table, "
        "options => map('rewrite-all', 'true'))",
        args={"table": f"{schema}.orders"},
    ).collect()
    assert done[0]["rewritten_data_files_count"] > 0
    jobs = _jobs(spark)
    report = engine.advance()
    assert [report.tables[name].mode for name in views] == ["noop"] * VIEWS
    assert _jobs(spark) == jobs
    assert _snapshots(engine, views) == before
    spark.sql(f"DELETE FROM lake.{schema}.orders WHERE id % 10 = 1")
    modes = {report.mode for report in engine.advance().tables.values()}
    assert "full" not in modes
    for name in views[:4]:
        assert engine.verify(name) == []


def test_a_change_that_comes_to_nothing_is_remembered_with_what_it_took(
    spark, engine, schema, views, tune, monkeypatch
):
    monkeypatch.setattr(engine.warehouse, "costs", Costs())
    tune(engine, guarded_rows=0, compared_rows=-1)
    spark.sql(f"INSERT INTO lake.{schema}.orders VALUES (1000, 'new', -1), (1001, 'new', -1)")
    first = engine.advance().tables[views[0]]
    assert (first.mode, first.rows_read) == ("noop", 2)
    assert first.jobs > 0
    runs = [first]
    for key in (1002, 1003):
        spark.sql(f"INSERT INTO lake.{schema}.orders VALUES ({key}, 'new', -1)")
        runs.append(engine.advance().tables[views[0]])
    quickest = min(run.seconds for run in runs[:2])
    assert runs[2].estimated_incremental == pytest.approx(quickest, rel=0.01)
