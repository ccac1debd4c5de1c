"""What a query computes: frozen nodes that refuse ill-formed trees, so that passes need no guards.

Every node has `columns`, unique by name. A node means a bag (multiset) of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.algebra.expression import (
    Expr,
    Ref,
    dotted,
    refill,
)

CLOCK = "now()"
"""The name of the relation that holds one row: the time of the barrier (`now`, `today`)."""


def _unique(names: tuple[str, ...], what: str) -> None:
    if len(set(names)) != len(names):
        raise StreamSqlError("INTERNAL", f"{what} are not unique", given=", ".join(names))


def _known(exprs: Iterable[Expr], inputs: tuple[Input, ...]) -> None:
    known = {(child.alias, column) for child in inputs for column in child.node.columns}
    for expr in exprs:
        for ref in expr.refs:
            if ref not in known:
                raise StreamSqlError("INTERNAL", "unknown column", given=".".join(ref))


@dataclass(frozen=True)
class Scan:
    """The rows of one base table (or of another view), cut to the columns in use.

    `ttl`: milliseconds after its last write during which a row is looked up (0: forever).
    """

    table: str
    columns: tuple[str, ...]
    ttl: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        _unique(self.columns, f"columns of {self.table}")


@dataclass(frozen=True)
class Chosen(Scan):
    """The rows of a scan that match some row of a frame; only in what an epoch reads.

    `pairs` are (column, operator, column of the frame).
    """

    frame: str
    pairs: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Constant:
    """Rows that the query text itself contains: `sql` is a query that reads no table."""

    sql: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Input:
    """A child under the alias by which expressions refer to it."""

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
        _known((*self.where, *(output.expr for output in self.outputs)), self.inputs)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)


@dataclass(frozen=True)
class Match:
    """The joins whose rows depend on whether there is a partner.

    `kind` is `left` or `full` (outer joins), `semi` or `anti` (rows of the left side with, or
    without, a partner). `on` is a conjunction over both aliases; `outputs` name the columns, for
    `semi` and `anti` of the left side only. `types` are the Spark types of all columns of both
    sides, for the padding NULLs. `exact`: a value of a column that must equal one of the other
    side equals at most one of its values; the number 1 equals the texts '1' and '01'.
    """

    kind: str
    left: Input
    right: Input
    on: tuple[Expr, ...]
    outputs: tuple[Output, ...]
    types: tuple[tuple[Ref, str], ...]
    exact: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        _unique((self.left.alias, self.right.alias), "aliases")
        _unique(self.columns, "output columns")
        _known((*self.on, *(output.expr for output in self.outputs)), (self.left, self.right))
        if not any(len(expr.aliases) > 1 for expr in self.on):
            raise StreamSqlError("INTERNAL", "a join without a condition over both sides")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)


@dataclass(frozen=True)
class Call:
    """One aggregate over columns of the input: `arg` is None for `COUNT(*)`.

    `arg_type` and `type` are Spark types; with `arg_nullable` false, COUNT(arg) is COUNT(*).
    `cast` widens the argument first ('' = as it is). A call of any other form is a `template`
    with holes for the columns `args`; then only its `type` is known.
    """

    name: str
    function: str
    arg: str | None
    distinct: bool
    arg_type: str
    arg_nullable: bool
    type: str
    cast: str = ""
    template: str = ""
    args: tuple[str, ...] = ()

    @property
    def uses(self) -> tuple[str, ...]:
        """The columns that the call reads."""
        return self.args if self.arg is None else (self.arg, *self.args)

    def sql(self, alias: str) -> str:
        """The call over the input named `alias`."""
        if self.template:
            return refill(self.template, lambda hole: dotted((alias, self.args[int(hole)])))
        inner = "*" if self.arg is None else dotted((alias, self.arg))
        if self.cast:
            inner = f"CAST({inner} AS {self.cast})"
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{inner})"


@dataclass(frozen=True)
class Session:
    """Groups by time: consecutive rows of a group are less than `gap` (SQL) apart in `time`."""

    name: str
    time: str
    gap: str


@dataclass(frozen=True)
class Aggregate:
    """Groups of `input` by the columns `keys`; without calls it is DISTINCT.

    Without keys there is one group, which exists even when the input is empty. With `session` each
    group of keys is cut into sessions, and the session (a struct of start and end) is a column.
    `ttl`: milliseconds after its last write during which a group is known (0: forever).
    """

    input: Node
    keys: tuple[str, ...]
    calls: tuple[Call, ...]
    session: Session | None = None
    ttl: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        _unique(self.columns, "grouping output columns")
        args = tuple(arg for call in self.calls for arg in call.uses)
        times = (self.session.time,) if self.session is not None else ()
        for name in (*self.keys, *args, *times):
            if name not in self.input.columns:
                raise StreamSqlError("INTERNAL", "unknown column in GROUP BY", given=name)
        if not self.keys and not self.calls:
            raise StreamSqlError("INTERNAL", "an aggregate needs a key or a call")

    @property
    def columns(self) -> tuple[str, ...]:
        session = (self.session.name,) if self.session is not None else ()
        return (*self.keys, *session, *(call.name for call in self.calls))


@dataclass(frozen=True)
class Over:
    """One window function: its value `call`, its order and frame, over the partitions of a node.

    With `ties`, all columns break ties between rows that the order leaves equal.
    """

    name: str
    call: Expr
    order: tuple[Expr, ...]
    frame: str
    ties: bool


@dataclass(frozen=True)
class Window:
    """The rows of `input` (under the alias `i`) with the values of window functions added.

    All functions share the `partition` (empty: all rows are one). `sortable` are the columns that
    can break ties; `unlike` those that Spark cannot compare, with their types.
    """

    input: Node
    partition: tuple[str, ...]
    overs: tuple[Over, ...]
    sortable: tuple[str, ...]
    unlike: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        _unique(self.columns, "columns of a window")
        exprs = [expr for over in self.overs for expr in (over.call, *over.order)]
        _known(exprs, (Input("i", self.input),))
        if set(self.partition) - set(self.input.columns):
            raise StreamSqlError("INTERNAL", "a window is partitioned by columns of its input")

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.input.columns, *(over.name for over in self.overs))


@dataclass(frozen=True)
class Limit:
    """The first rows of `input` (under the alias `i`) after skipping `offset`, in `order`.

    Ties are broken by the columns `sortable`, and by the stand-ins of those that Spark cannot
    compare: `unlike`, with their types.
    """

    input: Node
    order: tuple[Expr, ...]
    limit: int | None
    offset: int
    sortable: tuple[str, ...]
    unlike: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        _known(self.order, (Input("i", self.input),))

    @property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns


@dataclass(frozen=True)
class Generate:
    """Each row of `input` (alias `i`) with each row that the generator `call` makes from it.

    `outer`: a row for which it makes none stays, with NULLs.
    """

    input: Node
    call: Expr
    names: tuple[str, ...]
    outer: bool

    def __post_init__(self) -> None:
        _unique(self.columns, "columns of a generator")
        _known((self.call,), (Input("i", self.input),))

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.input.columns, *self.names)


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


@dataclass(frozen=True)
class Merge:
    """How a column that several branches write gets its value.

    `column` may be a field path (`b.b2`). `function` is one of `MERGES`; `branches` are the
    names of those that write it: where the order decides, the first eligible one wins.
    With `sequence`, the one whose column of that name is the greatest wins.
    """

    column: str
    function: str
    branches: tuple[str, ...]
    sequence: str = ""


@dataclass(frozen=True)
class Branches:
    """One wide row for each key that some branch has, each branch writing its own columns.

    `inputs` are the branches by name, each with at most one row for a key: first the `keys`, then
    its `targets`, columns of the wide row or paths of their fields. `types` are the Spark types of
    the targets, `key_types` those of the keys. With an `anchor` only the keys of that branch
    are rows. `reuse`: one writer writes all branches.
    """

    inputs: tuple[Input, ...]
    keys: tuple[str, ...]
    key_types: tuple[str, ...]
    targets: tuple[tuple[str, ...], ...]
    types: tuple[tuple[str, ...], ...]
    merges: tuple[Merge, ...] = ()
    anchor: str = ""
    reuse: bool = True

    def __post_init__(self) -> None:
        _unique(tuple(child.alias for child in self.inputs), "branches")
        _unique(self.columns, "columns")
        for child, targets in zip(self.inputs, self.targets, strict=True):
            if len(child.node.columns) != len(self.keys) + len(targets):
                raise StreamSqlError("INTERNAL", f"columns of branch {child.alias}")

    @property
    def columns(self) -> tuple[str, ...]:
        paths = (path for targets in self.targets for path in targets)
        return (*self.keys, *dict.fromkeys(path.split(".")[0] for path in paths))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the branches."""
        return tuple(child.alias for child in self.inputs)


Node = (
    Scan | Constant | Select | Match | Aggregate | Window | Limit | Generate | UnionAll | Branches
)
Keyed = Aggregate | Window | Limit
"""Nodes whose rows depend on all the rows of one key, not on one row of each input."""


def keys_of(node: Keyed) -> tuple[str, ...]:
    """The columns by which the node can be computed key by key (none: only as a whole)."""
    if isinstance(node, Aggregate):
        return node.keys
    return node.partition if isinstance(node, Window) else ()


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Select | Branches):
        return tuple(child.node for child in node.inputs)
    if isinstance(node, Match):
        return (node.left.node, node.right.node)
    if isinstance(node, Aggregate | Window | Limit | Generate):
        return (node.input,)
    return node.inputs if isinstance(node, UnionAll) else ()


def is_join(node: Node) -> TypeGuard[Select]:
    """Whether it is an inner join."""
    return isinstance(node, Select) and len(node.inputs) > 1


def with_children(node: Node, made: tuple[Node, ...]) -> Node:
    """The node with other children, in the order of `children`."""
    if isinstance(node, Select | Branches):
        pairs = zip(node.inputs, made, strict=True)
        return replace(node, inputs=tuple(Input(child.alias, new) for child, new in pairs))
    if isinstance(node, Match):
        left, right = made
        return replace(
            node, left=Input(node.left.alias, left), right=Input(node.right.alias, right)
        )
    if isinstance(node, Aggregate | Window | Limit | Generate):
        return replace(node, input=made[0])
    return UnionAll(made) if isinstance(node, UnionAll) else node


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, parents first."""
    yield node
    for child in children(node):
        yield from walk(child)


def scans(node: Node) -> tuple[Scan, ...]:
    """The scans of a node, in order of appearance."""
    return tuple(leaf for leaf in walk(node) if isinstance(leaf, Scan))


def tables(node: Node) -> tuple[str, ...]:
    """The tables that are read, each once, in order of appearance."""
    return tuple(dict.fromkeys(scan.table for scan in scans(node)))
