"""A plan file as text: its operators as a tree, and the state that is kept forever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dbt_streamsql.plan.document import PlanDocument, PlanNode
from dbt_streamsql.plan.state import State

_EQUAL = ("{0} = {1}", "{0} <=> {1}")


def explain(document: PlanDocument) -> str:
    """The operators, parents first, with their changelog, keys, strategy and state."""
    table = document.table or "view"
    lines = [f"{table}: {document.mode}, {document.strategy}; written by {document.engine}"]
    if document.mode == "full":
        lines.append("  it is recomputed from its query and keeps no state")
    depths = {document.nodes[0].id: 0} if document.nodes else {}
    for node in document.nodes:
        depths |= dict.fromkeys(node.inputs, depths[node.id] + 1)
        lines += _lines(node, "  " * (depths[node.id] + 1))
    return "\n".join([*lines, *kept_for_ever(document)])


def _lines(node: PlanNode, pad: str) -> Iterator[str]:
    keys = f", key {', '.join(node.keys)}" if node.keys else ""
    yield f"{pad}{node.id}: {node.description} ({node.type}, {node.changelog}{keys})"
    if node.strategy:
        yield f"{pad}   {node.strategy}"
    if node.stored is not None:
        stored = "stored in a state table" if node.stored else "can be stored, and is not"
        yield f"{pad}   {stored}"
    if node.state is None:
        yield f"{pad}   its state is kept for as long as the model's config says"
    for state in node.state or ():
        why = f" ({state.fixed})" if state.fixed else ""
        yield f"{pad}   {state.name}: {state.lasts}{_by(node.spec, state)}{why}"


def kept_for_ever(document: PlanDocument) -> list[str]:
    """A warning for each state without TTL: the operator, and the key by which it grows."""
    return [
        unbounded(node.id, node.description, node.spec, state)
        for node in document.nodes
        for state in node.state or ()
        if not state.ttl
    ]


def unbounded(number: int, name: str, spec: Mapping[str, Any], state: State) -> str:
    """The warning for one state. `spec`: the node as data, with or without its children."""
    return f"kept for ever: {state.name} of node {number}, {name}{_by(spec, state)}"


def nodes_of(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The nodes of a plan's tree as data, in the order of their numbers."""
    yield tree
    below = [*tree.get("inputs", ()), *(tree.get(side) for side in ("left", "right", "input"))]
    for child in below:
        if child:
            # An input has its node next to the alias.
            node = child["node"] if isinstance(child["node"], Mapping) else child
            yield from nodes_of(node)


def _by(spec: Mapping[str, Any], state: State) -> str:
    keys = _key(spec, state.index)
    return f", by {', '.join(keys)}" if keys else ""


def _key(spec: Mapping[str, Any], index: int) -> list[str]:
    """The columns by which a node looks up or groups its input."""
    if "partition" in spec:
        return list(spec["partition"])
    sides = [spec[side] for side in ("left", "right") if side in spec] or spec.get("inputs", [])
    if not sides:
        return list(spec.get("keys", ()))
    names = [side if isinstance(side, str) else side.get("alias", "") for side in sides]
    asked = spec.get("where") or spec.get("on") or ()
    refs = [ref for each in asked if each["template"] in _EQUAL for ref in each["refs"]]
    return list(dict.fromkeys(column for alias, column in refs if alias == names[index]))
