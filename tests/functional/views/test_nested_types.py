"""Structs whose fields have names that need quotes, or that may not be NULL, live through changes."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

ODD = "STRUCT<`a-b`: INT, `größe`: STRING, `x y`: ARRAY<STRUCT<`1`: INT>>>"
VIEWS = (
    "SELECT id, s, s.`a-b` AS y FROM {t}",
    "SELECT s, count(*) AS n FROM {t} GROUP BY s",
    "SELECT id, max(s) AS m FROM {t} GROUP BY id",
    "SELECT n, max(struct(id, 1 AS one)) FILTER (WHERE id > 1) AS m FROM {t} GROUP BY n",
)
FULL = "named_struct('a-b', 1, 'größe', 'x', 'x y', array(named_struct('1', 1)))"
EMPTY = "named_struct('a-b', 2, 'größe', null, 'x y', array(null))"


def test_structs_with_odd_names_and_fields_that_may_not_be_null(engine, schema):
    spark, table = engine.spark, f"lake.{schema}.t"
    spark.sql(f"CREATE TABLE {table} (id INT, s {ODD}, n INT)")
    spark.sql(f"INSERT INTO {table} SELECT 1, {FULL}, 1")
    views = {f"lake.{schema}.v{number}": text for number, text in enumerate(VIEWS)}
    for name, text in views.items():
        made = text.format(t=table)
        engine.create_materialized_view(name, made, refresh_mode="incremental_strict")
    for change in (
        f"INSERT INTO {table} SELECT 2, {EMPTY}, null",
        f"INSERT INTO {table} SELECT 3, null, 1",
        f"DELETE FROM {table} WHERE id = 1",
        f"UPDATE {table} SET s = {FULL} WHERE id = 3",
    ):
        spark.sql(change)
        engine.advance()
        for name in views:
            assert engine.verify(name) == []
