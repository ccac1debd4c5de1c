"""The changes of a view between two barriers: what is told, and what is refused."""

from __future__ import annotations

import pytest

from dbt_streamsql import StreamSqlError

pytestmark = pytest.mark.spark


@pytest.fixture
def view(engine, schema):
    """A grouped view with two barriers."""
    orders, name = f"lake.{schema}.orders", f"lake.{schema}.revenue"
    engine.spark.sql(f"CREATE TABLE {orders} (city STRING, amount INT)")
    engine.spark.sql(f"INSERT INTO {orders} VALUES ('Rome', 1), ('Oslo', 2), (NULL, 3)")
    engine.create_materialized_view(name, query_of(name))
    engine.spark.sql(f"INSERT INTO {orders} VALUES ('Rome', 10), (NULL, 1)")
    engine.advance()
    return name


def query_of(name, columns="city, sum(amount) AS revenue"):
    return f"SELECT {columns} FROM {name.replace('revenue', 'orders')} GROUP BY city"


def change(engine, name, statement):
    engine.spark.sql(statement.format(orders=name.replace("revenue", "orders")))
    return engine.advance().barrier


def told(frame):
    rows = [tuple(row) for row in frame.collect()]
    return sorted(rows, key=lambda row: (row[-2], row[-1] != "-", *map(str, row)))


def refused(call, *arguments):
    with pytest.raises(StreamSqlError) as caught:
        call(*arguments)
    return caught.value


def test_columns_are_those_of_the_view_then_barrier_and_operation(engine, view):
    last = engine.advance().barrier
    changes = engine.changelog(view, last - 1)
    assert changes.columns == ["city", "revenue", "_barrier", "_op"]
    assert told(changes) == [
        *((None, 3, last, "-"), ("Rome", 1, last, "-")),
        *((None, 4, last, "+"), ("Rome", 11, last, "+")),
    ]
    assert told(engine.changelog(view, last - 1, mode="upsert")) == [
        *((None, 4, last, "*"), ("Rome", 11, last, "*"))
    ]
    assert engine.changelog(view, last).collect() == []


def test_barrier_zero_is_before_the_view_was_built(engine, view):
    rows = [tuple(row) for row in engine.sql(f"SELECT * FROM {view}").collect()]
    changes = engine.changelog(view, 0, mode="upsert").orderBy("_barrier").collect()
    assert dict(tuple(row)[:2] for row in changes) == dict(rows)


def test_equal_rows_are_told_one_by_one(engine, view):
    name = view.replace("revenue", "lines")
    orders = view.replace("revenue", "orders")
    engine.create_materialized_view(name, f"SELECT city FROM {orders} WHERE amount > 1")
    first = engine.advance().barrier
    last = change(
        engine, view, "INSERT INTO {orders} VALUES ('Rome', 2), ('Rome', 2), ('Rome', 2)"
    )
    assert told(engine.changelog(name, first)) == [("Rome", last, "+")] * 3
    last = change(engine, view, "DELETE FROM {orders} WHERE amount = 2 AND city = 'Rome'")
    assert told(engine.changelog(name, last - 1)) == [("Rome", last, "-")] * 3


def test_changes_of_the_same_view_stand_side_by_side_in_one_statement(engine, view):
    first = engine.advance().barrier
    second = change(engine, view, "INSERT INTO {orders} VALUES ('Bonn', 1)")
    third = change(engine, view, "INSERT INTO {orders} VALUES ('Lima', 2)")
    both = engine.changelog(view, first, second).union(engine.changelog(view, second, third))
    assert told(both) == [("Bonn", 1, second, "+"), ("Lima", 2, third, "+")]


def test_a_full_refresh_tells_only_what_is_different(engine, view):
    first = engine.advance().barrier
    engine.spark.sql(f"INSERT INTO {view.replace('revenue', 'orders')} VALUES ('Oslo', 5)")
    report = engine.create_materialized_view(view, query_of(view), full_refresh=True)
    assert report.mode == "full"
    assert told(engine.changelog(view, first)) == [
        *(("Oslo", 2, report.barrier, "-"), ("Oslo", 7, report.barrier, "+"))
    ]


def test_a_compaction_of_the_view_is_no_change(engine, view):
    first = engine.advance().barrier
    engine.spark.sql(
        "CALL lake.system.rewrite_data_files(table => :table, options => map('rewrite-all', 'true'))",
        args={"table": view.removeprefix("lake.")},
    ).collect()
    last = change(engine, view, "INSERT INTO {orders} VALUES ('Oslo', 5)")
    assert told(engine.changelog(view, first)) == [("Oslo", 2, last, "-"), ("Oslo", 7, last, "+")]


def test_columns_that_cannot_be_compared_are_told_as_well(engine, view):
    name = view.replace("revenue", "maps")
    orders = view.replace("revenue", "orders")
    engine.create_materialized_view(
        name, f"SELECT map(city, amount) AS m FROM {orders} WHERE city = 'Oslo'"
    )
    first = engine.advance().barrier
    change(engine, view, "UPDATE {orders} SET amount = 9 WHERE city = 'Oslo'")
    found = engine.changelog(name, first).orderBy("_op", ascending=False).collect()
    assert [(row["m"], row["_op"]) for row in found] == [({"Oslo": 2}, "-"), ({"Oslo": 9}, "+")]


def test_an_unknown_barrier_is_refused_with_those_that_are_known(engine, view):
    last = engine.advance().barrier
    for bounds in ((last, last + 1), (last + 1, None), (-1, last), (last, last - 1)):
        error = refused(engine.changelog, view, *bounds)
        assert error.code == "CHANGELOG_UNAVAILABLE"
        assert error.allowed == f"committed barriers from 0 to {last}"


def test_expired_versions_are_refused_with_the_oldest_that_is_left(engine, view):
    first = engine.advance().barrier
    second = change(engine, view, "INSERT INTO {orders} VALUES ('Oslo', 5)")
    engine.sweep()  # Until then the version that was replaced last has a tag.
    engine.spark.sql(
        "CALL lake.system.expire_snapshots(table => :table, older_than => now(), retain_last => 1)",
        args={"table": view.removeprefix("lake.")},
    ).collect()
    third = change(engine, view, "INSERT INTO {orders} VALUES ('Oslo', 5)")
    error = refused(engine.changelog, view, first)
    assert error.code == "CHANGELOG_UNAVAILABLE"
    assert f"barrier {first} is gone" in error.message
    assert error.allowed == f"committed barriers from {second} to {third}"
    assert told(engine.changelog(view, second)) == [
        *(("Oslo", 7, third, "-"), ("Oslo", 12, third, "+"))
    ]


def test_other_columns_and_dropped_views_are_as_far_as_one_can_go_back(engine, view):
    first = engine.advance().barrier
    more = query_of(view, "city, sum(amount) AS revenue, count(*) AS n")
    report = engine.create_materialized_view(view, more)
    error = refused(engine.changelog, view, first)
    assert "different columns" in error.message
    assert error.allowed == f"committed barriers from {report.barrier} to {report.barrier}"
    engine.drop(view)
    assert refused(engine.changelog, view, report.barrier).code == "DEFINITION_MISSING"
    anew = engine.create_materialized_view(view, more).barrier
    error = refused(engine.changelog, view, report.barrier)
    assert "dropped and recreated" in error.message
    assert error.allowed == f"committed barriers from {anew} to {anew}"


def test_an_upsert_stream_needs_a_visible_key(engine, view):
    orders = view.replace("revenue", "orders")
    queries = {
        "lines": f"SELECT * FROM {orders}",
        "counts": f"SELECT count(*) AS n FROM {orders} GROUP BY city",
    }
    for name, sql in queries.items():
        at = view.replace("revenue", name)
        engine.create_materialized_view(at, sql)
        error = refused(engine.changelog, at, 0, None, "upsert")
        assert error.code == "CHANGELOG_MODE"
        assert "retract" in error.hint
    assert "grouping columns" in error.hint


def test_one_row_without_groups_is_its_own_key(engine, view):
    name = view.replace("revenue", "total")
    orders = view.replace("revenue", "orders")
    engine.create_materialized_view(name, f"SELECT sum(amount) AS total FROM {orders}")
    first = engine.advance().barrier
    last = change(engine, view, "INSERT INTO {orders} VALUES ('Oslo', 3)")
    assert told(engine.changelog(name, first, mode="upsert")) == [(20, last, "*")]


def test_wrong_modes_names_and_columns_are_refused(engine, view):
    assert refused(engine.changelog, view, 0, None, "both").code == "CONFIG_INVALID"
    orders = view.replace("revenue", "orders")
    assert refused(engine.changelog, orders, 0).code == "DEFINITION_MISSING"
    name = view.replace("revenue", "odd")
    engine.create_materialized_view(name, f"SELECT city AS _OP FROM {orders}")
    assert refused(engine.changelog, name, 0).code == "RESERVED_NAME"
