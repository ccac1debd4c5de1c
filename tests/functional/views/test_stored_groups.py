"""Groups that the process knows as they are stored: Spark combines them with a change, and reads no
table."""

from __future__ import annotations

import random

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

VIEWS = {
    "sums and means": "SELECT k, sum(d) AS total, avg(d) AS mean, count(*) AS n, sum(i) AS whole "
    "FROM {t} GROUP BY k",
    "of all rows": "SELECT sum(d) AS total, avg(i) AS mean, count(s) AS texts FROM {t}",
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
    for view, what in views.items():
        sql = VIEWS[what].format(t=table)
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


def test_an_epoch_of_known_groups_takes_one_job_for_the_change(engine, schema, table, tune):
    tune(engine, compared_rows=-1)
    engine.spark.sql(f"INSERT INTO {table} VALUES {rows(random.Random(3), 30)}")
    view = f"lake.{schema}.v"
    engine.create_materialized_view(view, VIEWS["sums and means"].format(t=table))
    for _ in range(2):
        engine.spark.sql(f"INSERT INTO {table} VALUES (1, 2.50BD, 1, 'a', 0.0D, NULL)")
        report = engine.advance().tables[view]
    assert report.mode == "incremental"
    assert report.jobs <= 2, "one for the change, one for the new values"
    assert engine.verify(view) == []
