"""A small table is read from its files: the rows, and their places, are those that Spark reads."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.stored_rows import PLACE_IN_NUMBERS, StoredRows
from dbt_streamsql.storage.arrow_rows import arrow_frame
from dbt_streamsql.storage.iceberg import gateway_work, metadata
from dbt_streamsql.storage.iceberg.scans import file_rows, live_files

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

VALUES = """
    id, CAST(id AS INT) AS i, CAST(id AS FLOAT) / 3 AS f, id / 7D AS d, id % 2 = 0 AS b,
    CAST(id AS DECIMAL(12, 3)) AS dec, nullif(CAST(id % 9 AS STRING), '4') AS s,
    TIMESTAMP'0001-01-01 00:00:00' + make_dt_interval(id) AS ts,
    CAST('9999-12-31 23:59:59.999999' AS TIMESTAMP_NTZ) AS ntz,
    DATE'1582-10-15' - CAST(id AS INT) AS day, CAST('ab' AS BINARY) AS bin
"""


@pytest.fixture
def table(spark, schema):
    """A table of all types that the driver writes, in two files, with deleted rows in both."""
    name = TableName("lake", schema, "every type")
    spark.sql(
        f"CREATE TABLE {name.sql} TBLPROPERTIES ('format-version' = '3', "
        f"'write.delete.mode' = 'merge-on-read') AS SELECT {VALUES} FROM range(0, 50, 1, 1)"
    )
    spark.sql(f"INSERT INTO {name.sql} SELECT {VALUES} FROM range(50, 90, 1, 1)")
    spark.sql(f"DELETE FROM {name.sql} WHERE id % 7 = 3")
    return name


def read(spark, name, columns):
    snapshot = metadata.load(spark, name).current
    return file_rows.read(spark, name, snapshot, columns, 1 << 20)


def columns_of(spark, name):
    return spark.table(name.sql).columns


def read_by_spark(spark, name):
    place = ", ".join(f"{value} AS {column}" for column, value in PLACE_IN_NUMBERS.items())
    return spark.sql(f"SELECT *, {place} FROM {name.sql}").toArrow()


def rows_of(found):
    return sorted(repr(tuple(row.values())) for row in found.to_pylist())


def test_every_type_and_place_is_as_spark_reads_it(spark, table):
    found = StoredRows.of_files(read(spark, table, columns_of(spark, table))).rows
    wanted = read_by_spark(spark, table)
    assert found.schema.types == wanted.schema.types
    assert len(found) == 77
    assert rows_of(found) == rows_of(wanted)


def test_columns_are_found_by_their_ids_whatever_they_are_called(spark, table):
    spark.sql(f"ALTER TABLE {table.sql} RENAME COLUMN s TO i2")
    assert read(spark, table, ["i2"]) is None, "the snapshot has the former names"
    spark.sql(f"INSERT INTO {table.sql} SELECT * FROM {table.sql} WHERE id = 0")
    found = StoredRows.of_files(read(spark, table, columns_of(spark, table))).rows
    assert rows_of(found) == rows_of(read_by_spark(spark, table))


def test_what_files_do_not_have_is_left_to_spark(spark, table):
    spark.sql(f"ALTER TABLE {table.sql} ADD COLUMN more INT")
    spark.sql(f"INSERT INTO {table.sql} SELECT * FROM {table.sql} WHERE id = 0")
    assert read(spark, table, ["more"]) is None
    assert read(spark, table, ["none such"]) is None
    assert read(spark, table, ["id"]) is not None


def test_other_formats_and_other_deletes_are_left_to_spark(spark, schema):
    orc = TableName("lake", schema, "orc")
    spark.sql(
        f"CREATE TABLE {orc.sql} TBLPROPERTIES ('write.format.default' = 'orc') "
        "AS SELECT id FROM range(3)"
    )
    assert read(spark, orc, ["id"]) is None
    old = TableName("lake", schema, "old")
    spark.sql(
        f"CREATE TABLE {old.sql} TBLPROPERTIES ('format-version' = '2', "
        "'write.delete.mode' = 'merge-on-read') AS SELECT id FROM range(0, 30, 1, 1)"
    )
    assert sum(each.rows.num_rows for each in read(spark, old, ["id"])) == 30
    spark.sql(f"DELETE FROM {old.sql} WHERE id = 3")
    assert read(spark, old, ["id"]) is None


def test_no_rows_after_an_empty_chunk_are_lost(spark):
    parts = [pa.table({"k": pa.array(values, pa.int64())}) for values in ([1], [], [2, 3], [])]
    frame = arrow_frame(spark, pa.concat_tables(parts))
    assert sorted(row.k for row in frame.collect()) == [1, 2, 3]


def test_the_files_of_a_snapshot_are_asked_for_once(spark, table, monkeypatch):
    asked = []

    def counted(spark, name, snapshot):
        asked.append(snapshot)
        return gateway_work.live_files(spark, name, snapshot)

    monkeypatch.setattr(live_files, "gateway_work", SimpleNamespace(live_files=counted))
    first = metadata.load(spark, table).current
    for _ in range(2):
        assert len(StoredRows.of_files(read(spark, table, ["id"])).rows) == 77
    spark.sql(f"DELETE FROM {table.sql} WHERE id = 0")
    second = metadata.load(spark, table).current
    assert len(StoredRows.of_files(read(spark, table, ["id"])).rows) == 76
    assert (
        len(StoredRows.of_files(file_rows.read(spark, table, first, ["id"], 1 << 20)).rows) == 77
    )
    assert asked == [first, second], "a snapshot never changes"
    monkeypatch.setattr(live_files, "_MOST", 1)
    spark.sql(f"DELETE FROM {table.sql} WHERE id = 1")
    third = metadata.load(spark, table).current
    for snapshot in (third, third, first):
        live_files.live_files(spark, table, snapshot)
    assert asked == [first, second, third, first], "the oldest go where there is room for one"


def test_rows_of_an_earlier_version_are_not_taken_for_the_stored_ones(engine, schema, tune):
    tune(engine, compared_rows=1_000_000, comparing=0.0)
    s = f"lake.{schema}"
    engine.spark.sql(
        f"CREATE TABLE {s}.t TBLPROPERTIES ('format-version' = '3') AS SELECT id FROM range(9)"
    )
    engine.create_materialized_view(f"{s}.v", f"SELECT id % 3 AS g, id FROM {s}.t")
    for number, statement in enumerate(
        (
            f"INSERT INTO {s}.t VALUES (10), (11)",
            f"DELETE FROM {s}.t WHERE id IN (4, 10)",
            f"INSERT INTO {s}.t VALUES (4), (12)",
        )
    ):
        engine.spark.sql(statement)
        # The second change is merged by Spark, which leaves the files that the process knows.
        rows = -1 if number == 1 else 1_000_000
        tune(
            engine,
            compared_rows=rows,
            held_rows=rows,
            driver_rows=rows,
            small_table=rows,
            comparing=0.0,
        )
        engine.advance()
        assert engine.verify(f"{s}.v") == [], statement
