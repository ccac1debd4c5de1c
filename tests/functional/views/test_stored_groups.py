"""Groups that the process knows as they are stored: Spark combines them with a change, and reads no
table; exact sums are added up without Spark."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

VIEWS = {
    "sums and means": "SELECT k, sum(d) AS total, avg(d) AS mean, count(*) AS n, sum(i) AS whole "
    "FROM {t} GROUP BY k",
    "of all rows": "SELECT sum(d) AS total, avg(i) AS mean, count(s) AS texts FROM {t}",
    "sums": "SELECT k, s, sum(d) AS total, sum(d * d) AS squares, sum(i) AS whole, count(*) AS n "
    "FROM {t} GROUP BY k, s",
    "one sum": "SELECT sum(d * i) AS total, sum(d) AS of_d FROM {t}",
    "extremes": "SELECT k, s, max(d) AS most, min(at) AS first, min(s) AS least FROM {t} "
    "GROUP BY k, s",
    "conditions": "SELECT k, sum(d) FILTER (WHERE i > 2) AS some, count(*) AS n FROM {t} "
    "GROUP BY k HAVING count(*) > 1",
    "doubles": "SELECT k, max(f) AS most, min(f) AS least, count(f) AS n FROM {t} GROUP BY k",
    "first rows": "SELECT k, d, s FROM {t} ORDER BY d DESC, k, s LIMIT 5",
}


def rows(draw: random.Random, count: int) -> str:
    def one() -> str:
        decimal = draw.choice(("NULL", f"{draw.randrange(-999, 999) / 100}BD"))
        text = draw.choice(("NULL", "'a'", "'B'", "''"))
        double = draw.choice(("NULL", "0.0D", "-0.0D", "double('NaN')", "1.5D"))
        day = draw.choice(("NULL", f"TIMESTAMP'2026-01-0{draw.randrange(1, 9)} 10:00:00'"))
        key = draw.choice(("NULL", "1", "2", "3"))
        return f"({key}, {decimal}, {draw.randrange(5)}, {text}, {double}, {day})"

    return ", ".join(one() for _ in range(count))


@pytest.fixture
def table(engine, schema):
    name = f"lake.{schema}.t"
    columns = "k INT, d DECIMAL(12, 2), i BIGINT, s STRING, f DOUBLE, at TIMESTAMP"
    engine.spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg")
    return name


@pytest.mark.parametrize("seed", [1, 2])
def test_every_view_equals_its_query_after_every_change(engine, schema, table, tune, seed):
    """Each change is applied by folding: no view is compared with its query instead."""
    tune(engine, compared_rows=-1)
    draw, spark = random.Random(seed), engine.spark
    spark.sql(f"INSERT INTO {table} VALUES {rows(draw, 30)}")
    views = {f"lake.{schema}.v{number}": what for number, what in enumerate(VIEWS)}
    summed = next(view for view, what in views.items() if what == "sums")
    queries = {view: VIEWS[what].format(t=table) for view, what in views.items()}
    reader = f"lake.{schema}.reader"
    views[reader] = "sums of sums"
    queries[reader] = f"SELECT k, sum(total) AS total, sum(squares) AS s FROM {summed} GROUP BY k"
    for view, sql in queries.items():
        engine.create_materialized_view(view, sql, refresh_mode="incremental_strict")
    for statement in (
        f"INSERT INTO {table} VALUES {rows(draw, 6)}",
        f"DELETE FROM {table} WHERE k = 2 OR i = 3",
        f"UPDATE {table} SET d = d + 1.05BD, k = coalesce(k, 9) WHERE i < 2",
        f"DELETE FROM {table}",
        f"INSERT INTO {table} VALUES {rows(draw, 8)}",
    ):
        spark.sql(statement)
        reports = engine.advance().tables
        for view, what in views.items():
            # What the process knows of a view is right: otherwise the change would not fit, and
            # the refresh be repeated in full.
            assert reports[view].mode != "full", (what, statement, reports[view].reason)
            assert engine.verify(view) == [], (what, statement)


@pytest.mark.parametrize(
    ("what", "jobs"),
    [
        ("sums and means", 2),
        ("sums", 1),
        ("one sum", 1),
    ],
)
def test_an_epoch_of_known_groups_takes_one_job_for_the_change(
    engine, schema, table, tune, what, jobs
):
    """And one for new values that are more than sums."""
    tune(engine, compared_rows=-1)
    engine.spark.sql(f"INSERT INTO {table} VALUES {rows(random.Random(3), 30)}")
    view = f"lake.{schema}.v"
    engine.create_materialized_view(view, VIEWS[what].format(t=table))
    for _ in range(2):
        engine.spark.sql(f"INSERT INTO {table} VALUES (1, 2.50BD, 1, 'a', 0.0D, NULL)")
        report = engine.advance().tables[view]
    assert report.mode == "incremental"
    assert report.jobs == jobs
    assert engine.verify(view) == []


def test_a_sum_of_too_many_digits_fails_and_changes_nothing(engine, schema, table, tune):
    tune(engine, compared_rows=-1)
    large = f"{'9' * 36}.99BD"
    wide, view = f"lake.{schema}.wide", f"lake.{schema}.v"
    engine.spark.sql(f"CREATE TABLE {wide} AS SELECT 1 AS k, {large} AS d")
    engine.create_materialized_view(view, f"SELECT k, sum(d) AS total FROM {wide} GROUP BY k")
    engine.spark.sql(f"INSERT INTO {wide} VALUES (1, 0.02BD)")
    with pytest.raises(Exception, match=r"OVERFLOW|OUT_OF_RANGE"):
        engine.advance()
    assert engine.spark.table(view).first().total == Decimal(large[:-2])
    engine.spark.sql(f"DELETE FROM {wide} WHERE d = 0.02BD")
    engine.advance()
    assert engine.verify(view) == []
