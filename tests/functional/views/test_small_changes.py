"""Small changes, which the driver writes itself: every type, every file, again and again."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.java import java_table

EVERY_TYPE = """
    SELECT k, k % 2 = 0 AS flag, CAST(k AS INT) AS small, CAST(k AS FLOAT) AS f, CAST(k AS DOUBLE) / 3 AS d,
      CAST(k AS DECIMAL(9, 2)) / 3 AS short, CAST(k AS DECIMAL(38, 10)) AS long, concat('é-', k) AS text,
      CAST(concat('b', k) AS BINARY) AS bytes, date_add(DATE'2024-02-28', CAST(k AS INT)) AS day,
      timestamp_micros(k * 1000001) AS at, CAST(timestamp_micros(k * 1000001) AS TIMESTAMP_NTZ) AS local
    FROM range(1, 200) AS r(k)
"""


def make(engine, schema, query):
    engine.spark.sql(f"CREATE TABLE lake.{schema}.base AS {EVERY_TYPE}")
    return engine.create_materialized_view(f"lake.{schema}.v", query.format(schema=schema))


def advance(engine, schema):
    return engine.advance().tables[f"lake.{schema}.v"]


def test_every_flat_type_comes_back_as_it_went_in(engine, schema):
    make(engine, schema, "SELECT * FROM lake.{schema}.base WHERE k < 150")
    engine.spark.sql(f"UPDATE lake.{schema}.base SET text = NULL, k = k + 1 WHERE k IN (7, 8)")
    engine.spark.sql(
        f"INSERT INTO lake.{schema}.base SELECT * FROM lake.{schema}.base WHERE k = 3"
    )
    report = advance(engine, schema)
    assert (report.mode, report.rows_inserted, report.rows_deleted) == ("incremental", 3, 2)
    assert engine.verify(f"lake.{schema}.v") == []
    row = engine.spark.sql(f"SELECT * FROM lake.{schema}.v WHERE small = 7").collect()[0]
    assert row.asDict() == {
        "k": 8,
        "flag": False,
        "small": 7,
        "f": 7.0,
        "d": 7 / 3,
        "short": Decimal("2.333333"),
        "long": Decimal("7.0000000000"),
        "text": None,
        "bytes": bytearray(b"b7"),
        "day": dt.date(2024, 3, 6),
        "at": row["at"],
        "local": row["local"],
    }
    assert row["at"].timestamp() == pytest.approx(7.000007)
    assert row["local"].isoformat() == "1970-01-01T00:00:07.000007"


def test_rows_leave_the_same_file_epoch_after_epoch(engine, schema):
    make(engine, schema, "SELECT k, text FROM lake.{schema}.base")
    for gone in range(1, 6):
        engine.spark.sql(f"DELETE FROM lake.{schema}.base WHERE k % 50 = {gone}")
        report = advance(engine, schema)
        assert (report.mode, report.rows_deleted) == ("incremental", 4 if gone < 50 else 3)
        assert engine.verify(f"lake.{schema}.v") == []
    files = engine.spark.sql(f"SELECT content FROM lake.{schema}.v.all_files").collect()
    assert {row[0] for row in files} == {0, 1}


def test_a_group_that_empties_and_comes_back_is_one_row_again(engine, schema):
    make(
        engine,
        schema,
        "SELECT flag, count(*) AS n, max(day) AS last FROM lake.{schema}.base GROUP BY flag",
    )
    for statement in (
        "DELETE FROM lake.{schema}.base WHERE flag",
        "INSERT INTO lake.{schema}.base " + EVERY_TYPE,
    ):
        engine.spark.sql(statement.format(schema=schema))
        assert advance(engine, schema).mode == "incremental"
        assert engine.verify(f"lake.{schema}.v") == []
    assert engine.spark.sql(f"SELECT count(*) FROM lake.{schema}.v").collect() == [(2,)]


@pytest.mark.parametrize("rows_of_driver", [0, 1000])
def test_an_expression_that_has_no_value_for_no_rows_is_not_asked_of_a_group_that_empties(
    engine, schema, tune, rows_of_driver
):
    tune(engine, driver_rows=rows_of_driver)
    make(
        engine,
        schema,
        "SELECT flag, 100 / count(*) AS share FROM lake.{schema}.base GROUP BY flag",
    )
    engine.spark.sql(f"DELETE FROM lake.{schema}.base WHERE flag")
    report = advance(engine, schema)
    assert (report.mode, report.rows_inserted, report.rows_deleted) == ("incremental", 0, 1)
    assert engine.verify(f"lake.{schema}.v") == []


def test_one_epoch_is_one_new_snapshot_and_one_new_file(engine, schema):
    make(engine, schema, "SELECT flag, sum(k) AS total FROM lake.{schema}.base GROUP BY flag")
    snapshots = f"SELECT count(*) FROM lake.{schema}.v.snapshots"
    before = engine.spark.sql(snapshots).collect()[0][0]
    engine.spark.sql(f"UPDATE lake.{schema}.base SET k = k + 1 WHERE k < 9")
    advance(engine, schema)
    assert engine.spark.sql(snapshots).collect()[0][0] == before + 1
    newest = java_table(engine.spark, TableName.parse(f"lake.{schema}.v")).currentSnapshot()
    assert newest.summary().get("added-data-files") == "1"


def test_a_small_view_in_many_files_is_written_anew(engine, schema, tune):
    tune(engine, many_files=2)
    make(engine, schema, "SELECT k FROM lake.{schema}.base")
    for number in range(4):
        engine.spark.sql(f"DELETE FROM lake.{schema}.base WHERE k = {number + 1}")
        new = EVERY_TYPE.replace("range(1, 200)", f"range({1000 + number}, {1001 + number})")
        engine.spark.sql(f"INSERT INTO lake.{schema}.base {new}")
        advance(engine, schema)
    assert engine.verify(f"lake.{schema}.v") == []
    assert engine.spark.sql(f"SELECT count(*) FROM lake.{schema}.v.files").collect()[0][0] <= 4


def test_a_sum_that_becomes_null_reaches_the_view_above(engine, schema):
    base = f"lake.{schema}"
    engine.spark.sql(
        f"CREATE TABLE {base}.base AS SELECT * FROM VALUES (1, 5), (1, NULL) AS t (k, v)"
    )
    engine.create_materialized_view(
        f"{base}.v", f"SELECT k, sum(v) AS n FROM {base}.base GROUP BY k"
    )
    engine.create_materialized_view(f"{base}.w", f"SELECT k, n FROM {base}.v WHERE k < 9")
    for change in (
        f"INSERT INTO {base}.base VALUES (1, 6), (2, NULL)",
        f"DELETE FROM {base}.base WHERE v IS NOT NULL",
        f"INSERT INTO {base}.base VALUES (NULL, NULL), (1, 1)",
    ):
        engine.spark.sql(change)
        report = engine.advance()
        assert {report.tables[f"{base}.{view}"].mode for view in "vw"} == {"incremental"}
        assert engine.verify(f"{base}.v") == engine.verify(f"{base}.w") == [], change
    rows = engine.spark.table(f"{base}.w").select("k", "n").collect()
    assert sorted(map(tuple, rows), key=str) == [(1, 1), (2, None)]


def executions(spark, word):
    """The executions so far whose plan has a word."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    listed = (found.apply(at).physicalPlanDescription() for at in range(found.size()))
    return sum(word in plan for plan in listed)


def test_the_rows_of_a_rewritten_file_are_compared_once(engine, schema, tune):
    tune(engine, broadcast_rows=100, compared_rows=-1)
    spark, table, view = engine.spark, f"lake.{schema}.base", f"lake.{schema}.v"
    spark.sql(
        f"CREATE TABLE {table} TBLPROPERTIES ('format-version' = '2', "
        "'write.delete.mode' = 'copy-on-write') AS SELECT id, id % 5 AS n FROM range(0, 1000, 1, 1)"
    )
    engine.create_materialized_view(
        view, f"SELECT id, n FROM {table} WHERE n < 4", refresh_mode="incremental_strict"
    )
    spark.sql(f"DELETE FROM {table} WHERE id IN (11, 12, 14)")
    before = executions(spark, "IcebergChangelogScan")
    report = advance(engine, schema)
    assert (report.mode, report.rows_inserted, report.rows_deleted) == ("incremental", 0, 2)
    assert executions(spark, "IcebergChangelogScan") == before + 1
    assert engine.verify(view) == []
