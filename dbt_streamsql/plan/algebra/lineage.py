"""Which columns of which tables the columns of a query come from.

A column is direct when a value is computed of it. What decides only which rows there are, or in
which order, is indirect: conditions, keys of groups, orders, partitions (OpenLineage, facet
`columnLineage`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.relational import (
    Aggregate,
    Branches,
    Constant,
    Generate,
    Limit,
    Match,
    Node,
    Scan,
    Select,
    UnionAll,
    Window,
)

Origin = tuple[str, str]
"""A table, and a column of it."""


class Direct(IntEnum):
    """How a value is computed of a column; of two ways, the greater one counts."""

    IDENTITY = 0
    TRANSFORMATION = 1
    AGGREGATION = 2


Origins = Mapping[Origin, Direct]


@dataclass(frozen=True)
class Lineage:
    """`columns`: of each column of the query, what it is computed of. `indirect`: what decides
    about rows, by JOIN, FILTER, GROUP_BY, SORT, WINDOW."""

    columns: Mapping[str, Origins]
    indirect: Mapping[str, frozenset[Origin]]


def lineage(node: Node) -> Lineage:
    """The lineage of a query."""
    found = _Walk()
    columns = found.of(node)
    return Lineage(columns, {kind: frozenset(told) for kind, told in found.indirect.items()})


class _Walk:
    """One pass over a tree; `indirect` fills on the way."""

    def __init__(self) -> None:
        self.indirect: defaultdict[str, set[Origin]] = defaultdict(set)

    def of(self, node: Node) -> dict[str, Origins]:
        """The origins of each column of a node."""
        if isinstance(node, Scan):
            return {name: {(node.table, name): Direct.IDENTITY} for name in node.columns}
        if isinstance(node, Constant):
            return {name: {} for name in node.columns}
        if isinstance(node, Select):
            sides = {child.alias: self.of(child.node) for child in node.inputs}
            for expr in node.where:
                self._decides("JOIN" if len(expr.aliases) > 1 else "FILTER", [expr], sides)
            return {each.name: _value(each.expr, sides) for each in node.outputs}
        if isinstance(node, Match):
            sides = {child.alias: self.of(child.node) for child in (node.left, node.right)}
            self._decides("JOIN", node.on, sides)
            return {each.name: _value(each.expr, sides) for each in node.outputs}
        if isinstance(node, Aggregate):
            return self._aggregate(node)
        if isinstance(node, UnionAll):
            parts = zip(*(self.of(child).values() for child in node.inputs), strict=True)
            return dict(zip(node.columns, map(_of_all, parts), strict=True))
        if isinstance(node, Branches):
            return self._branches(node)
        return self._rows_of_one_input(node)

    def _aggregate(self, node: Aggregate) -> dict[str, Origins]:
        below = self.of(node.input)
        found = {key: below[key] for key in node.keys}
        self._tell("GROUP_BY", found.values())
        if node.session is not None:
            found[node.session.name] = _at_least(below[node.session.time], Direct.TRANSFORMATION)
            self._tell("GROUP_BY", [below[node.session.time]])
        for call in node.calls:
            read = [_at_least(below[name], Direct.AGGREGATION) for name in call.uses]
            found[call.name] = _of_all(read)
        return found

    def _rows_of_one_input(self, node: Window | Limit | Generate) -> dict[str, Origins]:
        below = self.of(node.input)
        sides = {"i": below}
        if isinstance(node, Limit):
            self._decides("SORT", node.order, sides)
            return below
        if isinstance(node, Generate):
            value = _at_least(_value(node.call, sides), Direct.TRANSFORMATION)
            return {**below, **dict.fromkeys(node.names, value)}
        self._tell("WINDOW", [below[name] for name in node.partition])
        made = {}
        for over in node.overs:
            self._decides("WINDOW", over.order, sides)
            made[over.name] = _at_least(_value(over.call, sides), Direct.AGGREGATION)
        return {**below, **made}

    def _branches(self, node: Branches) -> dict[str, Origins]:
        found: dict[str, list[Origins]] = {name: [] for name in node.columns}
        for child, targets in zip(node.inputs, node.targets, strict=True):
            below = self.of(child.node)
            names = [*node.keys, *(path.split(".")[0] for path in targets)]
            self._tell("JOIN", list(below.values())[: len(node.keys)])
            for name, origins in zip(names, below.values(), strict=True):
                found[name].append(origins)
        return {name: _of_all(origins) for name, origins in found.items()}

    def _decides(
        self, kind: str, exprs: Iterable[Expr], sides: Mapping[str, Mapping[str, Origins]]
    ) -> None:
        self._tell(kind, [_value(expr, sides) for expr in exprs])

    def _tell(self, kind: str, origins: Iterable[Origins]) -> None:
        for each in origins:
            self.indirect[kind].update(each)


def _value(expr: Expr, sides: Mapping[str, Mapping[str, Origins]]) -> Origins:
    read = _of_all(sides[alias][column] for alias, column in expr.refs)
    return read if expr.as_column else _at_least(read, Direct.TRANSFORMATION)


def _at_least(origins: Origins, kind: Direct) -> Origins:
    return {column: max(found, kind) for column, found in origins.items()}


def _of_all(several: Iterable[Origins]) -> Origins:
    found: dict[Origin, Direct] = {}
    for origins in several:
        for column, kind in origins.items():
            found[column] = max(kind, found.get(column, kind))
    return found
