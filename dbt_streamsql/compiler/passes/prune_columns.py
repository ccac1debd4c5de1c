"""Prune every node to the columns in use, so that changes are narrow and cancel early."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from dbt_streamsql.plan.algebra.expression import Expr, columns_of
from dbt_streamsql.plan.algebra.relational import (
    Aggregate,
    Branches,
    Constant,
    Generate,
    Input,
    Limit,
    Match,
    Node,
    Output,
    Scan,
    Select,
    UnionAll,
    Window,
)

Tied = TypeVar("Tied", Window, Limit)


def prune(node: Node, needed: frozenset[str] | None = None) -> Node:
    """The same rows with only `needed` columns (None: all), in the same order.

    A node keeps at least one column: a bag of rows without columns cannot be written in SQL.
    """
    wanted = frozenset(node.columns) if needed is None else needed
    kept = tuple(name for name in node.columns if name in wanted) or node.columns[:1]
    if isinstance(node, Scan):
        return replace(node, columns=kept)
    if isinstance(node, Constant):
        return node
    if isinstance(node, Branches):
        inputs = tuple(Input(child.alias, prune(child.node)) for child in node.inputs)
        return replace(node, inputs=inputs)
    if isinstance(node, Select):
        outputs = tuple(output for output in node.outputs if output.name in kept)
        exprs = (*node.where, *(output.expr for output in outputs))
        inputs = tuple(_input(child, exprs) for child in node.inputs)
        return Select(inputs, node.where, outputs)
    if isinstance(node, Match):
        outputs = tuple(output for output in node.outputs if output.name in kept)
        exprs = (*node.on, *(output.expr for output in outputs))
        left, right = _input(node.left, exprs), _input(node.right, exprs)
        return replace(node, left=left, right=right, outputs=outputs)
    if isinstance(node, Aggregate):
        return _aggregate(node, wanted)
    if isinstance(node, Window):
        return _window(node, wanted)
    if isinstance(node, Limit):
        used = wanted | columns_of(node.order, "i")
        below = prune(node.input, used)
        return _with_ties(replace(node, input=below))
    if isinstance(node, Generate):
        return replace(node, input=prune(node.input, wanted | columns_of([node.call], "i")))
    positions = [node.columns.index(name) for name in kept]
    return UnionAll(
        tuple(_exactly(child, [child.columns[at] for at in positions]) for child in node.inputs)
    )


def _exactly(node: Node, names: list[str]) -> Node:
    """A side of a union with exactly these columns, in this order."""
    below = prune(node, frozenset(names))
    if list(below.columns) == names:
        return below
    outputs = tuple(Output(name, Expr.column("s", name)) for name in names)
    return Select((Input("s", below),), (), outputs)


def _input(child: Input, exprs: tuple[Expr, ...]) -> Input:
    return Input(child.alias, prune(child.node, frozenset(columns_of(exprs, child.alias))))


def _aggregate(node: Aggregate, wanted: frozenset[str]) -> Node:
    calls = tuple(call for call in node.calls if call.name in wanted)
    calls = calls if calls or node.keys else node.calls[:1]
    time = (node.session.time,) if node.session is not None else ()
    used = frozenset((*node.keys, *time, *(name for call in calls for name in call.uses)))
    return replace(node, input=prune(node.input, used), calls=calls)


def _window(node: Window, wanted: frozenset[str]) -> Node:
    overs = tuple(over for over in node.overs if over.name in wanted)
    if not overs:
        return prune(node.input, wanted)
    exprs = [expr for over in overs for expr in (over.call, *over.order)]
    used = (wanted & set(node.input.columns)) | columns_of(exprs, "i") | set(node.partition)
    below = prune(node.input, frozenset(used))
    return _with_ties(replace(node, input=below, overs=overs))


def _with_ties(node: Tied) -> Tied:
    """The node, its tie-breakers limited to the columns of its input."""
    left = set(node.input.columns)
    return replace(
        node,
        sortable=tuple(name for name in node.sortable if name in left),
        unlike=tuple(pair for pair in node.unlike if pair[0] in left),
    )
