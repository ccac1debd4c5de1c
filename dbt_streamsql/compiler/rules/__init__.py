"""One rule, one file: how the change of an operator follows from the changes of its inputs.

`delta` is the dispatcher; a rule returns the name of a frame: the operator's columns and a weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.plan.algebra.relational import (
    Aggregate,
    Constant,
    Generate,
    Limit,
    Match,
    Node,
    Scan,
    Select,
    UnionAll,
    Window,
)


def delta(node: Node, emitter: Emitter) -> str:
    """The frame that holds the signed change of `node`; equal nodes share one.

    The frame has at least the columns of `node` and the weight.
    """
    found = emitter.deltas.get(node)
    if found is None:
        found = emitter.deltas[node] = _delta(node, emitter)
    return found


_RULES: Mapping[type[Any], str] = {
    Aggregate: "keyed",
    Generate: "generate",
    Limit: "keyed",
    Match: "match",
    Select: "select",
    UnionAll: "union_all",
    Window: "keyed",
}
"""The module of each operator's rule. Rules call `delta` for what they read, so they are imported
when they are first used."""


def _delta(node: Node, emitter: Emitter) -> str:
    if isinstance(node, Scan):
        return emitter.changes(node.table, node.ttl)
    if isinstance(node, Constant):
        return emitter.changes("")
    name = _RULES[type(node)]
    if isinstance(node, Aggregate) and _rule("grouped_sums").applies(node):
        name = "grouped_sums"
    found: str = _rule(name).delta(node, emitter)
    return found


def _rule(name: str) -> Any:
    return import_module(f"{__package__}.{name}")
