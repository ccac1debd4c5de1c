"""What a query computes: frozen nodes that refuse ill-formed trees, so that passes need no guards.

Every node has `columns`, unique by name. A node means a bag (multiset) of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.expression import Expr, dotted


def _unique(names: tuple[str, ...], what: str) -> None:
    if len(set(names)) != len(names):
        raise StreamSqlError("INTERNAL", f"{what} are not unique", given=", ".join(names))


@dataclass(frozen=True)
class Scan:
    """The rows of one base table (or of another view), cut to the columns in use."""

    table: str
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        _unique(self.columns, f"columns of {self.table}")


@dataclass(frozen=True)
class Input:
    """A child under the alias by which expressions name it."""

    alias: str
    node: Node


@dataclass(frozen=True)
class Output:
    """A named expression."""

    name: str
    expr: Expr


@dataclass(frozen=True)
class Select:
    """Inner join of `inputs`, filtered by the conjunction `where`, projected to `outputs`.

    One input and no predicate is a projection; one input and a predicate is a filter.
    """

    inputs: tuple[Input, ...]
    where: tuple[Expr, ...]
    outputs: tuple[Output, ...]

    def __post_init__(self) -> None:
        aliases = tuple(child.alias for child in self.inputs)
        _unique(aliases, "aliases")
        _unique(self.columns, "output columns")
        known = {(child.alias, column) for child in self.inputs for column in child.node.columns}
        for expr in (*self.where, *(output.expr for output in self.outputs)):
            for ref in expr.refs:
                if ref not in known:
                    raise StreamSqlError("INTERNAL", "unknown column", given=".".join(ref))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)


@dataclass(frozen=True)
class Call:
    """One aggregate over a column of the input: `arg` is None for `COUNT(*)`.

    `arg_type` and `type` are Spark types; `arg_nullable` false lets COUNT(arg) be COUNT(*).
    `cast` widens the argument first ('' = as it is).
    """

    name: str
    function: str
    arg: str | None
    distinct: bool
    arg_type: str
    arg_nullable: bool
    type: str
    cast: str = ""

    def sql(self, alias: str) -> str:
        """The call over the input named `alias`."""
        inner = "*" if self.arg is None else dotted((alias, self.arg))
        if self.cast:
            inner = f"CAST({inner} AS {self.cast})"
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{inner})"


@dataclass(frozen=True)
class Aggregate:
    """Groups of `input` by the columns `keys`; without calls it is DISTINCT.

    Without keys there is one group, which exists even when the input is empty.
    """

    input: Node
    keys: tuple[str, ...]
    calls: tuple[Call, ...]

    def __post_init__(self) -> None:
        _unique(self.columns, "grouping output columns")
        args = tuple(call.arg for call in self.calls if call.arg is not None)
        for name in (*self.keys, *args):
            if name not in self.input.columns:
                raise StreamSqlError("INTERNAL", "unknown column in GROUP BY", given=name)
        if not self.keys and not self.calls:
            raise StreamSqlError("INTERNAL", "an aggregate needs a key or a call")

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *(call.name for call in self.calls))


@dataclass(frozen=True)
class UnionAll:
    """All rows of all inputs; columns correspond by position and are named as in the first."""

    inputs: tuple[Node, ...]

    def __post_init__(self) -> None:
        if len({len(node.columns) for node in self.inputs}) != 1:
            raise StreamSqlError("INTERNAL", "UNION ALL of different widths")

    @property
    def columns(self) -> tuple[str, ...]:
        return self.inputs[0].columns


Node = Scan | Select | Aggregate | UnionAll


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Select):
        return tuple(child.node for child in node.inputs)
    if isinstance(node, Aggregate):
        return (node.input,)
    return node.inputs if isinstance(node, UnionAll) else ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, parents first."""
    yield node
    for child in children(node):
        yield from walk(child)


def tables(node: Node) -> tuple[str, ...]:
    """The tables that are read, each once, in order of appearance."""
    return tuple(dict.fromkeys(leaf.table for leaf in walk(node) if isinstance(leaf, Scan)))
