"""Sub-queries in the ON of a join are maintained from changes."""

from __future__ import annotations

import random

import pytest

pytestmark = pytest.mark.spark

VIEWS = {
    "greatest": "SELECT a.id, b.v FROM {t} a JOIN {u} b ON a.k = b.k AND a.v = (SELECT max(v) FROM {t})",
    "among": "SELECT a.id, b.id AS other FROM {t} a JOIN {u} b ON a.k = b.k AND b.v IN (SELECT v FROM {t})",
    "alone": "SELECT a.id, b.v FROM {t} a JOIN {u} b ON EXISTS (SELECT 1 FROM {t} c WHERE c.v = a.k)",
    "bare": "SELECT id, w FROM {t} JOIN (SELECT k AS q, v AS w FROM {u}) ON k = q AND v IN (SELECT v FROM {u})",
    "three": "SELECT a.id, c.id AS third FROM {t} a JOIN {u} b ON a.k = b.k AND "
    "NOT EXISTS (SELECT 1 FROM {u} x WHERE x.v = a.v) LEFT JOIN {t} c ON c.v = b.v",
    "right after": "SELECT a.id, c.id AS third FROM {t} a JOIN {u} b ON a.k = b.k AND "
    "a.v IN (SELECT v FROM {u}) RIGHT JOIN {t} c ON c.v = b.v",
    "left, of the right side": "SELECT a.id, b.v FROM {t} a LEFT JOIN {u} b ON a.k = b.k AND b.v IN (SELECT v FROM {t})",
    "left, of the left side": "SELECT a.id, b.v FROM {t} a LEFT JOIN {u} b ON a.k = b.k AND a.v NOT IN (SELECT v FROM {u} WHERE k = 1)",
    "left, a value": "SELECT a.id, b.v FROM {t} a LEFT JOIN {u} b ON b.v = (SELECT max(v) FROM {t}) + 1",
    "right, of no side": "SELECT a.id, b.v FROM {t} a RIGHT JOIN {u} b ON a.k = b.k AND EXISTS (SELECT 1 FROM {u} WHERE v = 3)",
    "full, both": "SELECT a.id, b.v FROM {t} a FULL JOIN {u} b ON a.k = b.k AND (a.v IN (SELECT v FROM {u}) OR NOT EXISTS (SELECT 1 FROM {t} c WHERE c.v = b.v))",
    "the same twice": "SELECT a.id, b.v FROM {t} a LEFT JOIN {u} b ON a.v > (SELECT min(v) FROM {u}) AND b.v > (SELECT min(v) FROM {u})",
    "semi": "SELECT a.id, a.v FROM {t} a LEFT SEMI JOIN {u} b ON a.k = b.k AND b.v = (SELECT max(v) FROM {u})",
}


def test_every_view_equals_its_query_after_every_change(engine, schema):
    spark, draw = engine.spark, random.Random(3)
    names = {name: f"lake.{schema}.{name}" for name in ("t", "u")}
    for table in names.values():
        spark.sql(f"CREATE TABLE {table} (id INT, k INT, v INT)")

    def insert(table, *identifiers):
        rows = [
            f"({i}, {draw.choice(['NULL', '1', '2', '3'])}, {draw.choice(['NULL', '1', '2', '3', '4'])})"
            for i in identifiers
        ]
        spark.sql(f"INSERT INTO {names[table]} VALUES {', '.join(rows)}")

    insert("t", *range(8))
    insert("u", *range(8))
    views = {}
    for number, text in enumerate(VIEWS.values()):
        view = f"lake.{schema}.v{number}"
        views[view] = text.format(**names)
        engine.create_materialized_view(view, views[view], refresh_mode="incremental_strict")
    for change in (
        lambda: insert("u", 20, 21, 3),
        lambda: (insert("t", 30, 31), spark.sql(f"DELETE FROM {names['u']} WHERE id < 3")),
        lambda: spark.sql(f"UPDATE {names['t']} SET v = v + 1 WHERE id < 4"),
        lambda: spark.sql(f"DELETE FROM {names['t']} WHERE v > 2"),
    ):
        change()
        engine.advance()
        for view, query in views.items():
            stored = sorted(
                map(
                    str,
                    spark.sql(
                        f"SELECT * FROM ({engine.adapter_api.rewrite(f'SELECT * FROM {view}')})"
                    ).collect(),
                )
            )
            assert stored == sorted(map(str, spark.sql(query).collect())), query
