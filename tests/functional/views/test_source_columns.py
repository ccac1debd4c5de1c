"""Columns of an input come, go and change; a snapshot read by its id has those it was written with."""

from __future__ import annotations

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.iceberg.scans import changes

pytestmark = pytest.mark.spark

STEPS = [
    "ALTER TABLE {t} ADD COLUMN more STRING",
    "INSERT INTO {other} VALUES (2, 'two')",
    "INSERT INTO {t} VALUES (2, 3, 'x')",
    "ALTER TABLE {t} ALTER COLUMN p TYPE BIGINT",
    "ALTER TABLE {t} RENAME COLUMN p TO q",
    "DELETE FROM {other} WHERE id = 1",
    "DELETE FROM {t} WHERE id = 1",
    "ALTER TABLE {t} DROP COLUMN more",
    "INSERT INTO {t} VALUES (1, 9)",
    "INSERT INTO {other} VALUES (1, NULL)",
]


@pytest.fixture
def tables(spark, schema):
    names = {"t": f"lake.{schema}.t", "other": f"lake.{schema}.other"}
    spark.sql(f"CREATE TABLE {names['t']} (id INT, p INT) USING iceberg")
    spark.sql(f"INSERT INTO {names['t']} VALUES (1, 2), (1, 2), (2, NULL)")
    spark.sql(f"CREATE TABLE {names['other']} (id INT, name STRING) USING iceberg")
    spark.sql(f"INSERT INTO {names['other']} VALUES (1, 'one')")
    return names


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {t}",
        "SELECT DISTINCT * FROM {t}",
        "SELECT t.*, o.name FROM {t} t JOIN {other} o ON o.id = t.id",
        "SELECT * FROM {t} ORDER BY 1, 2 LIMIT 2",
    ],
)
def test_a_view_has_the_columns_that_its_query_has(spark, engine, schema, tables, query):
    query, name = query.format(**tables), f"lake.{schema}.v"
    engine.create_materialized_view(name, query)
    for step in STEPS:
        spark.sql(step.format(**tables))
        engine.create_materialized_view(name, query)
        shown = [c for c in spark.table(name).columns if not c.startswith("__streamsql_")]
        assert shown == spark.sql(query).columns, step
        if "LIMIT" not in query:
            assert engine.verify(name) == [], step
        names = ", ".join(f"`{column}`" for column in shown)
        stored = spark.sql(f"SELECT {names} FROM {name}").collect()
        assert sorted(map(str, stored)) == sorted(map(str, spark.sql(query).collect())), step


def test_after_the_first_rows_with_the_new_columns_only_changes_are_read(
    spark, engine, schema, tables
):
    name, query = f"lake.{schema}.v", f"SELECT * FROM {tables['t']}"
    engine.create_materialized_view(name, query)
    spark.sql(STEPS[0].format(**tables))
    assert engine.create_materialized_view(name, query).mode == "full"
    assert engine.create_materialized_view(name, query).mode == "noop"
    spark.sql(f"INSERT INTO {tables['t']} VALUES (2, 3, 'x')")
    again = engine.create_materialized_view(name, query)
    assert again.mode == "full"
    assert f"the columns of {tables['t']} have changed" in again.reason
    spark.sql(f"INSERT INTO {tables['t']} VALUES (3, 3, 'y')")
    assert engine.create_materialized_view(name, query).mode == "append"
    spark.sql(f"ALTER TABLE {tables['t']} ALTER COLUMN p COMMENT 'it is a number'")
    spark.sql(f"INSERT INTO {tables['t']} VALUES (4, 3, 'y')")
    assert engine.create_materialized_view(name, query).mode == "append"
    assert engine.verify(name) == []


def test_a_struct_that_changes_inside_is_read_as_it_is_now(spark, engine, schema):
    name, table = f"lake.{schema}.v", f"lake.{schema}.t"
    spark.sql(f"CREATE TABLE {table} (id INT, s STRUCT<a: INT, `b c`: INT>, {NESTED})")
    spark.sql(
        f"INSERT INTO {table} SELECT 1, struct(2, 3), map('k', struct(array(struct(1, 2), NULL)))"
        " UNION ALL SELECT 2, NULL, NULL"
    )
    engine.create_materialized_view(name, f"SELECT * FROM {table}")
    for step in (
        "ADD COLUMN s.d INT FIRST",
        "DROP COLUMN m.value.l.element.y",
        "RENAME COLUMN s.`b c` TO y",
        "ALTER COLUMN s.a TYPE BIGINT",
        "ADD COLUMN m.value.l.element.y INT",
    ):
        spark.sql(f"ALTER TABLE {table} {step}")
        engine.create_materialized_view(name, f"SELECT * FROM {table}")
        assert engine.verify(name) == [], step
        assert _rows(spark, name) == _rows(spark, table), step
    (one, _) = sorted(spark.table(name).collect())
    assert one == (1, (None, 2, 3), {"k": ([(1, None), None],)})


NESTED = "m MAP<STRING, STRUCT<l: ARRAY<STRUCT<x: INT, y: INT>>>>"


def _rows(spark, table):
    shown = [c for c in spark.table(table).columns if not c.startswith("__streamsql_")]
    return sorted(map(str, spark.table(table).select(shown).collect()))


@pytest.mark.parametrize(
    "steps",
    [
        ["DROP COLUMN note", "ADD COLUMN note STRING"],
        [
            "RENAME COLUMN a TO x",
            "RENAME COLUMN b TO a",
            "RENAME COLUMN x TO b",
            "ALTER COLUMN a AFTER id",
            "ALTER COLUMN note AFTER s",
            "ALTER COLUMN b AFTER a",
        ],
        ["DROP COLUMN s.f", "ADD COLUMN s.f STRING"],
        ["DROP COLUMN m.value.l.element.y", "ADD COLUMN m.value.l.element.y INT"],
    ],
    ids=["a column", "two that were swapped", "a field", "a field far inside"],
)
def test_a_column_that_was_replaced_under_its_name_is_another_one(spark, engine, schema, steps):
    name, table = f"lake.{schema}.v", f"lake.{schema}.t"
    wide, totals = f"lake.{schema}.w", f"lake.{schema}.totals"
    spark.sql(
        f"CREATE TABLE {table} (id INT, a INT, b INT, s STRUCT<f: STRING>, {NESTED}, note STRING)"
    )
    spark.sql(
        f"INSERT INTO {table} SELECT 1, 2, 3, struct('old'), "
        "map('k', struct(array(struct(1, 2)))), 'old'"
    )
    query = f"SELECT * FROM {table}"
    engine.create_materialized_view(name, query)
    engine.create_materialized_view(
        totals, f"SELECT note, s, sum(a) AS n FROM {table} GROUP BY 1, 2"
    )
    columns = ["a", "b", "s", "m", "note"]
    engine.create_partial_update(wide, key="id", branches=[(query, columns)])
    for step in steps:
        spark.sql(f"ALTER TABLE {table} {step}")
    told = engine.advance().tables
    assert {told[view].mode for view in (name, totals, wide)} == {"full"}
    assert told[name].reason == "an input of the view was redefined"
    for view in (name, totals, wide):
        assert engine.verify(view) == [], view
    assert _rows(spark, name) == _rows(spark, table)
    again = engine.advance().tables
    assert {view: run.reason for view, run in again.items() if run.mode != "noop"} == {}


def test_a_table_that_lacks_a_column_of_its_plan_is_never_published(
    spark, engine, schema, tables, monkeypatch
):
    name, query = f"lake.{schema}.v", f"SELECT * FROM {tables['t']}"
    engine.create_materialized_view(name, query)
    spark.sql(STEPS[0].format(**tables))
    read = changes.version
    monkeypatch.setattr(changes, "as_now", lambda spark, name, meta, at: read(name, at))
    with pytest.raises(StreamSqlError) as caught:
        engine.create_materialized_view(name, query)
    assert caught.value.code in {"PLAN_MISMATCH", "INTERNAL"}
    engine.abort()
    assert spark.table(name).columns == ["id", "p"]
