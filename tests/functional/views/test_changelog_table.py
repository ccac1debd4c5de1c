"""`changelog: true`: every change of a view in a table beside it, once."""

from __future__ import annotations

from collections import Counter

import pytest

from dbt_streamsql import StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import metadata
from tests.support.steps import observing

pytestmark = pytest.mark.spark

GROUPED = "SELECT city, sum(amount) AS revenue FROM {orders} GROUP BY city"


@pytest.fixture
def shop(engine, schema):
    """The names of a base table and of a view with a changelog over it."""
    orders, view = f"lake.{schema}.orders", f"lake.{schema}.revenue"
    engine.spark.sql(f"CREATE TABLE {orders} (city STRING, amount INT)")
    engine.spark.sql(f"INSERT INTO {orders} VALUES ('Rome', 1), ('Oslo', 2), (NULL, 3)")
    define(engine, view, GROUPED.format(orders=orders))
    return orders, view


def define(engine, view, sql, **options):
    return engine.create_materialized_view(view, sql, **{"changelog": True, **options})


def insert(engine, orders, *rows):
    engine.spark.sql(f"INSERT INTO {orders} VALUES {', '.join(map(str, rows))}")
    return engine.advance().barrier


def log(engine, view, after=0):
    rows = engine.spark.sql(f"SELECT * FROM {view}__changelog WHERE _barrier > {after}").collect()
    return sorted(map(tuple, rows), key=lambda row: (row[-2], row[-1] != "-", *map(str, row)))


def added_up(engine, view):
    """The view as its changelog tells it."""
    rows: Counter[tuple[object, ...]] = Counter()
    for row in log(engine, view):
        rows[row[:-2]] += 1 if row[-1] == "+" else -1
    assert min(rows.values(), default=0) >= 0
    return +rows


def check(engine, view):
    """The changelog adds up to the view, and tells the same as the view's own versions."""
    assert added_up(engine, view) == Counter(
        tuple(row) for row in engine.sql(f"SELECT * FROM {view}").collect()
    )
    first = log(engine, view)[0][-2]
    assert log(engine, view, first) == sorted(
        map(tuple, engine.changelog(view, first).collect()),
        key=lambda row: (row[-2], row[-1] != "-", *map(str, row)),
    )


def test_every_change_is_in_the_table_beside_the_view_once(engine, shop):
    orders, view = shop
    first = engine.advance().barrier
    assert log(engine, view) == [
        *((None, 3, first, "+"), ("Oslo", 2, first, "+"), ("Rome", 1, first, "+"))
    ]
    second = insert(engine, orders, ("Rome", 5), ("Bonn", 1))
    assert log(engine, view, first) == [
        *(("Rome", 1, second, "-"), ("Bonn", 1, second, "+"), ("Rome", 6, second, "+"))
    ]
    engine.advance()
    engine.spark.sql(f"DELETE FROM {orders} WHERE city IS NULL")
    third = engine.advance().barrier
    assert log(engine, view, second) == [(None, 3, third, "-")]
    check(engine, view)
    assert engine.sweep() == 0


def test_it_is_one_barrier_with_the_view(engine, shop):
    orders, view = shop
    first = engine.advance().barrier
    query = f"SELECT max(_barrier) FROM {view}__changelog"
    engine.begin()
    engine.spark.sql(f"INSERT INTO {orders} VALUES ('Rome', 5)")
    define(engine, view, GROUPED.format(orders=orders))
    engine.epochs.opened.touch(orders)
    engine.abort()
    engine.begin()
    engine.advance()
    staged = engine.spark.sql(engine.adapter_api.rewrite(query)).collect()[0][0]
    assert staged > first
    assert engine.sql(query).collect() == engine.spark.sql(query).collect() == [(first,)]
    engine.publish()
    assert engine.sql(query).collect() == engine.spark.sql(query).collect() == [(staged,)]
    assert engine.sql(query, barrier=first).collect() == [(first,)]
    check(engine, view)


def test_a_run_that_is_given_up_leaves_nothing_in_it(engine, shop):
    orders, view = shop
    before = log(engine, view)
    for step in ("table.processed", "barrier.precommit"):
        engine.spark.sql(f"INSERT INTO {orders} VALUES ('Rome', 5)")

        def fail(passed, moment, at=step):
            if (passed, moment) == (at, "before"):
                raise RuntimeError(at)

        with observing(fail), pytest.raises(RuntimeError):
            engine.advance()
        engine.abort()
        assert log(engine, view) == before
    engine.sweep()
    found = metadata.load(engine.spark, TableName.parse(f"{view}__changelog"))
    assert set(found.refs) == {"main"}
    engine.advance()
    check(engine, view)


@pytest.mark.parametrize("mode", ["auto", "full"])
def test_a_full_refresh_adds_only_what_is_different(engine, shop, mode):
    orders, view = shop
    first = engine.advance().barrier
    engine.spark.sql(f"INSERT INTO {orders} VALUES ('Oslo', 5)")
    sql = GROUPED.format(orders=orders)
    report = define(engine, view, sql, full_refresh=True, refresh_mode=mode)
    assert report.mode == "full"
    last = report.barrier
    assert log(engine, view, first) == [("Oslo", 2, last, "-"), ("Oslo", 7, last, "+")]
    check(engine, view)


def test_a_view_with_other_columns_begins_a_new_changelog(engine, shop):
    orders, view = shop
    more = f"SELECT city, sum(amount) AS revenue, count(*) AS n FROM {orders} GROUP BY city"
    last = define(engine, view, more).barrier
    assert {row[-2:] for row in log(engine, view)} == {(last, "+")}
    check(engine, view)
    # With another hidden column it is a new table, and the same changelog.
    define(engine, view, more.replace("count(*)", "count(amount)"))
    assert log(engine, view, last) == []
    insert(engine, orders, ("Rome", 7))
    define(engine, view, more.replace("count(*)", "count(DISTINCT amount)"))
    assert len({row[-2] for row in log(engine, view)}) == 2
    insert(engine, orders, ("Rome", 7))
    check(engine, view)


def test_it_comes_and_goes_with_the_config(engine, shop):
    orders, view = shop
    sql = GROUPED.format(orders=orders)
    define(engine, view, sql, changelog=False)
    assert not engine.spark.catalog.tableExists(f"{view}__changelog")
    insert(engine, orders, ("Rome", 5))
    define(engine, view, sql)
    last = engine.advance().barrier
    assert {row[-2:] for row in log(engine, view)} == {(last, "+")}
    insert(engine, orders, ("Rome", 5))
    check(engine, view)
    assert engine.adapter_api.configuration(view)["changelog"] is True


def test_it_is_dropped_with_the_view(engine, shop):
    orders, view = shop
    engine.drop(view)
    assert not engine.spark.catalog.tableExists(f"{view}__changelog")
    define(engine, view, GROUPED.format(orders=orders))
    check(engine, view)
    engine.begin()
    engine.drop(view)
    define(engine, view, GROUPED.format(orders=orders))
    engine.publish()
    check(engine, view)


def test_it_is_built_anew_when_somebody_dropped_it(engine, shop):
    orders, view = shop
    engine.spark.sql(f"DROP TABLE {view}__changelog")
    insert(engine, orders, ("Rome", 5))
    check(engine, view)
    engine.spark.sql(f"DROP TABLE {view}")
    engine.advance()
    check(engine, view)


def test_old_rows_may_be_deleted(engine, shop):
    orders, view = shop
    first = engine.advance().barrier
    insert(engine, orders, ("Rome", 5))
    engine.spark.sql(f"DELETE FROM {view}__changelog WHERE _barrier <= {first}")
    last = insert(engine, orders, ("Rome", 5))
    assert {row[-2] for row in log(engine, view)} == {last - 1, last}


def test_a_name_that_is_taken_is_refused(engine, shop):
    orders, view = shop
    with pytest.raises(StreamSqlError) as caught:
        engine.create_materialized_view(f"{view}__changelog", f"SELECT * FROM {orders}")
    assert caught.value.code == "DUPLICATE_WRITER"
    other = view.replace("revenue", "other")
    engine.spark.sql(f"CREATE TABLE {other}__changelog (id INT)")
    with pytest.raises(StreamSqlError) as caught:
        define(engine, other, f"SELECT * FROM {orders}")
    assert caught.value.code == "TABLE_EXISTS"
    assert not engine.queries.knows(other)
    with pytest.raises(StreamSqlError) as caught:
        define(engine, view.replace("revenue", "odd"), f"SELECT 1 AS _barrier FROM {orders}")
    assert caught.value.code == "RESERVED_NAME"
    third = view.replace("revenue", "third")
    engine.create_materialized_view(f"{third}__changelog", f"SELECT * FROM {orders}")
    with pytest.raises(StreamSqlError) as caught:
        define(engine, third, f"SELECT * FROM {orders}")
    assert caught.value.code == "DUPLICATE_WRITER"


def test_a_view_over_a_changelog_runs_after_the_view_in_the_same_barrier(engine, shop):
    orders, view = shop
    over = view.replace("revenue", "a_count")
    sql = f"SELECT _op, count(*) AS n FROM {view}__changelog GROUP BY _op"
    engine.create_materialized_view(over, sql, refresh_mode="incremental_strict")
    for _ in range(2):
        engine.spark.sql(f"INSERT INTO {orders} VALUES ('Rome', 5)")
        report = engine.advance()
        assert report.tables[over].mode == "incremental"
        expected = Counter(row[-1] for row in log(engine, view))
        assert dict(map(tuple, engine.sql(f"SELECT * FROM {over}").collect())) == expected
    assert engine.verify(over) == []
    with pytest.raises(StreamSqlError) as caught:
        define(engine, view, f"SELECT city FROM {view}__changelog")
    assert caught.value.code == "CYCLE"
    engine.drop(over)


def test_a_changelog_can_be_asked_for_in_sql(engine, shop):
    orders, view = shop
    first = engine.advance().barrier
    last = insert(engine, orders, ("Rome", 5))
    text = (
        f"SELECT c.city, c.revenue, _op FROM streamsql_changelog('{view}', {first}, {last}, "
        f"'upsert') c JOIN {view} USING (city) WHERE _op <> '-'"
    )
    for rows in (engine.sql(text), engine.spark.sql(engine.adapter_api.rewrite(text))):
        assert [tuple(row) for row in rows.collect()] == [("Rome", 6, "*")]
    both = f"SELECT * FROM streamsql_changelog('{view}', {first}) EXCEPT ALL SELECT * FROM {view}__changelog"
    assert engine.sql(both).collect() == []
    for wrong, code in (
        (f"SELECT *\nFROM streamsql_changelog('{view}', {last + 1})", "CHANGELOG_UNAVAILABLE"),
        (f"SELECT *\nFROM streamsql_changelog('{orders}', 1)", "DEFINITION_MISSING"),
        (f"SELECT *\nFROM streamsql_changelog('{view}', 1 + 1)", "FUNCTION_INVALID"),
    ):
        with pytest.raises(StreamSqlError) as caught:
            engine.sql(wrong)
        assert caught.value.code == code
        assert (caught.value.place.line, caught.value.place.column) == (2, 6)
    with pytest.raises(StreamSqlError) as caught:
        engine.create_materialized_view(view.replace("revenue", "no"), text)
    assert caught.value.code == "FUNCTION_INVALID"


def test_what_a_reader_held_of_a_changelog_is_given_back_with_it(engine, shop):
    orders, view = shop
    engine.advance()
    with engine.reader() as reader:
        before = reader.sql(f"SELECT count(*) FROM {view}__changelog").first()
        insert(engine, orders, ("Rome", 5))
        insert(engine, orders, ("Rome", 6))
        engine.sweep()
        assert pinned(engine, view)
        assert reader.sql(f"SELECT count(*) FROM {view}__changelog").first() == before
    engine.sweep()
    assert pinned(engine, view) == []


def pinned(engine, view):
    found = metadata.load(engine.spark, TableName.parse(f"{view}__changelog"))
    return [ref for ref in found.refs if ref != "main"]
