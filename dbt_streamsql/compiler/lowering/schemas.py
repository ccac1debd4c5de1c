"""The columns of relational nodes: derived from their inputs where simple, otherwise by Spark.

Spark analyzes one operator at a time, over rows with the types of its inputs, and no table is
opened: the work grows linearly with the text, not with its square.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice

from dbt_streamsql.compiler.codegen.render_sql import plain
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.algebra.catalog import Catalog, TableInfo
from dbt_streamsql.plan.algebra.expression import escape
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Call,
    Chosen,
    Constant,
    Generate,
    Input,
    Keyed,
    Limit,
    Match,
    Node,
    Scan,
    Select,
    UnionAll,
)
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.quoting import quote

_CLOCK = (Column("now", "timestamp", False), Column("today", "date", False))
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_PICKED = re.compile(r"(?:(?i:coalesce)\(|\{\d+\}|, ?|\))+")
"""A column, or the first of several that is not NULL: it has their type, if they share one."""
_TOGETHER = 50
"""Nodes that Spark analyzes in one statement."""
_LITERALS = {
    "boolean": "true",
    "tinyint": "0Y",
    "smallint": "0S",
    "int": "0",
    "bigint": "0L",
    "float": "0F",
    "double": "0D",
    "string": "''",
    "date": "DATE'2000-01-01'",
    "timestamp": "TIMESTAMP'2000-01-01 00:00:00'",
    "timestamp_ntz": "TIMESTAMP_NTZ'2000-01-01 00:00:00'",
    "binary": "X'00'",
}
"""Values that are never NULL."""


class Remembering:
    """A catalog that caches the answer for each table and each text."""

    def __init__(self, known: Catalog) -> None:
        self.default_catalog = known.default_catalog
        self.table = cache(known.table)
        self.schema = cache(known.schema)
        self.functions = cache(known.functions)
        self.loses_overflow = cache(known.loses_overflow)


@dataclass
class Schemas:
    """Columns of the nodes of one query."""

    catalog: Catalog
    tables: dict[str, TableInfo]
    _known: dict[int, tuple[Node, tuple[Column, ...]]] = field(default_factory=dict)

    def of(self, node: Node) -> tuple[Column, ...]:
        """The columns of a node with the types that Spark gives them."""
        found = self._known.get(id(node))
        if found is None:
            found = (node, self._plain(node) or self._asked(node))
            self._known[id(node)] = found
        return found[1]

    def know(self, nodes: Sequence[Node]) -> None:
        """Look up the columns of many nodes together, as far as possible."""
        asked = [
            (node, over)
            for node in nodes
            if self._is_unknown(node) and (over := self._stubbed(node)) is not None
        ]
        for start in range(0, len(asked), _TOGETHER):
            part = asked[start : start + _TOGETHER]
            texts = (f"({plain(over)}) q{at}" for at, (_, over) in enumerate(part))
            try:
                found = iter(self.catalog.schema(f"SELECT * FROM {', '.join(texts)}"))
            except StreamSqlError:
                continue  # each is analyzed alone, and gives its own error
            for node, _ in part:
                self._known[id(node)] = (node, tuple(islice(found, len(node.columns))))

    def _is_unknown(self, node: Node) -> bool:
        return id(node) not in self._known and self._plain(node) is None

    def _plain(self, node: Node) -> tuple[Column, ...] | None:
        """The columns of a node that only passes on its inputs' columns; None for any other."""
        if isinstance(node, Scan) and not isinstance(node, Chosen):
            return self._scanned(node)
        if isinstance(node, Limit):
            return self.of(node.input)
        if isinstance(node, UnionAll):
            return self._united([self.of(side) for side in node.inputs])
        if isinstance(node, Aggregate):
            return self._grouped(node)
        if not isinstance(node, Select | Match):
            return None
        if not all(_PICKED.fullmatch(output.expr.template) for output in node.outputs):
            return None
        maybe = _may_be_missing(node)
        given = {
            (child.alias, column.name): replace(
                column, nullable=column.nullable or child.alias in maybe
            )
            for child in _inputs(node)
            for column in self.of(child.node)
        }
        picked = []
        for output in node.outputs:
            columns = [given.get(ref) for ref in output.expr.refs]
            known = [column for column in columns if column is not None]
            if len(known) < len(columns) or len({column.type for column in known}) > 1:
                return None
            nullable = all(column.nullable for column in known)
            picked.append(Column(output.name, known[0].type, nullable))
        return tuple(picked)

    def _grouped(self, node: Aggregate) -> tuple[Column, ...] | None:
        if node.session is not None:
            return None
        given = {column.name: column for column in self.of(node.input)}
        made = [_aggregated(call, given) for call in node.calls]
        known = [column for column in made if column is not None]
        if len(known) < len(made):
            return None
        return (*(given[key] for key in node.keys), *known)

    def _scanned(self, scan: Scan) -> tuple[Column, ...] | None:
        info = self.tables.get(scan.table)
        given = _CLOCK if scan.table == CLOCK else info.columns if info is not None else ()
        known = {column.name.lower(): column for column in given}
        if not all(name in known for name in scan.columns):
            return None
        return tuple(replace(known[name], name=name) for name in scan.columns)

    @staticmethod
    def _united(sides: Sequence[tuple[Column, ...]]) -> tuple[Column, ...] | None:
        together = list(zip(*sides, strict=True))
        if any(len({column.type for column in columns}) > 1 for columns in together):
            return None
        return tuple(
            replace(columns[0], nullable=any(column.nullable for column in columns))
            for columns in together
        )

    def _asked(self, node: Node) -> tuple[Column, ...]:
        over = self._stubbed(node)
        if over is not None:
            try:
                return self.catalog.schema(plain(over))
            except StreamSqlError:
                pass  # it may work over the rows themselves; if not, that says why
        return self.catalog.schema(plain(node))

    def _stubbed(self, node: Node) -> Node | None:
        """The node over rows that have the types of its inputs; None when it has no inputs, or
        when such rows cannot be written."""
        stubs = [_stub(self.of(child.node)) for child in _inputs(node)]
        known = [stub for stub in stubs if stub is not None]
        return _over(node, known) if stubs and len(known) == len(stubs) else None


def _inputs(node: Node) -> tuple[Input, ...]:
    if isinstance(node, Select):
        return node.inputs
    if isinstance(node, Match):
        return (node.left, node.right)
    if isinstance(node, UnionAll):
        return tuple(Input("", side) for side in node.inputs)
    return (Input("i", node.input),) if isinstance(node, Keyed | Generate) else ()


def _over(node: Node, children: Sequence[Node]) -> Node:
    """The node over other inputs with the same columns."""
    if isinstance(node, Select):
        pairs = zip(node.inputs, children, strict=True)
        return replace(node, inputs=tuple(replace(old, node=new) for old, new in pairs))
    if isinstance(node, Match):
        left, right = children
        return replace(
            node, left=replace(node.left, node=left), right=replace(node.right, node=right)
        )
    if isinstance(node, UnionAll):
        return UnionAll(tuple(children))
    assert isinstance(node, Keyed | Generate)
    return replace(node, input=children[0])


def _aggregated(call: Call, given: Mapping[str, Column]) -> Column | None:
    """The result of calls with simple type rules (Spark's `Sum`, `Average`, `Count`, `Max`)."""
    if call.template or call.cast:
        return None
    if call.function == "COUNT":
        return Column(call.name, "bigint", nullable=False)
    argument = given.get(call.arg or "")
    if argument is None:
        return None
    if call.function in {"MIN", "MAX"}:
        return Column(call.name, argument.type)
    if call.function not in {"SUM", "AVG"}:
        return None
    if argument.decimal is not None:
        precision, scale = argument.decimal
        more = (10, 0) if call.function == "SUM" else (4, 4)
        sizes = min(precision + more[0], 38), min(scale + more[1], 38)
        return Column(call.name, f"decimal({sizes[0]},{sizes[1]})")
    if argument.type in {"float", "double"} or (argument.is_integer and call.function == "AVG"):
        return Column(call.name, "double")
    return Column(call.name, "bigint") if argument.is_integer else None


def _may_be_missing(node: Select | Match) -> set[str]:
    """The inputs whose columns an outer join may fill with NULL."""
    if isinstance(node, Select) or node.kind not in {"left", "full"}:
        return set()
    return {node.right.alias, *([node.left.alias] if node.kind == "full" else [])}


def _stub(columns: tuple[Column, ...]) -> Constant | None:
    """A row of the same columns; None where a value that is never NULL cannot be written."""
    items = []
    for column in columns:
        value = f"CAST(NULL AS {column.type})" if column.nullable else _value(column.type)
        if value is None:
            return None
        items.append(f"{value} AS {quote(column.name)}")
    return Constant(escape(f"SELECT {', '.join(items)}"), tuple(c.name for c in columns))


def _value(type_: str) -> str | None:
    decimal = _DECIMAL.fullmatch(type_)
    if decimal is None:
        return _LITERALS.get(type_)
    precision, scale = int(decimal[1]), int(decimal[2])
    digits = "9" * precision
    whole, part = digits[: precision - scale], digits[precision - scale :]
    return f"{whole or '0'}{'.' + part if part else ''}BD"
