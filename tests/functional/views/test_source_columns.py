"""Columns of an input come, go and change; a snapshot read by its id has those it was written with."""

from __future__ import annotations

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.iceberg import changes

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


def test_a_struct_that_changes_inside_needs_rows_first(spark, engine, schema):
    name, table = f"lake.{schema}.v", f"lake.{schema}.t"
    spark.sql(f"CREATE TABLE {table} (id INT, s STRUCT<a: INT>) USING iceberg")
    spark.sql(f"INSERT INTO {table} VALUES (1, struct(2))")
    engine.create_materialized_view(name, f"SELECT * FROM {table}")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN s.b INT")
    with pytest.raises(StreamSqlError) as caught:
        engine.create_materialized_view(name, f"SELECT * FROM {table}")
    assert caught.value.code == "SQL_UNSUPPORTED"
    assert "column s" in str(caught.value)
    engine.abort()
    assert spark.table(name).collect() == [(1, (2,))]
    spark.sql(f"INSERT INTO {table} VALUES (2, struct(3, 4))")
    engine.create_materialized_view(name, f"SELECT * FROM {table}")
    assert sorted(spark.table(name).collect()) == [(1, (2, None)), (2, (3, 4))]


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
