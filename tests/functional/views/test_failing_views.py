"""A view that fails holds back what reads it, and nothing else."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.java import is_connect
from tests.support.steps import observing

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(spark, engine, schema):
    """A table, a view over it, a reader of that, and another view; their names."""
    names = {name: f"lake.{schema}.{name}" for name in ("orders", "shares", "best", "cities")}
    spark.sql(f"CREATE TABLE {names['orders']} (id INT, city STRING, amount INT)")
    spark.sql(f"INSERT INTO {names['orders']} VALUES (1, 'a', 10), (2, 'b', 20), (2, 'b', 20)")
    queries = {
        "shares": "SELECT id, 100 / amount AS share FROM {orders}",
        "best": "SELECT max(share) AS share, count(*) AS n FROM {shares}",
        "cities": "SELECT city, count(*) AS n FROM {orders} GROUP BY city",
    }
    for view, query in queries.items():
        engine.create_materialized_view(names[view], query.format(**names))
    return names


def _failing(step):
    def fail(passed, moment):
        if (passed, moment) == (step, "after") and not seen:
            seen.append(passed)
            raise ValueError("it went wrong\nsomewhere")

    seen = []
    return observing(fail)


def test_what_fails_from_its_changes_is_computed_once_in_full(spark, engine, shop, caplog):
    shares, best = shop["shares"], shop["best"]
    spark.sql(f"INSERT INTO {shop['orders']} VALUES (3, 'c', 5)")
    # The change is written already, beside the rows: neither of it may be read.
    with _failing("changes.write"):
        told = engine.advance().tables
    assert told[shares].mode == "full"
    assert (
        told[shares].reason == "the refresh from its changes failed with ValueError: it went wrong"
    )
    assert f"retrying {shares} once in full" in caplog.text
    barrier = told[shares].barrier
    assert engine.store.change_files(shares, barrier - 1, barrier) == []
    assert [row.n for row in spark.table(best).collect()] == [4]
    for view in (shares, best, shop["cities"]):
        assert engine.verify(view) == []
    spark.sql(f"DELETE FROM {shop['orders']} WHERE id = 2")
    assert engine.advance().tables[shares].mode == "incremental"
    assert engine.verify(best) == []


def test_who_asked_for_changes_only_is_told_instead(spark, engine, shop):
    strict = f"{shop['shares']}_strict"
    query = f"SELECT id, city FROM {shop['orders']}"
    engine.create_materialized_view(strict, query, refresh_mode="incremental_strict")
    spark.sql(f"INSERT INTO {shop['orders']} VALUES (3, 'c', 5)")
    with _failing("branch.write"), pytest.raises(ValueError, match="it went wrong"):
        engine.advance([strict])
    assert spark.table(strict).count() == 3
    assert engine.advance().tables[strict].mode == "append"


def test_what_fails_in_full_as_well_stays_and_the_others_go_on(spark, engine, shop):
    shares, best, cities = shop["shares"], shop["best"], shop["cities"]
    at = engine.store.latest(shares).barrier
    spark.sql(f"INSERT INTO {shop['orders']} VALUES (3, 'c', 0)")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        engine.advance()
    assert spark.table(cities).count() == 3
    assert (spark.table(shares).count(), engine.store.latest(shares).barrier) == (3, at)
    assert [row.n for row in spark.table(best).collect()] == [3]
    for view in (shares, best, cities):
        assert engine.verify(view) == []
    spark.sql(f"INSERT INTO {shop['orders']} VALUES (4, 'd', 4)")
    report = engine.advance(keep_going=True)
    assert (list(report.failed), report.waiting) == ([shares], {best: shares})
    assert "DIVIDE_BY_ZERO" in str(report.failed[shares])
    assert report.tables[cities].mode != "full"
    spark.sql(f"DELETE FROM {shop['orders']} WHERE amount = 0")
    told = engine.advance().tables
    assert {told[view].mode for view in (shares, best)} <= {"append", "incremental"}
    for view in (shares, best, cities):
        assert engine.verify(view) == []


def test_two_views_that_share_an_input_that_fails_have_both_failed(spark, engine, shop):
    if is_connect(spark):
        pytest.skip("the files are on the machine of the test")
    orders = TableName.parse(shop["orders"])
    views = [f"{shop['shares']}_{n}" for n in range(2)]
    for n, view in enumerate(views):
        query = f"SELECT city, sum(amount) + {n} AS a FROM {orders} GROUP BY city"
        engine.create_materialized_view(view, query, refresh_mode="incremental_strict")
    spark.sql(f"INSERT INTO {orders} VALUES (3, 'c', 5)")
    newest = metadata.load(spark, orders).current
    for file in tables_of(spark).added_files(orders, newest):
        Path(file.removeprefix("file:")).unlink()
    report = engine.advance(views, keep_going=True)
    assert sorted(report.failed) == views
    assert report.waiting == {}


def test_the_error_of_a_query_is_told_when_a_library_enables_all_loggers(
    spark, engine, shop, monkeypatch
):
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        monkeypatch.setattr(logging.getLogger(name), "disabled", False)
    spark.sql(f"INSERT INTO {shop['orders']} VALUES (3, 'c', 0)")
    failed = engine.advance(keep_going=True).failed
    assert "DIVIDE_BY_ZERO" in str(failed[shop["shares"]])
