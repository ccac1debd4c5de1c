"""Queries of the pages on a real Spark: rows of one barrier, few of them, and of visible tables."""

from __future__ import annotations

import threading

import pytest

from dbt_streamsql.engine.reads import limited_queries
from dbt_streamsql.engine.reads.limited_queries import CELL, COLUMNS, ROWS, LimitedQueries
from dbt_streamsql.errors import StreamSqlError

pytestmark = pytest.mark.spark


@pytest.fixture
def at(engine, spark, schema) -> str:
    """A table of five rows and a view of it; at the second barrier there are six."""
    name = f"lake.{schema}"
    spark.sql(f"CREATE TABLE {name}.orders AS SELECT id, id % 2 AS k FROM range(5)")
    engine.create_materialized_view(
        f"{name}.counted", f"SELECT k, count(*) AS n FROM {name}.orders GROUP BY k"
    )
    spark.sql(f"INSERT INTO {name}.orders VALUES (5, 0)")
    engine.advance()
    # No barrier has these rows.
    spark.sql(f"INSERT INTO {name}.orders VALUES (6, 0)")
    spark.sql(f"CREATE TABLE {name}.unread (id INT)")
    return name


@pytest.fixture
def queries(engine) -> LimitedQueries:
    return LimitedQueries(engine.store, lambda: engine, "lake")


def everything(_: str) -> bool:
    return True


def refusal(queries: LimitedQueries, sql: str, barrier: int | None = None, sees=everything) -> str:
    with pytest.raises(StreamSqlError) as raised:
        queries.ask(sql, barrier, sees)
    return raised.value.code


def test_rows_are_those_of_one_published_barrier(engine, queries, at):
    last = engine.store.last_committed()
    sql = (
        f"WITH c AS (SELECT sum(n) AS n FROM {at}.counted) "
        f"SELECT c.n, (SELECT count(*) FROM {at}.orders) AS rows FROM c"
    )
    newest = queries.ask(sql, None, everything)
    assert (newest.barrier, newest.rows) == (last, (("6", "6"),))
    assert newest.columns == (("n", "bigint"), ("rows", "bigint"))
    earlier = queries.ask(sql, last - 1, everything)
    assert (earlier.barrier, earlier.rows) == (last - 1, (("5", "5"),))
    assert refusal(queries, sql, last + 1) == "META_CONFLICT"
    assert engine.store.leases.live() == [], "what a query held is free again"


def test_a_table_that_no_barrier_has_or_that_is_hidden_is_refused(queries, at):
    assert refusal(queries, f"SELECT * FROM {at}.unread") == "TABLE_MISSING"
    hidden = f"{at}.orders"
    assert (
        refusal(queries, f"SELECT * FROM {hidden}", sees=lambda t: t != hidden) == "TABLE_MISSING"
    )
    seen = queries.ask(f"SELECT count(*) FROM {at}.counted", None, lambda t: t != hidden)
    assert seen.rows == (("2",),)


def test_what_reaches_out_is_refused_before_spark_hears_of_it(engine, at, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("of this test")

    def started():
        raise AssertionError("Spark was started")

    queries = LimitedQueries(engine.store, started, "lake")
    for sql in (
        f"SELECT * FROM text.`{secret}`",
        f"WITH a AS (SELECT * FROM `{secret}`), `{secret}` AS (SELECT 1) SELECT * FROM a",
        "SELECT java_method('java.lang.System', 'getProperty', 'user.home')",
        f"SELECT input_file_name() FROM {at}.orders",
        f"SELECT _file FROM {at}.orders",
        f"SELECT * FROM {at}.orders.files",
        f"DROP TABLE {at}.orders",
    ):
        assert refusal(queries, sql) in ("SQL_UNSUPPORTED", "TABLE_MISSING", "FUNCTION_INVALID")


def test_rows_columns_and_values_are_cut(queries, at):
    many = queries.ask("SELECT id FROM range(100000)", None, everything)
    assert (len(many.rows), many.more, many.barrier) == (ROWS, True, 0)
    just = queries.ask(f"SELECT id FROM range({ROWS})", None, everything)
    assert (len(just.rows), just.more) == (ROWS, False)
    long = queries.ask(f"SELECT repeat('x', {CELL + 9}) AS long", None, everything)
    assert long.rows == (("x" * CELL,),)
    wide = ", ".join(f"{number} AS c{number}" for number in range(COLUMNS + 1))
    assert refusal(queries, f"SELECT {wide}") == "SQL_UNSUPPORTED"


def test_values_of_every_type_are_texts(queries, at):
    sql = (
        "SELECT 1 AS a, CAST(NULL AS int) AS b, X'1F' AS c, map('k', array(1)) AS d, "
        "interval '1' month AS e, date '0001-01-01' AS f, 1.50BD AS g, 1 AS a"
    )
    answer = queries.ask(sql, None, everything)
    first = ("1", None, "1F", "{k -> [1]}", "INTERVAL '1' MONTH", "0001-01-01", "1.50", "1")
    assert answer.rows == (first,)


def test_a_long_query_is_stopped_and_another_one_waits_for_its_turn(engine, queries, at):
    slow = LimitedQueries(engine.store, lambda: engine, "lake", seconds=2)
    long = "SELECT sum(a.id * b.id) FROM range(10000000) a CROSS JOIN range(10000000) b"
    ended: list[str] = []
    begun = threading.Event()

    def sees(_: str) -> bool:
        begun.set()
        return True

    thread = threading.Thread(target=lambda: ended.append(refusal(slow, long, sees=sees)))
    thread.start()
    assert begun.wait(60)
    assert refusal(slow, "SELECT 1") == "WAREHOUSE_BUSY"
    thread.join()
    assert ended == ["QUERY_TIMEOUT"]
    assert refusal(slow, "DROP TABLE t") == "SQL_UNSUPPORTED", "it is its turn now"
    assert queries.ask("SELECT 1", None, everything).rows == (("1",),)


def test_errors_of_spark_are_about_the_query_alone(queries, at, monkeypatch):
    for sql in (f"SELECT nowhere FROM {at}.orders", "SELECT 1 / 0", "SELECT CAST('x' AS int)"):
        with pytest.raises(StreamSqlError) as raised:
            queries.ask(sql, None, everything)
        assert raised.value.code == "SQL_INVALID"
        assert "\n" not in raised.value.message
    monkeypatch.setattr(limited_queries, "_OF_THE_QUERY", ())
    with pytest.raises(StreamSqlError) as raised:
        queries.ask("SELECT 1 / 0", None, everything)
    assert raised.value.message == "the query failed in Spark"
