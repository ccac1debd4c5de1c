"""Groups that a join asks for are computed for the keys that a filter leaves."""

from __future__ import annotations

import pytest

from dbt_streamsql.plan.algebra.relational import Aggregate, Match, Window, children, scans, walk
from dbt_streamsql.plan.tree_json import node_of
from tests.support.planned import compiled

pytestmark = pytest.mark.hunts

TABLES = {
    "lake.t.parts": {"id": "int", "brand": "varchar", "code": "bigint"},
    "lake.t.lines": {"part": "int", "supplier": "int", "amount": "int"},
    "lake.t.offers": {"part": "int", "supplier": "int", "price": "int"},
}
OF_LINES = "(SELECT avg(amount) FROM lake.t.lines x WHERE x.part = {})"
CUT = (
    # The correlated sub-query of Q17, and of Q20.
    f"""SELECT l.amount FROM lake.t.lines l, lake.t.parts p
    WHERE p.id = l.part AND p.brand = 'a' AND l.amount < {OF_LINES.format("p.id")}""",
    f"""SELECT o.price FROM lake.t.offers o WHERE o.part IN
    (SELECT id FROM lake.t.parts WHERE brand LIKE 'a%') AND o.price > {OF_LINES.format("o.part")}""",
    """SELECT p.id, s.n FROM (SELECT id FROM lake.t.parts WHERE brand IN ('a', 'b')) p
    LEFT JOIN (SELECT part, count(*) AS n FROM lake.t.lines GROUP BY part) s ON s.part = p.id""",
    """SELECT o.price FROM lake.t.offers o JOIN lake.t.parts p ON p.id = o.part
    WHERE p.brand = 'a' AND o.price NOT IN
    (SELECT amount FROM lake.t.lines l WHERE l.part = o.part ORDER BY amount LIMIT 2)""",
)
WHOLE = (
    # No filter, one that leaves many rows, another column, another type, a full join, a value
    # that is no key, another partition, keys that the rows do not have.
    f"""SELECT l.amount FROM lake.t.lines l, lake.t.parts p
    WHERE p.id = l.part AND l.amount < {OF_LINES.format("p.id")}""",
    f"""SELECT l.amount FROM lake.t.lines l, lake.t.parts p
    WHERE p.id = l.part AND p.brand <> 'a' AND l.amount < {OF_LINES.format("p.id")}""",
    f"""SELECT l.amount FROM lake.t.lines l, lake.t.parts p
    WHERE p.id = l.part AND p.brand = 'a' AND l.amount < {OF_LINES.format("l.supplier")}""",
    f"""SELECT l.amount FROM lake.t.lines l, lake.t.parts p
    WHERE p.code = l.part AND p.brand = 'a' AND l.amount < {OF_LINES.format("l.part")}""",
    """SELECT p.id, s.n FROM (SELECT id FROM lake.t.parts WHERE brand = 'a') p
    FULL JOIN (SELECT part, count(*) AS n FROM lake.t.lines GROUP BY part) s ON s.part = p.id""",
    """SELECT p.id, s.part FROM (SELECT id FROM lake.t.parts WHERE brand = 'a') p
    LEFT JOIN (SELECT part, count(*) AS n FROM lake.t.lines GROUP BY part) s ON s.n = p.id""",
    """SELECT p.id, s.r FROM (SELECT id FROM lake.t.parts WHERE brand = 'a') p LEFT JOIN
    (SELECT part, rank() OVER (PARTITION BY supplier ORDER BY amount) AS r FROM lake.t.lines) s
    ON s.part = p.id""",
    """SELECT o.price FROM lake.t.offers o WHERE o.part NOT IN
    (SELECT id FROM lake.t.parts WHERE brand = 'a' AND id IS NOT NULL) AND o.part IS NOT NULL
    AND EXISTS (SELECT part FROM lake.t.lines l WHERE l.part = o.part GROUP BY part
    HAVING count(*) > 1)""",
)


def cuts(sql):
    """What the groupings over lines read besides the lines."""
    plan = compiled(sql, TABLES, "lake.t.view")
    assert plan.mode == "incremental", plan.reasons
    inputs = (
        child
        for node in walk(node_of(plan.tree))
        if isinstance(node, Aggregate | Window)
        for child in children(node)
    )
    return [
        [scan.table for scan in scans(node.right.node)]
        for node in inputs
        if isinstance(node, Match) and node.kind == "semi"
    ]


@pytest.mark.parametrize("sql", CUT)
def test_a_grouping_reads_the_rows_of_the_keys_that_are_asked_for(sql):
    assert cuts(sql) == [["lake.t.parts"]]


@pytest.mark.parametrize("sql", WHOLE)
def test_a_grouping_reads_all_rows_where_any_key_may_be_asked_for(sql):
    assert cuts(sql) == []
