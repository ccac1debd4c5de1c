"""Which columns of a join's inputs equal those of the rows that a term starts from."""

from __future__ import annotations

from collections.abc import Mapping

from dbt_streamsql.plan.algebra.catalog import TableInfo
from dbt_streamsql.plan.algebra.expression import Ref
from dbt_streamsql.plan.algebra.relational import Aggregate, Node, Scan, Select

EQUALITIES = {"{0} = {1}": "=", "{0} <=> {1}": "<=>", "{0} IS NOT DISTINCT FROM {1}": "<=>"}
"""Conditions that two columns are equal, and the operator of each."""

Pairs = tuple[tuple[str, str, str], ...]
"""Triples (column of an input, operator, column of the rows that a term starts from)."""

_MOST_INPUTS = 16
"""Of a join in which equality is followed from input to input: each term of a join of n tables by
one key would look its rows up in all the others, and make n² look-ups."""


def equal_columns(node: Select, start: str, tables: Mapping[str, TableInfo]) -> dict[str, Pairs]:
    """For each input of the join that has such columns: its pairs with the input `start`.

    Those that a condition makes equal; for other inputs those that further conditions make equal
    to them. Equality is passed on only between columns of one type: `'1' = 1` and `1 = '01'`, but
    `'1' <> '01'`.
    """
    links: dict[Ref, list[tuple[Ref, str]]] = {}
    for expr in node.where:
        operator = EQUALITIES.get(expr.template)
        if operator and len(expr.aliases) == 2:
            one, other = expr.refs
            links.setdefault(one, []).append((other, operator))
            links.setdefault(other, []).append((one, operator))
    found: dict[str, list[tuple[str, str, str]]] = {}
    reached: list[tuple[Ref, str, str]] = []
    for ref, others in links.items():
        for (alias, column), operator in others if ref[0] == start else ():
            found.setdefault(alias, []).append((column, operator, ref[1]))
            reached.append(((alias, column), operator, ref[1]))
    direct = {start, *found}
    if len(node.inputs) <= _MOST_INPUTS:
        nodes = {child.alias: child.node for child in node.inputs}
        for ref, operator, key in reached:
            kind = _type(nodes[ref[0]], ref[1], tables)
            for (alias, column), link in links[ref] if kind else ():
                if alias in direct or _type(nodes[alias], column, tables) != kind:
                    continue
                pair = (column, operator if link == "<=>" else "=", key)
                if pair not in found.setdefault(alias, []):
                    found[alias].append(pair)
                    reached.append(((alias, column), pair[1], key))
    return {alias: tuple(pairs) for alias, pairs in found.items()}


def pairs_through(node: Select, alias: str, found: Mapping[str, str]) -> tuple[Pairs, str]:
    """The pairs of an input with another one whose rows are looked up already, and the frame of
    those rows; nothing if no condition makes a column of both equal.

    `found`: those inputs with their frames. An order that a changed line belongs to says which
    customer is needed, although no line names a customer.
    """
    if len(node.inputs) <= _MOST_INPUTS:
        for other, frame in found.items():
            links = (expr for expr in node.where if expr.aliases == {alias, other})
            pairs = [
                (own[1], EQUALITIES[expr.template], key[1])
                for expr in links
                if expr.template in EQUALITIES
                for own, key in (expr.refs, expr.refs[::-1])
                if own[0] == alias
            ]
            if pairs:
                return tuple(pairs), frame
    return (), ""


def _type(node: Node, column: str, tables: Mapping[str, TableInfo]) -> str:
    """The type of a column that comes from a table as it is ('': of any other)."""
    if isinstance(node, Scan):
        known = tables[node.table].columns if node.table in tables else ()
        return next((each.type for each in known if each.name.lower() == column.lower()), "")
    if isinstance(node, Aggregate):
        return _type(node.input, column, tables) if column in node.keys else ""
    if isinstance(node, Select):
        output = next(each for each in node.outputs if each.name == column)
        ref = output.expr.as_column
        below = {child.alias: child.node for child in node.inputs}
        return _type(below[ref[0]], ref[1], tables) if ref is not None else ""
    return ""
