"""Columns of different types are joined: one value may equal several of the other column."""

from __future__ import annotations

import random

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

TEXTS = ("'1'", "'01'", "' 1'", "'2'", "'02'", "'3'", "NULL")
NUMBERS = ("1", "2", "3", "4", "NULL")
VIEWS = {
    "exists": "SELECT n.id, k FROM {n} n WHERE EXISTS (SELECT 1 FROM {t} t WHERE s = k)",
    "not exists": "SELECT n.id, k FROM {n} n WHERE NOT EXISTS (SELECT 1 FROM {t} t WHERE t.s = k)",
    "of texts": "SELECT t.id, s FROM {t} t WHERE EXISTS (SELECT 1 FROM {n} n WHERE s = k)",
    "in": "SELECT n.id FROM {n} n WHERE k IN (SELECT CAST(s AS DOUBLE) + 0.0 FROM {t} t)",
    "decimals": "SELECT n.id FROM {n} n WHERE EXISTS "
    "(SELECT 1 FROM {t} t WHERE CAST(s AS DECIMAL(20, 2)) = k)",
    "left join": "SELECT n.id, t.id AS other FROM {n} n LEFT JOIN {t} t ON k = s",
    "full join": "SELECT n.id, t.id AS other FROM {n} n FULL JOIN {t} t ON k = s",
    "below a join": "SELECT a.id, b.id AS other FROM {n} a JOIN {n} b ON a.k = b.k "
    "WHERE EXISTS (SELECT 1 FROM {t} t WHERE s = a.k AND t.id <> b.id)",
    "through a text": "SELECT a.id, b.id AS text, c.id AS other FROM {n} a, {t} b, {n} c "
    "WHERE a.k = b.s AND b.s = c.k",
    "through a number": "SELECT a.id, b.id AS number, c.id AS other FROM {t} a, {n} b, {t} c "
    "WHERE a.s = b.k AND b.k = c.s",
    "to a group": "SELECT a.id, b.id AS number, c.n FROM {t} a, {n} b, "
    "(SELECT s, count(*) AS n FROM {t} GROUP BY s) c WHERE a.s = b.k AND b.k = c.s",
    "through numbers": "SELECT a.id, b.id AS near, c.id AS far FROM {t} a, {n} b, {n} c "
    "WHERE a.s = b.k AND b.k <=> c.k",
}


def test_views_over_keys_of_other_types_equal_their_queries_after_every_change(engine, schema):
    draw = random.Random(7)
    names = {name: f"lake.{schema}.{name}" for name in ("n", "t")}
    values = {"n": NUMBERS, "t": TEXTS}
    engine.spark.sql(f"CREATE TABLE {names['n']} (id INT, k INT)")
    engine.spark.sql(f"CREATE TABLE {names['t']} (id INT, s STRING)")

    def insert(table, *identifiers):
        rows = ", ".join(f"({i}, {draw.choice(values[table])})" for i in identifiers)
        engine.spark.sql(f"INSERT INTO {names[table]} VALUES {rows}")

    insert("n", *range(8))
    engine.spark.sql(f"INSERT INTO {names['t']} VALUES (0, '4')")
    views = {}
    for number, (what, text) in enumerate(VIEWS.items()):
        view = f"lake.{schema}.v{number}"
        views[view] = what
        sql = text.format(**names)
        engine.create_materialized_view(view, sql, refresh_mode="incremental_strict")
    for change in (
        f"INSERT INTO {names['t']} VALUES (1, '1'), (2, '01'), (3, ' 1'), (4, '2')",
        f"DELETE FROM {names['t']} WHERE s = '1'",
        "insert n, t",
        f"UPDATE {names['t']} SET s = concat(s, ' ') WHERE id % 2 = 0",
        f"DELETE FROM {names['t']} WHERE s LIKE '%1'",
    ):
        if change == "insert n, t":
            insert("n", *range(20, 26))
            insert("t", *range(20, 26))
        else:
            engine.spark.sql(change)
        engine.advance()
        for view, what in views.items():
            assert engine.verify(view) == [], (what, change)
