"""One SELECT block under construction: its relations so far, and how its names resolve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from dbt_streamsql.compiler.binding.scalar import check_scalar, to_expr
from dbt_streamsql.compiler.parsing.dialect import to_sql
from dbt_streamsql.compiler.parsing.unsupported import obstacle
from dbt_streamsql.plan.algebra.expression import Expr, Ref
from dbt_streamsql.plan.algebra.relational import (
    Input,
    Node,
    Output,
    Select,
)

_CLOSED = "b"
"""The alias of the relations of a block after they have become one input."""


@dataclass
class Block:
    """Joined inputs, conditions, and the location of each name of the text.

    `names` maps the `alias.column` of the text to a column of an input, `swaps` maps expressions
    that are already computed. `outer` is the block around a correlated sub-query.
    """

    builtin: frozenset[str]
    outer: Block | None = None
    inputs: list[Input] = field(default_factory=list)
    where: list[Expr] = field(default_factory=list)
    names: dict[Ref, Ref] = field(default_factory=dict)
    swaps: dict[exp.Expr, Ref] = field(default_factory=dict)

    def add(self, alias: str, node: Node) -> str:
        """Read one more relation under an alias; returns the alias of the input."""
        taken = {child.alias for child in self.inputs}
        inside = fresh(alias, taken)
        self.inputs.append(Input(inside, node))
        self.names.update({(alias, column): (inside, column) for column in node.columns})
        return inside

    def take(self, other: Block) -> None:
        """Read the relations of another block, under its names."""
        other.close()
        before = dict(self.names)
        inside = self.add(_CLOSED, other.only)
        self.names = {**before, **{name: (inside, ref[1]) for name, ref in other.names.items()}}

    def find(self, column: exp.Expr) -> Ref | None:
        """The location of a column, or of a value already computed; None when unknown."""
        swapped = self.swaps.get(column)
        if swapped is not None or not isinstance(column, exp.Column):
            return swapped
        if column.table:
            return self.names.get((column.table, column.name))
        found = {ref for (_, name), ref in self.names.items() if name == column.name}
        return found.pop() if len(found) == 1 else None

    def expr(self, node: exp.Expr) -> Expr:
        """An expression over the inputs of this block alone; raises `Unsupported`."""
        return self._expr(node)

    def correlated(self, node: exp.Expr) -> bool:
        """Whether an expression names a column of the block around this one."""
        return self.outer is not None and any(
            self.find(column) is None for column in self.free(node)
        )

    def free(self, node: exp.Expr) -> list[exp.Expr]:
        """The columns that an expression names; a value already computed counts as one."""
        if node in self.swaps or isinstance(node, exp.Column):
            return [node]
        return [found for part in node.iter_expressions() for found in self.free(part)]

    def expr_of_generator(self, node: exp.Expr) -> Expr:
        """Like `expr`, for a generator call."""
        return self._expr(node, generator=True)

    def swapped(self, node: exp.Expr) -> exp.Expr:
        """An expression whose columns name the inputs of this block; raises `Unsupported`."""

        def swap(part: exp.Expr) -> exp.Expr:
            ref = self.swaps.get(part)
            if ref is None and isinstance(part, exp.Column):
                ref = self.find(part)
                if ref is None:
                    raise obstacle(part, to_sql(part), "neither grouped nor aggregated")
            if ref is None:
                return part
            return exp.column(exp.to_identifier(ref[1]), table=exp.to_identifier(ref[0]))

        return node.transform(swap)

    def _expr(self, node: exp.Expr, *, generator: bool = False) -> Expr:
        swapped = self.swapped(node)
        if generator:
            for part in swapped.iter_expressions():
                check_scalar(part, self.builtin)
        else:
            check_scalar(swapped, self.builtin)
        return to_expr(swapped)

    def close(self, computed: Iterable[Output] = ()) -> Input:
        """Turn everything read so far into one input, with all columns and the computed ones."""
        extra = list(computed)
        taken = {output.name for output in extra}
        moved: dict[Ref, Ref] = {}
        outputs: list[Output] = []
        for child in self.inputs:
            for column in child.node.columns:
                name = fresh(column, taken)
                outputs.append(Output(name, Expr.column(child.alias, column)))
                moved[child.alias, column] = (_CLOSED, name)
        self.become(Select(tuple(self.inputs), tuple(self.where), (*outputs, *extra)), moved)
        return self.inputs[0]

    def become(self, node: Node, moved: Mapping[Ref, Ref]) -> None:
        """Read only `node` from here on; `moved` maps the old columns to its columns."""
        self.inputs, self.where = [Input(_CLOSED, node)], []
        self.names = {name: moved[ref] for name, ref in self.names.items() if ref in moved}
        self.swaps = {part: moved[ref] for part, ref in self.swaps.items() if ref in moved}

    def keep(self, node: Node) -> None:
        """Replace the one input by a node with the same columns, and possibly more."""
        self.become(node, {(_CLOSED, column): (_CLOSED, column) for column in node.columns})

    def swap(self, part: exp.Expr, column: str) -> None:
        """From here on, replace an expression by that column of the one input."""
        self.swaps[part] = (_CLOSED, column)

    @property
    def only(self) -> Node:
        """The one input of a closed block."""
        assert len(self.inputs) == 1
        return self.inputs[0].node

    def project(self, outputs: Iterable[Output]) -> Select:
        """The block as a node."""
        return Select(tuple(self.inputs), tuple(self.where), tuple(outputs))


def fresh(wanted: str, taken: set[str]) -> str:
    """A name like `wanted` that is not taken; adds it to `taken`."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name
