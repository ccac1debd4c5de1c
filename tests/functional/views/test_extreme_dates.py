"""Dates and times that Python does not know are kept, looked up, compared and shown."""

from __future__ import annotations

import pytest

from dbt_streamsql.storage.columns import collected

pytestmark = pytest.mark.spark

YEARS = ("0001-01-01", "0000-01-01", "-0044-03-15", "+10000-01-01", "9999-12-31", "0999-02-28")
ENDS = (
    "date_from_unix_date(2147483647), timestamp_micros(9223372036854775807)",
    "date_from_unix_date(-2147483648), timestamp_micros(-9223372036854775808)",
)
VIEWS = {
    "rows": "SELECT id, d, t, n, s FROM {t}",
    "days": "SELECT d, count(*) AS c, min(t) AS low, max(n) AS high FROM {t} GROUP BY d",
    "times": "SELECT t, n, sum(id) AS total FROM {t} GROUP BY t, n",
    "inside": "SELECT s, count(DISTINCT d) AS c FROM {t} GROUP BY s",
    "once": "SELECT DISTINCT d, t FROM {t}",
    "joined": "SELECT a.id, b.id AS other, b.t FROM {t} a LEFT JOIN {t} b ON a.d = b.d",
    "ranked": "SELECT id, lag(t) OVER (PARTITION BY d ORDER BY id) AS before FROM {t}",
    "last": "SELECT id, d, t FROM {t} ORDER BY d DESC, id LIMIT 3",
    "since": "SELECT id, d FROM {t} WHERE d < DATE'0001-01-02' AND t <= TIMESTAMP'+10000-01-02'",
}


def _row(identifier, year):
    at = f"TIMESTAMP'{year} 00:00:00'"
    return f"({identifier}, DATE'{year}', {at}, TIMESTAMP_NTZ'{year} 23:59:59', struct({at} AS x))"


@pytest.fixture
def table(engine, schema):
    name = f"lake.{schema}.t"
    columns = "id INT, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, s STRUCT<x: TIMESTAMP>"
    engine.spark.sql(f"CREATE TABLE {name} ({columns})")
    engine.spark.sql(f"INSERT INTO {name} VALUES {_row(1, '2026-01-01')}, {_row(2, YEARS[0])}")
    return name


@pytest.mark.parametrize("small_table", [None, -1], ids=["written anew", "rows are looked up"])
def test_every_view_equals_its_query_after_every_change(engine, schema, table, tune, small_table):
    spark = engine.spark
    if small_table is not None:
        tune(engine, small_table=small_table)
    views = {f"lake.{schema}.{name}": text.format(t=table) for name, text in VIEWS.items()}
    for name, query in views.items():
        engine.create_materialized_view(name, query, refresh_mode="incremental_strict")
    every = ", ".join(_row(10 + number, year) for number, year in enumerate(YEARS))
    ends = " UNION ALL ".join(
        f"SELECT {20 + number} AS id, d, t, to_timestamp_ntz(t), NULL FROM VALUES ({end}) AS v(d, t)"
        for number, end in enumerate(ENDS)
    )
    for change in (
        f"INSERT INTO {table} VALUES {every}",
        f"INSERT INTO {table} {ends}",
        f"UPDATE {table} SET id = id + 1 WHERE d < DATE'0001-01-02'",
        f"UPDATE {table} SET d = DATE'+10000-01-01', t = TIMESTAMP'0000-01-01' WHERE id < 12",
        f"DELETE FROM {table} WHERE d > DATE'9999-12-31'",
    ):
        spark.sql(change)
        told = engine.advance().tables
        for name in views:
            assert told[name].mode != "full", (change, name, told[name].reason)
            assert engine.verify(name) == [], (change, name)


def test_a_row_is_shown_with_the_text_of_what_python_does_not_know(engine, schema, table):
    view = f"lake.{schema}.v"
    query = f"SELECT d, t, s, id FROM {table}"
    engine.spark.sql(f"INSERT INTO {table} VALUES {_row(3, YEARS[3])}")
    engine.create_materialized_view(view, query)
    shown = {row.id: row for row in collected(engine.sql(f"SELECT * FROM {view}"))}
    assert (shown[3].d, shown[3].t) == ("+10000-01-01", "+10000-01-01 00:00:00")
    assert shown[3].s.x == "+10000-01-01 00:00:00"
    assert shown[2].d == "0001-01-01"
