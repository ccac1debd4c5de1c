"""One rule, one file: how the change of an operator follows from the changes of its inputs.

`delta` is the dispatcher; a rule returns the name of a frame: the operator's columns and a weight.
"""

from __future__ import annotations

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.plan.relational import (
    Aggregate,
    Branches,
    Constant,
    Generate,
    Match,
    Node,
    Scan,
    Select,
    UnionAll,
)


def delta(node: Node, emitter: Emitter) -> str:
    """The frame that holds the signed change of `node`; equal nodes share one.

    The frame has at least the columns of `node` and the weight.
    """
    found = emitter.deltas.get(node)
    if found is None:
        found = emitter.deltas[node] = _delta(node, emitter)
    return found


def _delta(node: Node, emitter: Emitter) -> str:
    from dbt_streamsql.compiler.rules import folded, generate, keyed, match, select, union_all

    if isinstance(node, Scan):
        return emitter.changes(node.table, node.ttl)
    if isinstance(node, Constant):
        return emitter.changes("")
    if isinstance(node, Select):
        return select.delta(node, emitter)
    if isinstance(node, Match):
        return match.delta(node, emitter)
    if isinstance(node, Generate):
        return generate.delta(node, emitter)
    if isinstance(node, UnionAll):
        return union_all.delta(node, emitter)
    assert not isinstance(node, Branches), "a wide table is the whole of a view"
    if isinstance(node, Aggregate) and folded.applies(node):
        return folded.delta(node, emitter)
    return keyed.delta(node, emitter)
