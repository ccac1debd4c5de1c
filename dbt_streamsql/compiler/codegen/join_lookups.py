"""Which rows of a table the changes of the other tables can join, if the join condition says so.

In `A ⋈ T` on `a = t`, the term `dA ⋈ T` needs the rows of T whose `t` is in dA (`Lookup`). If the
deleted rows of a table must be looked up anyway, one read serves both (`Meeting`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Node,
    Scan,
    Select,
    walk,
)
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.plan.program.steps import KeyKind, Meeting


def meetings(root: Node) -> dict[str, tuple[Meeting, ...]]:
    """For each table that occurs once in a query: the tables that it is joined with by a column.

    Those tables also occur once, in the same join. Rows of all of them are kept forever.
    """
    uses = Counter(leaf.table for leaf in walk(root) if isinstance(leaf, Scan))
    if CLOCK in uses:
        # Rows that become current by time join with rows that no change matches.
        return {}
    found: dict[str, list[Meeting]] = {}
    for node in walk(root):
        if not isinstance(node, Select):
            continue
        tables = {
            child.alias: child.node.table
            for child in node.inputs
            if isinstance(child.node, Scan) and uses[child.node.table] == 1 and not child.node.ttl
        }
        for expr in node.where:
            if expr.template != "{0} = {1}" or not expr.aliases <= set(tables):
                continue
            for own, other in (expr.refs, expr.refs[::-1]):
                if own[0] != other[0]:
                    meeting = Meeting(own[1], tables[other[0]], other[1])
                    found.setdefault(tables[own[0]], []).append(meeting)
    return {table: tuple(dict.fromkeys(ways)) for table, ways in found.items()}


def key_of(table: str, column: str, keys: Collection[TableKey]) -> tuple[KeyKind, str, str]:
    """What the keys say of a column: `Lookup.by`, `parent` and `to`."""
    foreign: tuple[KeyKind, str, str] = "", "", ""
    for key in keys:
        unique = (key.references, key.to) if key.references else (key.table, key.column)
        if (unique[0], unique[1].lower()) == (table, column.lower()):
            return "unique", "", ""
        if (key.table, key.column.lower()) == (table, column.lower()):
            foreign = "references", key.references, key.to
    return foreign
