"""Cut every node to the columns in use, so that changes are narrow and cancel early."""

from __future__ import annotations

from dbt_streamsql.plan.expression import columns_of
from dbt_streamsql.plan.relational import Aggregate, Input, Node, Scan, Select, UnionAll


def prune(node: Node, needed: frozenset[str] | None = None) -> Node:
    """The same rows with only `needed` columns (None: all), in the old order.

    A node keeps at least one column: a bag of rows without columns cannot be written in SQL.
    """
    wanted = frozenset(node.columns) if needed is None else needed
    kept = tuple(name for name in node.columns if name in wanted) or node.columns[:1]
    if isinstance(node, Scan):
        return Scan(node.table, kept)
    if isinstance(node, Select):
        outputs = tuple(output for output in node.outputs if output.name in kept)
        exprs = (*node.where, *(output.expr for output in outputs))
        inputs = tuple(
            Input(child.alias, prune(child.node, frozenset(columns_of(exprs, child.alias))))
            for child in node.inputs
        )
        return Select(inputs, node.where, outputs)
    if isinstance(node, Aggregate):
        calls = tuple(call for call in node.calls if call.name in wanted)
        calls = calls if calls or node.keys else node.calls[:1]
        used = frozenset((*node.keys, *(call.arg for call in calls if call.arg is not None)))
        return Aggregate(prune(node.input, used), node.keys, calls)
    positions = [node.columns.index(name) for name in kept]
    return UnionAll(
        tuple(
            prune(child, frozenset(child.columns[position] for position in positions))
            for child in node.inputs
        )
    )
