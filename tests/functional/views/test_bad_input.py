"""What cannot work is refused with a stable code and a reason, and leaves no trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.iceberg import staging

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(spark, schema):
    """The name of a small base table."""
    name = f"lake.{schema}.orders"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, city STRING, amount INT)")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a', 10), (2, 'b', 20)")
    return name


@pytest.fixture
def refused(spark, engine, schema, warehouse):
    """Define a view that must be refused; the error, after a look that nothing was left."""

    def define(name, sql, **config):
        before = _everything(spark, engine, warehouse)
        with pytest.raises(StreamSqlError) as caught:
            engine.create_materialized_view(f"lake.{schema}.{name}", sql, **config)
        assert not engine.epochs.is_open
        assert _everything(spark, engine, warehouse) == before
        return caught.value

    return define


def _everything(spark, engine, warehouse):
    """All that a refused definition might have made or changed."""
    schemas = [row[0] for row in spark.sql("SHOW NAMESPACES IN lake").collect()]
    names = []
    for schema in schemas:
        for kind in ("TABLES", "VIEWS"):
            names += [(kind, *row) for row in spark.sql(f"SHOW {kind} IN lake.{schema}").collect()]
    store = engine.store
    return (
        set(names),
        staging.staged_tables(spark, "lake"),
        store.jobs(),
        store.latest_all(),
        store.last_committed(),
        store.unfinished(),
        store.fence().owner,
        {file for file in Path(warehouse).rglob("*") if file.suffix in (".parquet", ".json")},
    )


def test_a_missing_table_is_named(refused, schema):
    error = refused("v", f"SELECT * FROM lake.{schema}.nowhere")
    assert error.code == "TABLE_MISSING"
    assert f"lake.{schema}.nowhere" in error.message
    assert refused("v", "SELECT * FROM lake.no_such_schema.t").code == "TABLE_MISSING"


def test_a_view_may_not_read_itself(engine, refused, orders, schema):
    engine.create_materialized_view(f"lake.{schema}.a", f"SELECT id, city FROM {orders}")
    error = refused("a", f"SELECT id, city FROM lake.{schema}.a")
    assert error.code == "CYCLE"
    assert f"lake.{schema}.a" in error.message


def test_views_may_not_read_each_other(engine, refused, orders, schema):
    one, two, three = (f"lake.{schema}.{name}" for name in ("one", "two", "three"))
    engine.create_materialized_view(one, f"SELECT id, city FROM {orders}")
    engine.create_materialized_view(two, f"SELECT id, city FROM {one}")
    engine.create_materialized_view(three, f"SELECT id, city FROM {two}")
    error = refused("one", f"SELECT id, city FROM {three}")
    assert error.code == "CYCLE"
    for name in (one, two, three):
        assert name in error.given
    assert engine.verify(one) == []


def test_two_models_may_not_write_one_table(engine, refused, orders, schema):
    query = f"SELECT city FROM {orders}"
    engine.create_materialized_view(f"lake.{schema}.v", query, unique_id="model.shop.first")
    error = refused("v", query, unique_id="model.shop.second")
    assert error.code == "DUPLICATE_WRITER"
    assert "model.shop.first" in error.given
    assert "model.shop.second" in error.given


def test_unknown_settings_are_listed_with_what_is_allowed(refused, orders):
    error = refused("v", f"SELECT id FROM {orders}", refresh="auto", time_to_live=3)
    assert error.code == "CONFIG_INVALID"
    assert error.given == "refresh, time_to_live"
    assert "refresh_mode" in error.allowed
    error = refused("v", f"SELECT id FROM {orders}", refresh_mode="sometimes")
    assert error.code == "CONFIG_INVALID"
    assert "'sometimes'" in error.given
    assert "incremental_strict" in error.allowed


@pytest.mark.parametrize(
    "name",
    [
        "it's",
        'say"so',
        "`a``b`",
        "a`b",
        "v" * 300,
        "../up",
        "`..`",
        "a/b",
        "a;b",
        "a\nb",
        "`a\x00b`",
        "ä",
        " ",
    ],
    ids=lambda name: repr(name[:8]),
)
def test_a_name_that_cannot_be_stored_is_refused(refused, orders, name):
    error = refused(name, f"SELECT id FROM {orders}")
    assert error.code == "IDENTIFIER_INVALID"
    assert error.given
    assert error.allowed


@pytest.mark.parametrize("name", ["", "orders", "a.b.c.d", "lake..v", "lake.s."])
def test_a_name_has_its_parts(engine, orders, name):
    with pytest.raises(StreamSqlError, match="IDENTIFIER_INVALID"):
        engine.create_materialized_view(name, f"SELECT id FROM {orders}")


@pytest.mark.parametrize("kind", ["a table", "an empty table", "a view"])
def test_what_is_not_a_view_of_this_warehouse_is_left_alone(spark, refused, orders, schema, kind):
    name = f"lake.{schema}.mine"
    query = f"SELECT id FROM {orders}"
    spark.sql(
        {
            "a table": f"CREATE TABLE {name} AS {query}",
            "an empty table": f"CREATE TABLE {name} (id BIGINT)",
            "a view": f"CREATE VIEW {name} AS {query}",
        }[kind]
    )
    error = refused("mine", f"SELECT id + 1 AS id FROM {orders}")
    assert error.code == "NOT_A_VIEW"
    assert name in error.message
    found = sorted(row[0] for row in spark.table(name).collect())
    assert found == ([] if kind == "an empty table" else [1, 2])


@pytest.mark.parametrize(
    "column", ["_streamsql_w", "_STREAMSQL_W", "__streamsql_n", "__STREAMSQL_x"]
)
def test_reserved_columns_are_refused(refused, orders, column):
    error = refused("v", f"SELECT id AS {column} FROM {orders}")
    assert error.code == "RESERVED_NAME"
    assert column in error.message


@pytest.mark.parametrize(
    ("query", "code", "says"),
    [
        ("SELECT id FROM {t} WHERE id >", "SQL_UNSUPPORTED", ""),
        ("SELECT count(* FROM {t}", "SQL_UNSUPPORTED", ""),
        ("SELECT id FROM {t}.", "SQL_UNSUPPORTED", ""),
        ("SELECT 'id FROM {t}", "SQL_UNSUPPORTED", ""),
        ("", "SQL_UNSUPPORTED", "one SELECT"),
        ("SELECT id FROM {t}; SELECT id FROM {t}", "SQL_UNSUPPORTED", "one SELECT"),
        ("DROP TABLE {t}", "SQL_UNSUPPORTED", "one SELECT"),
        ("INSERT INTO {t} VALUES (3, 'c', 1)", "SQL_UNSUPPORTED", "one SELECT"),
        ("SELECT colour FROM {t}", "SQL_INVALID", "colour"),
        ("SELECT city, amount FROM {t} GROUP BY city", "SQL_INVALID", "amount"),
        ("SELECT no_such_function(id) FROM {t}", "SQL_INVALID", "no_such_function"),
        ("SELECT id, id FROM {t}", "SQL_INVALID", "id"),
        ("SELECT id, city AS ID FROM {t}", "SQL_INVALID", "ID"),
    ],
)
def test_a_query_that_spark_or_the_compiler_refuses_says_why(refused, orders, query, code, says):
    error = refused("v", query.format(t=orders))
    assert error.code == code
    assert says in str(error)


def test_what_only_a_full_refresh_can_do_is_refused_when_strict(refused, orders):
    error = refused(
        "v",
        f"SELECT id, uuid() AS n FROM {orders}",
        refresh_mode="incremental_strict",
    )
    assert error.code == "INCREMENTAL_IMPOSSIBLE"
    assert "its value changes from call to call" in error.message
    assert error.hint


def test_a_refused_definition_leaves_the_old_one_at_work(spark, engine, refused, orders, schema):
    view = f"lake.{schema}.v"
    engine.create_materialized_view(view, f"SELECT city, amount FROM {orders}")
    refused("v", f"SELECT city, colour FROM {orders}")
    refused("v", f"SELECT city FROM lake.{schema}.gone")
    spark.sql(f"INSERT INTO {orders} VALUES (3, 'c', 30)")
    assert engine.advance().tables[view].mode == "append"
    assert spark.table(view).count() == 3
    assert engine.verify(view) == []


def test_a_query_that_fails_while_it_runs_leaves_the_old_version(spark, engine, orders, schema):
    """No refusal but Spark's own error: the table stays, and the next good epoch goes on."""
    view, other = f"lake.{schema}.v", f"lake.{schema}.other"
    engine.create_materialized_view(view, f"SELECT id, 100 / amount AS share FROM {orders}")
    engine.create_materialized_view(other, f"SELECT city FROM {orders}")
    spark.sql(f"INSERT INTO {orders} VALUES (3, 'c', 0)")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        engine.advance()
    assert spark.table(view).count() == 2
    assert staging.staged_tables(spark, "lake") == []
    assert engine.store.unfinished() == []
    spark.sql(f"DELETE FROM {orders} WHERE amount = 0")
    spark.sql(f"INSERT INTO {orders} VALUES (4, 'd', 5)")
    engine.advance()
    assert engine.verify(view) == []
    assert engine.verify(other) == []


def test_views_that_do_not_exist_are_not_known(engine, orders, schema):
    for ask in (engine.verify, engine.drop, engine.explain):
        for name in ("nowhere", "orders"):
            with pytest.raises(StreamSqlError, match="DEFINITION_MISSING"):
                ask(f"lake.{schema}.{name}")


def test_dbt_shows_the_code_and_builds_the_other_models(project):
    view = "{{ config(materialized='materialized_view'%s) }} "
    project.write("seeds/orders.csv", "id,city\n1,a\n2,b\n")
    project.write("models/good.sql", view % "" + "select city from {{ ref('orders') }}")
    bad = {
        "missing": (view % "" + "select id from lake.shop.nowhere", "TABLE_MISSING"),
        "typo": (view % ", refresh_mod='auto'" + "select 1 as id", "CONFIG_INVALID"),
        "tick": (view % ", alias='a`b'" + "select 1 as id", "IDENTIFIER_INVALID"),
        "quote": (view % """, alias="it's" """ + "select 1 as id", "IDENTIFIER_INVALID"),
        "long": (view % f", alias='{'v' * 300}'" + "select 1 as id", "IDENTIFIER_INVALID"),
        "reserved": (
            view % "" + "select id as _streamsql_w from {{ ref('orders') }}",
            "RESERVED_NAME",
        ),
        "syntax": (view % "" + "select id from {{ ref('orders') }} where id >", "SQL_UNSUPPORTED"),
    }
    for name, (text, _) in bad.items():
        project.write(f"models/{name}.sql", text)
    done = project.dbt("build", "--vars", "publish: passed_subgraph")
    assert not done.ok
    for name, (_, code) in bad.items():
        assert done.statuses[name] == "error", name
        assert f"STREAMSQL.{code}" in done.messages[name], (name, done.messages[name])
    assert done.statuses["good"] == "success"
    assert project.tables() == {"orders", "good"}
    for name in bad:
        project.remove(f"models/{name}.sql")
    project.remove("models/good.sql")
    project.write("models/second.sql", view % ", alias='good'" + "select 1 as id")
    again = project.dbt("run")
    assert not again.ok
    assert "STREAMSQL.DUPLICATE_WRITER" in again.messages["second"]
    assert project.sql("SELECT city FROM lake.shop.good ORDER BY city") == [("a",), ("b",)]


def test_a_reason_in_the_text_of_a_view_that_is_read_names_that_view(engine, spark, schema):
    spark.sql(f"CREATE TABLE lake.{schema}.t (k INT, v INT)")
    spark.sql(f"CREATE VIEW lake.{schema}.inner AS SELECT k,\n  rand() AS r FROM lake.{schema}.t")
    text = f"SELECT k, r FROM lake.{schema}.inner"
    with pytest.raises(StreamSqlError) as refused:
        engine.create_materialized_view(
            f"lake.{schema}.v", text, refresh_mode="incremental_strict"
        )
    assert f"rand() (line 2, column 3 of view lake.{schema}.inner)" in refused.value.message
    # The place of the error is in the text that was given: there is none.
    assert (refused.value.place.model, refused.value.place.line) == (f"lake.{schema}.v", 0)
