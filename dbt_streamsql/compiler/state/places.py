"""Where a query has parts that can be stored, and what their rows are.

There are three kinds: the *rows* of an operator; the *keys* of a side of a join, which say whether
a row of the other side has a partner; and a *copy* of what a join reads, narrow and in the order
of the column that joins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dbt_streamsql.compiler.codegen.equal_columns import EQUALITIES
from dbt_streamsql.compiler.lowering.view import top
from dbt_streamsql.compiler.passes.prune_columns import prune
from dbt_streamsql.compiler.rules.match import partner_columns, sides
from dbt_streamsql.plan.algebra.expression import Expr, columns_of
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Input,
    Limit,
    Match,
    Node,
    Output,
    Scan,
    Select,
    Window,
    children,
    is_join,
    tables,
    walk,
)

Spot = tuple[Literal["rows", "keys", "copy"], int, str]
"""A kind, the number of an operator (see `Operator.id`), and for keys and copies an alias of it:
the rows of the operator, or the keys or a copy of that input of a join."""


@dataclass(frozen=True)
class PartPlace:
    """A part, where a query has it.

    `number`: of its topmost operator; for keys that of the join. `rows`: the query of its rows.
    `first`: the column that a copy is ordered by. `around`: the positions, among all places, of
    those that make this one needless when they are stored.
    """

    spot: Spot
    number: int
    rows: Node
    first: str = ""
    around: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        return self.spot[0]


def places_of(root: Node) -> tuple[PartPlace, ...]:
    """All places of a query where it has a part; the outer ones first."""
    finder = _Finder(numbers_of(root), _rows_of_view(root))
    finder.visit(root, ())
    return tuple(finder.found)


def numbers_of(root: Node) -> dict[int, int]:
    """The number of each operator, by the identity of its node."""
    numbers: dict[int, int] = {}
    for number, node in enumerate(walk(root), 1):
        numbers.setdefault(id(node), number)
    return numbers


@dataclass
class _Finder:
    numbers: dict[int, int]
    rows_of_view: set[int]
    found: list[PartPlace] = field(default_factory=list)

    def visit(self, node: Node, around: tuple[int, ...], *, copies: bool = False) -> None:
        """Find the places in a node; `copies`: those of copies only."""
        number = self.numbers[id(node)]
        if not copies and id(node) not in self.rows_of_view and _has_rows(node):
            place = PartPlace(("rows", number, ""), number, node, "", around)
            around = (*around, self._add(place))
            # What is below a grouping, a window or a limit are parts of its own query.
            copies = is_stateful(node)
        asked: dict[str, int] = {}
        """The sides of a semi or anti join that are read for their keys only."""
        if isinstance(node, Match) and not copies:
            for own, partners in sides(node):
                if keys := _keys(node, own, partners):
                    spot: Spot = ("keys", number, partners.alias)
                    at = self._add(PartPlace(spot, number, keys, "", around))
                    if node.kind in {"semi", "anti"}:
                        asked[partners.alias] = at
        for child in inputs_of(node):
            at_keys = child.alias in asked
            within = (*around, asked[child.alias]) if at_keys else around
            if rows := _copied(node, child):
                spot = ("copy", number, child.alias)
                self._add(PartPlace(spot, self.numbers[id(child.node)], *rows, within))
            else:
                self.visit(child.node, within, copies=copies or at_keys)
        if not inputs_of(node):
            for each in children(node):
                self.visit(each, around, copies=copies)

    def _add(self, place: PartPlace) -> int:
        self.found.append(place)
        return len(self.found) - 1


def _rows_of_view(root: Node) -> set[int]:
    """The operators whose rows are those of the view, or more of their columns."""
    found = top(root)
    rows = {id(found[0])} if found is not None else set[int]()
    node = root
    while isinstance(node, Select):
        rows.add(id(node))
        if len(node.inputs) != 1:
            break
        node = node.inputs[0].node
    return rows | {id(node)} if isinstance(node, Match) else rows


def inputs_of(node: Node) -> tuple[Input, ...]:
    """The inputs of a join; () of any other operator."""
    if isinstance(node, Match):
        return node.left, node.right
    return node.inputs if is_join(node) else ()


def _has_rows(node: Node) -> bool:
    """Whether the rows of an operator are a part."""
    outer = isinstance(node, Match) and node.kind in {"left", "full"}
    return (is_stateful(node) or is_join(node) or outer) and _is_of_tables(node)


def _is_of_tables(node: Node) -> bool:
    read = tables(node)
    return bool(read) and CLOCK not in read


def is_stateful(node: Node) -> bool:
    return isinstance(node, Aggregate | Window | Limit)


def _keys(node: Match, rows: Input, partners: Input) -> Node | None:
    """The distinct keys of the partners; None where they do not decide about partners, or are not
    worth it: an inner grouping, window or limit there is a part itself."""
    columns = partner_columns(node, rows, partners)
    below, _ = source(partners.node, columns)
    if not columns or not _is_of_tables(partners.node) or is_stateful(below):
        return None
    return prune(Aggregate(partners.node, columns, ()))


def source(node: Node, columns: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
    """What filters and projections read, and which of the columns are its own."""
    while isinstance(node, Select) and len(node.inputs) == 1:
        shown = {output.name: output.expr.as_column for output in node.outputs}
        columns = tuple(ref[1] for name in columns if (ref := shown[name]) is not None)
        node = node.inputs[0].node
    return node, columns


def _copied(node: Node, child: Input) -> tuple[Node, str] | None:
    """What a join reads of an input, filtered by its conditions over that input alone, and the
    column by which it joins; None where the input is not a table, or joins by no column."""
    assert isinstance(node, Select | Match)
    below, _ = source(child.node, ())
    own, rest = conditions(node, child.alias)
    equal = (e for e in rest if e.template in EQUALITIES and len(e.aliases) == 2)
    columns = [column for expr in equal for at, column in expr.refs if at == child.alias]
    if not columns or not isinstance(below, Scan) or not _is_of_tables(below):
        return None
    used = columns_of((*rest, *(output.expr for output in node.outputs)), child.alias)
    shown = (name for name in child.node.columns if name in used)
    outputs = tuple(Output(name, Expr.column(child.alias, name)) for name in shown)
    return prune(Select((child,), own, outputs)), columns[0]


def conditions(node: Select | Match, alias: str) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The conditions of an inner join over one input alone, and the others; all conditions of any
    other join decide about partners."""
    if isinstance(node, Match):
        return (), node.on
    own = tuple(expr for expr in node.where if expr.aliases == {alias})
    return own, tuple(expr for expr in node.where if expr.aliases != {alias})
