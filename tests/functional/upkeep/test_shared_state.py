"""The change of a source is computed once a barrier, for all views that read it (HOW 2)."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

VIEWS = 6


@pytest.fixture
def orders(engine, schema):
    """A source merge-on-read, in two files so that one is untouched by what follows."""
    table = f"lake.{schema}.orders"
    engine.spark.sql(
        f"CREATE TABLE {table} (id BIGINT, amount BIGINT, note STRING) USING iceberg TBLPROPERTIES "
        "('format-version' = '3', 'write.update.mode' = 'merge-on-read')"
    )
    for part in (0, 1):
        engine.spark.sql(
            f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id * 2 + {part}, id % 100, "
            "repeat(md5(CAST(id AS STRING)), 3) FROM range(20000)"
        )
    return table


def test_many_views_of_one_source_read_its_change_once(engine, schema, orders):
    names = [f"lake.{schema}.by_{number}" for number in range(VIEWS)]
    engine.begin()
    for number, name in enumerate(names):
        query = f"SELECT amount % {number + 2} AS k, sum(id) AS s FROM {orders} GROUP BY ALL"
        engine.create_materialized_view(name, query)
    engine.publish()

    def epoch():
        engine.spark.sql(f"UPDATE {orders} SET amount = amount + 1 WHERE id % 1000 = 50")
        tables = engine.advance().tables
        return [tables[name] for name in names]

    epoch()
    done = epoch()
    assert {report.mode for report in done} == {"incremental"}
    # Of their own tables they read nothing: the process has their rows.
    reading = [report for report in done if report.bytes_read > 0]
    assert len(reading) == 1, [report.bytes_read for report in done]
    assert all(engine.verify(name) == [] for name in names)


def test_a_change_too_big_for_the_driver_is_computed_once_too(engine, schema):
    source = f"lake.{schema}.orders"
    engine.spark.sql(
        f"CREATE TABLE {source} (id BIGINT, amount BIGINT, note STRING) USING iceberg TBLPROPERTIES "
        "('format-version' = '3', 'write.update.mode' = 'merge-on-read')"
    )
    engine.spark.sql(
        f"INSERT INTO {source} SELECT id, id % 100, md5(CAST(id AS STRING)) FROM range(400000)"
    )
    names = [f"lake.{schema}.by_{number}" for number in range(VIEWS)]
    engine.begin()
    for number, name in enumerate(names):
        query = f"SELECT amount % {number + 2} AS k, sum(id) AS m FROM {source} GROUP BY ALL"
        engine.create_materialized_view(name, query, refresh_mode="incremental")
    engine.publish()

    def read_by(views):
        """Bytes that an epoch reads when a fifth of the rows has changed."""
        engine.spark.sql(f"UPDATE {source} SET amount = amount + 1 WHERE id % 5 = 0")
        before = _read_from_files(engine.spark)
        done = engine.advance().tables
        read = _read_from_files(engine.spark) - before
        assert {done[name].mode for name in views} == {"incremental"}
        assert all(engine.verify(name) == [] for name in views)
        return read

    by_all = read_by(names)
    for name in names[2:]:
        engine.drop(name)
    by_two = read_by(names[:2])
    # What two views read is mostly the change; another view reads its own rows.
    another = (by_all - by_two) / (VIEWS - 2)
    assert another < by_two / 4, f"{by_all:,} and {by_two:,} bytes"
    assert not engine.spark.sparkContext._jsc.getPersistentRDDs(), "what was shared is let go"


def _read_from_files(spark):
    """Bytes that all of Spark has read from the file system so far."""
    known = spark._jvm.org.apache.hadoop.fs.FileSystem.getAllStatistics()
    return sum(of.getBytesRead() for of in known)


def test_a_join_reads_the_snapshot_that_its_source_has_and_keeps_no_copy(engine, schema, orders):
    base = f"lake.{schema}"
    engine.spark.sql(f"CREATE TABLE {base}.kinds (amount BIGINT, kind STRING) USING iceberg")
    engine.spark.sql(f"INSERT INTO {base}.kinds SELECT id, concat('k', id % 3) FROM range(100)")
    engine.create_materialized_view(
        f"{base}.joined",
        f"SELECT kind, count(*) AS n FROM {orders} o JOIN {base}.kinds k ON o.amount = k.amount "
        "GROUP BY kind",
    )
    tables = {
        row[0] for row in engine.spark.sql(f"SHOW TABLES IN {base}").select("tableName").collect()
    }
    assert tables == {"orders", "kinds", "joined"}
    assert engine.spark.table(f"{base}.joined").count() == 3, "a row for each group, no more"
