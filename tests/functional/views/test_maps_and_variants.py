"""Maps and variants, which Spark does not compare, in views that are kept from changes."""

from __future__ import annotations

import json
from random import Random

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

SEED, EPOCHS = 2, 3
COLUMNS = "k INT, at INT, m MAP<STRING, INT>, v VARIANT, a ARRAY<MAP<INT, STRING>>, s STRUCT<`x y`: MAP<STRING, ARRAY<INT>>, n: INT>"
VIEWS = {
    "all": "SELECT * FROM {t}",
    "parts": "SELECT k, m['a'] AS a, v:x::int AS x, s.n FROM {t} WHERE at < 4",
    "newest": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY at DESC) AS n "
    "FROM {t}) WHERE n = 1",
    "before": "SELECT k, v, lag(at) OVER (PARTITION BY k ORDER BY at) AS was FROM {t}",
    "pairs": "SELECT x.k, x.m, y.v, y.s FROM {t} x JOIN {t} y ON x.k = y.k AND x.at < y.at",
    "maybe": "SELECT x.k, x.v, y.a FROM {t} x LEFT JOIN {t} y ON x.k = y.at",
    "either": "SELECT v FROM {t} WHERE at > 2 UNION ALL SELECT v FROM {t} WHERE k < 3",
    "maps": "SELECT m FROM {t}",
    "chosen": "SELECT k, max_by(v, at) AS v, min_by(m, at) AS m, any_value(a) AS a FROM {t} GROUP BY k",
    "of_chosen": "SELECT g.k, g.v, o.at FROM (SELECT k, max_by(v, at) AS v FROM {t} GROUP BY k) g "
    "JOIN {t} o ON g.k = o.k",
    "first": "SELECT k, at, v, m FROM {t} ORDER BY at, k LIMIT 5",
    "each": "SELECT k, e.key, v FROM {t} LATERAL VIEW explode(m) e AS key, value",
    "again": "SELECT k, v, m FROM {all} WHERE at <> 3",
}
MAPS = (
    "NULL",
    "map()",
    "map('a', 1)",
    "map('a', 2)",
    "map('a', 1, 'b', NULL)",
    "map('b', NULL, 'a', 1)",
)
VARIANTS = (
    *("NULL", "parse_json('null')", "parse_json('1')", "parse_json('\"1\"')"),
    *('parse_json(\'{"x": 1, "y": [1, "a"]}\')', "to_variant_object(named_struct('x', 2))"),
    *("CAST(DATE'2024-01-01' AS VARIANT)", "CAST('2024-01-01' AS VARIANT)"),
)
ARRAYS = ("NULL", "array()", "array(map(1, 'x'), NULL)", "array(map(1, 'x', 2, NULL))")
STRUCTS = (
    "NULL",
    "named_struct('x y', NULL, 'n', 1)",
    "named_struct('x y', map('k', array(1, NULL)), 'n', 2)",
)


def test_views_of_maps_and_variants_equal_their_queries_and_are_never_computed_anew(
    engine, schema
):
    spark, random, at = engine.spark, Random(SEED), f"lake.{schema}"
    table = f"{at}.t"
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) TBLPROPERTIES ('format-version' = '3')")
    names = {"t": table} | {name: f"{at}.v_{name}" for name in VIEWS}
    _insert(spark, table, random)
    for name, text in VIEWS.items():
        query = text.format(**names)
        engine.create_materialized_view(names[name], query, refresh_mode="incremental_strict")
    for _ in range(EPOCHS):
        for change in (_swap, random.choice((_insert, _update, _delete, _copy))):
            change(spark, table, random)
        report = engine.advance()
        assert not report.failed
        assert {told.mode for told in report.tables.values()} <= {"incremental", "append", "noop"}
        for name, text in VIEWS.items():
            asked = text.format(**names)
            if name not in {"newest", "before", "chosen", "of_chosen", "first"}:
                assert _rows(spark, f"SELECT * FROM {names[name]}") == _rows(spark, asked), name
            assert engine.verify(names[name]) == [], name


def _insert(spark, table, random):
    rows = (
        f"({random.randint(1, 4)}, {random.randint(1, 5)}, "
        + ", ".join(map(random.choice, (MAPS, VARIANTS, ARRAYS, STRUCTS)))
        + ")"
        for _ in range(6)
    )
    spark.sql(f"INSERT INTO {table} VALUES {', '.join(rows)}")


def _update(spark, table, random):
    where = f"k = {random.randint(1, 4)} AND at <= {random.randint(1, 5)}"
    sets = f"m = {random.choice(MAPS)}, v = {random.choice(VARIANTS)}"
    spark.sql(f"UPDATE {table} SET {sets} WHERE {where}")


def _swap(spark, table, random):
    """Other values under the same keys, and of another type with the same text."""
    sets = "m = IF(m['a'] = 1, map('a', 2), map('a', 1)), v = "
    sets += random.choice(("CAST(DATE'2024-01-01' AS VARIANT)", "CAST('2024-01-01' AS VARIANT)"))
    spark.sql(f"UPDATE {table} SET {sets} WHERE k <= 2")


def _delete(spark, table, random):
    spark.sql(f"DELETE FROM {table} WHERE at = {random.randint(1, 5)}")


def _copy(spark, table, random):
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE k = {random.randint(1, 4)}")


def _rows(spark, query):
    """The rows of a query as text, of maps the entries in one order."""
    return sorted(repr([_plain(value) for value in row]) for row in spark.sql(query).collect())


def _plain(value):
    if isinstance(value, dict):
        return sorted((str(_plain(key)), _plain(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "toJson"):
        return type(value.toPython()).__name__, json.loads(value.toJson())
    return value
