"""Merge projections, filters and joins: fewer nested queries, and keys that stay visible."""

from __future__ import annotations

from collections.abc import Collection

from dbt_streamsql.plan.algebra.expression import Expr, Ref
from dbt_streamsql.plan.algebra.relational import (
    Aggregate,
    Input,
    Match,
    Node,
    Output,
    Scan,
    Select,
    Window,
    children,
    walk,
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


def is_costly(node: Node) -> bool:
    """Whether a node, or one below it, is computed for as few keys as possible."""
    return any(isinstance(part, Aggregate | Window | Match) for part in walk(node))


def flattened(node: Select, start: str) -> tuple[Select, dict[str, str]]:
    """The join with the inputs of inner joins below it in their place, except below its input
    `start`; and for the alias of each input, that of the input of `node` that it comes from.

    Spark then joins them one after the other with the few rows of `start`; below, it would join
    the whole tables first.
    """
    origins = {child.alias: child.alias for child in node.inputs}
    waiting = [alias for alias in origins if alias != start]
    while waiting:
        alias = waiting.pop()
        below = next(child.node for child in node.inputs if child.alias == alias)
        if not isinstance(below, Select) or is_costly(below) or _makes_rows(below):
            continue
        names: dict[str, str] = {}
        for part in below.inputs:
            names[part.alias] = _free(f"{alias}_{part.alias}", {*origins, *names.values()})
        node = _into(node, alias, below, names)
        origins |= dict.fromkeys(names.values(), origins[alias])
        waiting += names.values()
    return node, origins


def _free(wanted: str, taken: Collection[str]) -> str:
    """An alias that Spark, which ignores case, does not take for another one."""
    lower = {name.lower() for name in taken}
    while wanted.lower() in lower:
        wanted += "_"
    return wanted


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
