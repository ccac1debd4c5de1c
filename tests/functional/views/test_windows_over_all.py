"""Windows without PARTITION BY are kept from changes: all rows are computed, the difference written."""

from __future__ import annotations

import random

import pytest

pytestmark = pytest.mark.spark

VIEWS = {
    "numbers": "SELECT id, v, row_number() OVER (ORDER BY v, id) AS n FROM {t}",
    "running": "SELECT id, sum(v) OVER (ORDER BY id) AS total, lag(g) OVER (ORDER BY id) AS b FROM {t}",
    "share": "SELECT id, v / sum(v) OVER () AS share, count(*) OVER () AS n FROM {t} WHERE v > 0",
    "two": "SELECT id, rank() OVER (ORDER BY v) AS r, sum(v) OVER (PARTITION BY g) AS s FROM {t}",
    "groups": "SELECT g, sum(v) AS s, rank() OVER (ORDER BY sum(v) DESC) AS r FROM {t} GROUP BY g",
    "ties": "SELECT v, row_number() OVER (ORDER BY v) AS n FROM {t}",
    "frame": "SELECT id, avg(v) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a FROM {t}",
    "below": "SELECT g, max(n) AS n FROM (SELECT g, dense_rank() OVER (ORDER BY v) AS n FROM {t}) GROUP BY g",
    "joined": "SELECT a.id, b.n FROM {t} a JOIN (SELECT id, ntile(3) OVER (ORDER BY id) AS n FROM {t}) b "
    "ON a.id = b.id WHERE a.v > 1",
    "first": "SELECT * FROM (SELECT id, g, row_number() OVER (ORDER BY v DESC, id) AS n FROM {t}) WHERE n <= 2",
}


def test_every_view_equals_its_query_after_every_change(engine, schema):
    spark, table, draw = engine.spark, f"lake.{schema}.t", random.Random(5)
    spark.sql(f"CREATE TABLE {table} (id INT, g STRING, v INT)")

    def row(identifier):
        value = draw.choice(["NULL", *map(str, range(5))])
        return f"({identifier}, {draw.choice(['NULL', repr('a'), repr('b')])}, {value})"

    def insert(*identifiers):
        spark.sql(f"INSERT INTO {table} VALUES {', '.join(map(row, identifiers))}")

    insert(*range(8))
    views = {f"lake.{schema}.{name}": text.format(t=table) for name, text in VIEWS.items()}
    for name, query in views.items():
        engine.create_materialized_view(name, query, refresh_mode="incremental_strict")
    for change in (
        lambda: insert(20, 21, 3),
        lambda: spark.sql(f"DELETE FROM {table} WHERE id IN (0, 4)"),
        lambda: spark.sql(f"UPDATE {table} SET v = v + 1, g = 'b' WHERE id < 3"),
        lambda: spark.sql(f"DELETE FROM {table}"),
        lambda: insert(1, 1, 2),
    ):
        change()
        told = engine.advance().tables
        for name in views:
            assert told[name].mode != "full", (name, told[name].reason)
            assert engine.verify(name) == [], name
