"""A view is compiled again when what its plan depends on is another, and only then."""

from __future__ import annotations

import pytest

from dbt_streamsql import Engine
from dbt_streamsql.engine import definitions

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(spark, schema):
    name = f"lake.{schema}.orders"
    spark.sql(f"CREATE TABLE {name} (id INT, price DECIMAL(38, 18)) USING iceberg")
    spark.sql(f"INSERT INTO {name} VALUES (1, 2.5), (2, 3.5), (2, 4.5)")
    return name


@pytest.fixture
def view(spark, schema, orders):
    """A query over a table and over a plain view."""
    spark.sql(f"CREATE VIEW lake.{schema}.big AS SELECT * FROM {orders} WHERE price > 3")
    return f"SELECT *, price * price AS squared FROM lake.{schema}.big"


@pytest.fixture
def define(spark, schema, monkeypatch):
    """Define a view as a new process does; how often it was compiled."""
    compiled = []
    real = definitions.compile_view

    def counted(*arguments, **options):
        compiled.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(definitions, "compile_view", counted)

    def run(sql):
        engine, name = Engine.open(spark=spark), f"lake.{schema}.v"
        before = len(compiled)
        try:
            engine.create_materialized_view(name, sql)
            assert engine.verify(name) == []
        finally:
            engine.close()
        return len(compiled) - before

    return run


def test_a_view_as_it_was_is_not_compiled_again(spark, orders, view, define):
    assert define(view) == 1
    assert define(view) == 0
    spark.sql(f"INSERT INTO {orders} VALUES (3, 9.5), (1, NULL)")
    assert define(view) == 0


def _column(spark, schema):
    spark.sql(f"ALTER TABLE lake.{schema}.orders ADD COLUMN more STRING")
    spark.sql(f"INSERT INTO lake.{schema}.orders VALUES (3, 4.5, 'x')")
    spark.sql(f"CREATE OR REPLACE VIEW lake.{schema}.big AS SELECT * FROM lake.{schema}.orders")


def _view(spark, schema):
    text = f"SELECT * FROM lake.{schema}.orders WHERE price < 3"
    spark.sql(f"CREATE OR REPLACE VIEW lake.{schema}.big AS {text}")


def _table(spark, schema):
    spark.sql(f"DROP TABLE lake.{schema}.orders")
    spark.sql(f"CREATE TABLE lake.{schema}.orders (id INT, price DECIMAL(38, 18)) USING iceberg")
    spark.sql(f"INSERT INTO lake.{schema}.orders VALUES (7, 8.5)")


@pytest.mark.parametrize("change", [_column, _view, _table])
def test_it_is_when_an_input_is_another(spark, schema, view, define, change):
    assert define(view) == 1
    change(spark, schema)
    assert define(view) == 1
    now = spark.table(f"lake.{schema}.v").schema
    assert [f.name for f in now if not f.name.startswith("__")] == spark.sql(view).columns
    assert define(view) == 0


def test_it_is_when_the_compiler_is_another(view, define, monkeypatch):
    assert define(view) == 1
    monkeypatch.setattr(definitions, "identity", lambda: "another")
    assert define(view) == 1
    assert define(view) == 0


def test_it_is_when_spark_would_give_its_columns_other_types(spark, schema, view, define):
    assert define(view) == 1
    spark.conf.set("spark.sql.decimalOperations.allowPrecisionLoss", "false")
    try:
        assert define(view) == 1
        assert (
            spark.table(f"lake.{schema}.v").schema["squared"] == spark.sql(view).schema["squared"]
        )
    finally:
        spark.conf.unset("spark.sql.decimalOperations.allowPrecisionLoss")
    assert define(view) == 1


def test_it_is_again_when_a_table_of_files_was_altered(spark, schema, define):
    spark.sql(f"CREATE NAMESPACE spark_catalog.{schema}")
    plain = f"spark_catalog.{schema}.plain"
    try:
        spark.sql(f"CREATE TABLE {plain} USING parquet AS SELECT 1 AS id")
        assert define(f"SELECT * FROM {plain}") == 1
        spark.sql(f"ALTER TABLE {plain} ADD COLUMNS (more STRING)")
        assert define(f"SELECT * FROM {plain}") == 1
        assert spark.table(f"lake.{schema}.v").columns == ["id", "more"]
    finally:
        spark.sql(f"DROP NAMESPACE spark_catalog.{schema} CASCADE")


def test_another_text_of_the_same_meaning_computes_nothing(engine, schema, orders):
    name = f"lake.{schema}.v"
    engine.create_materialized_view(name, f"SELECT id, sum(price) AS p FROM {orders} GROUP BY id")
    text = f"-- all of it\nselect o.id, SUM(o.price) as p\nfrom {orders} o group by 1"
    text = text.replace(" o ", " orders ").replace("o.", "orders.")
    assert engine.create_materialized_view(name, text).mode == "noop"
    assert engine.adapter_api.configuration(name) is not None
    changed = engine.create_materialized_view(name, text.replace("SUM", "MAX"))
    assert (changed.mode, changed.definition) == ("full", "shadow rebuild")
    assert changed.reason == "the definition changed: max(price) is not stored"
    assert engine.verify(name) == []
