"""Compute groups only for the keys that the rows they are joined with can have.

A correlated sub-query is computed for the outer rows that there are. Once it is a join with a
grouping, the grouping covers every key, also those that a filter of the outer rows leaves out. So
its input is cut to the keys that pass the filter: with L = X ⋈ σ(T), and each row of L has the key
k of a row of σ(T),

    L ⟕ γ_k(R) = L ⟕ γ_k(R ⋉ σ(T))            ⋉ and ▷ in place of ⟕: the same

because a group has all of its rows or none of them, and no row of L asks for a group without
rows.
(Bernstein and Chiu 1981, semi-joins; Mumick et al. 1990, magic sets.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dbt_streamsql.compiler.lowering.schemas import Schemas
from dbt_streamsql.plan.algebra.expression import Expr, Ref
from dbt_streamsql.plan.algebra.relational import (
    Aggregate,
    Generate,
    Input,
    Keyed,
    Match,
    Node,
    Output,
    Scan,
    Select,
    Window,
    children,
    keys_of,
    with_children,
)

_EQUAL = "{0} = {1}"
_SELECTIVE = re.compile(r"\{0\} (=|LIKE|IN) (?!.*\{)")
"""A condition that few rows are expected to meet: a column and constants."""


def reduced(root: Node, schemas: Schemas) -> Node:
    """The tree whose groupings on the right side of a join read only the rows of keys that the
    left side can have, where a filter says which."""
    return _Reduction(schemas).visit(root)


@dataclass(frozen=True)
class _Reduction:
    schemas: Schemas

    def visit(self, node: Node) -> Node:
        made = with_children(node, tuple(self.visit(child) for child in children(node)))
        if not isinstance(made, Match) or made.kind == "full" or not _is_grouped(made.right.node):
            return made
        for own, other in self._pairs(made):
            keys = self._keys(made.left.node, own)
            right = self._cut(made.right.node, other, keys) if keys is not None else None
            if right is not None:
                made = replace(made, right=Input(made.right.alias, right))
        return made

    def _cut(self, node: Node, column: str, keys: Node) -> Node | None:
        """A grouping, or a projection of one, with the input cut to the keys in its `column`."""
        if isinstance(node, Select) and len(node.inputs) == 1:
            ref = _shown(node, column)
            below = self._cut(node.inputs[0].node, ref[1], keys) if ref is not None else None
            return with_children(node, (below,)) if below is not None else None
        if not isinstance(node, Aggregate | Window) or column not in keys_of(node):
            return None
        on = Expr(_EQUAL, (("l", column), ("r", keys.columns[0])))
        outputs = tuple(Output(name, Expr.column("l", name)) for name in node.input.columns)
        cut = Match("semi", Input("l", node.input), Input("r", keys), (on,), outputs, ())
        return with_children(node, (cut,))

    def _keys(self, node: Node, column: str) -> Select | None:
        """The values that a filter of a table below the node leaves its `column`; None where no
        filter says so."""
        if isinstance(node, Select):
            ref = _shown(node, column)
            same = self._same(node, ref) if ref is not None else ()
            inputs = {child.alias: child for child in node.inputs}
            found = (self._filtered(node, inputs[a], c) for a, c in same)
            return next((keys for keys in found if keys is not None), None)
        if isinstance(node, Match):
            return self._keys_of_match(node, column)
        if isinstance(node, Keyed | Generate) and column in node.input.columns:
            return self._keys(node.input, column)
        return None

    def _keys_of_match(self, node: Match, column: str) -> Select | None:
        ref = _shown(node, column)
        if ref is None or ref[0] != node.left.alias or node.kind == "full":
            return None
        for own, other in self._pairs(node) if node.kind == "semi" else ():
            if own == ref[1] and (keys := self._keys(node.right.node, other)) is not None:
                return keys
        return self._keys(node.left.node, ref[1])

    def _filtered(self, node: Select, child: Input, column: str) -> Select | None:
        if not isinstance(child.node, Scan):
            return self._keys(child.node, column)
        own = tuple(expr for expr in node.where if expr.aliases == {child.alias})
        if not any(_SELECTIVE.match(expr.template) for expr in own):
            return None
        return Select((child,), own, (Output(column, Expr.column(child.alias, column)),))

    def _same(self, node: Select, ref: Ref) -> list[Ref]:
        """The columns that equal one in each row of a join, itself first."""
        same = [ref]
        for found in same:
            for expr in node.where:
                if found in expr.refs and self._is_equality(expr, node.inputs):
                    same += [other for other in expr.refs if other not in same]
        return same

    def _pairs(self, node: Match) -> Iterator[tuple[str, str]]:
        """The columns of the left and of the right side that are equal where rows are partners."""
        sides = (node.left, node.right)
        for expr in node.on:
            if len(expr.aliases) == len(sides) and self._is_equality(expr, sides):
                own, other = sorted(expr.refs, key=lambda ref: ref[0] != node.left.alias)
                yield own[1], other[1]

    def _is_equality(self, expr: Expr, inputs: tuple[Input, ...]) -> bool:
        """Whether two columns of one type are equal: then a third one equals both or none."""
        if expr.template != _EQUAL:
            return False
        nodes = {child.alias: child.node for child in inputs}
        columns = [{c.name: c for c in self.schemas.of(nodes[a])}[name] for a, name in expr.refs]
        return len({column.type for column in columns}) == 1


def _is_grouped(node: Node) -> bool:
    """Whether the rows are those of groups, or of partitions."""
    while isinstance(node, Select) and len(node.inputs) == 1:
        node = node.inputs[0].node
    return isinstance(node, Aggregate | Window)


def _shown(node: Select | Match, column: str) -> Ref | None:
    """The column that an output shows as it is."""
    return next(output.expr.as_column for output in node.outputs if output.name == column)
