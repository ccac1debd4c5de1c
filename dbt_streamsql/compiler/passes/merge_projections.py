"""Merge projections and filters: fewer nested queries, and keys that stay visible."""

from __future__ import annotations

from dbt_streamsql.plan.algebra.expression import Expr, Ref
from dbt_streamsql.plan.algebra.relational import (
    Input,
    Node,
    Output,
    Scan,
    Select,
    children,
    with_children,
)


def merge(node: Node) -> Node:
    """The same rows, with nested SELECTs merged into one wherever possible.

    Time windows (`window(…)`) make rows in a projection, so their readers stay apart.
    """
    node = with_children(node, tuple(merge(child) for child in children(node)))
    if not isinstance(node, Select):
        return node
    if len(node.inputs) == 1:
        below = node.inputs[0].node
        if isinstance(below, Select) and not _makes_rows(below):
            return _into(node, node.inputs[0].alias, below, {})
        return node
    for child in node.inputs:
        below = child.node
        if not isinstance(below, Select) or len(below.inputs) != 1 or _makes_rows(below):
            continue
        if not isinstance(below.inputs[0].node, Scan):
            continue
        node = _into(node, child.alias, below, {below.inputs[0].alias: child.alias})
    return node


def _makes_rows(node: Select) -> bool:
    return any("window(" in output.expr.template.lower() for output in node.outputs)


def _into(node: Select, alias: str, below: Select, names: dict[str, str]) -> Select:
    """Read the inputs of `below` in its place, with the aliases renamed by `names`."""

    def placed(expr: Expr) -> Expr:
        moved: dict[Ref, Expr] = {
            ref: Expr.column(names.get(ref[0], ref[0]), ref[1]) for ref in expr.refs
        }
        return expr.over(moved)

    values = {(alias, output.name): placed(output.expr) for output in below.outputs}
    inputs: list[Input] = []
    for child in node.inputs:
        if child.alias != alias:
            inputs.append(child)
            continue
        inputs += [Input(names.get(part.alias, part.alias), part.node) for part in below.inputs]
    where = (*(expr.over(values) for expr in node.where), *(placed(expr) for expr in below.where))
    outputs = tuple(Output(output.name, output.expr.over(values)) for output in node.outputs)
    return Select(tuple(inputs), where, outputs)
