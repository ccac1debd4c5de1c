"""Texts that differ and are equal by a collation: no change from one to the other is missed."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

SHOWN = {
    "a column": "SELECT k, collate(s, 'UTF8_BINARY_RTRIM') AS c FROM {t}",
    "a column of arrays": "SELECT k, array(s COLLATE UTF8_LCASE) AS c FROM {t}",
    "a group": "SELECT lower(CAST(c AS STRING)) AS c, n FROM "
    "(SELECT s COLLATE UTF8_LCASE AS c, count(*) AS n FROM {t} GROUP BY 1)",
    "the most": "SELECT k, max(s COLLATE UTF8_LCASE) AS most FROM {t} GROUP BY k",
    "numbers": "SELECT k, s, row_number() OVER (PARTITION BY s COLLATE UTF8_LCASE ORDER BY k, s) AS n FROM {t}",
}
INSIDE = {
    "a join": "SELECT a.k, b.k AS j FROM {t} a JOIN {t} b ON a.s COLLATE UTF8_LCASE = b.s",
    "a condition": "SELECT k, s FROM {t} WHERE collate(s, 'UTF8_LCASE') IN ('a', 'b')",
    "distinct": "SELECT k, count(DISTINCT collate(s, 'UTF8_LCASE')) AS n FROM {t} GROUP BY k",
}
EPOCHS = (
    "UPDATE {t} SET s = 'A' WHERE s = 'a'",
    "INSERT INTO {t} VALUES (1, 'B'), (4, 'b'), (5, 'b  ')",
    "UPDATE {t} SET s = 'b' WHERE s IN ('B', 'b  ')",
    "DELETE FROM {t} WHERE s = 'A'",
)


@pytest.fixture
def table(engine, schema):
    name = f"lake.{schema}.t"
    engine.spark.sql(
        f"CREATE TABLE {name} (k INT, s STRING) TBLPROPERTIES ('format-version' = '3')"
    )
    engine.spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'x'), (3, NULL), (6, 'X')")
    return name


def test_every_view_equals_its_query_and_one_that_shows_a_collation_says_why_it_is_in_full(
    engine, schema, table
):
    made = {}
    for number, (what, text) in enumerate((SHOWN | INSIDE).items()):
        name = f"lake.{schema}.v{number}"
        made[name] = what
        engine.create_materialized_view(name, text.format(t=table))
    for statement in EPOCHS:
        engine.spark.sql(statement.format(t=table))
        report = engine.advance().tables
        for name, what in made.items():
            if what in SHOWN:
                assert "collation" in report[name].reason, what
            else:
                assert report[name].mode != "full", (what, report[name].reason)
            assert engine.verify(name) == [], (statement, what)
