"""Relational trees as JSON data, for people, tools and stored plans."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dbt_streamsql.plan.algebra.relational import Input
from dbt_streamsql.plan.program.tags import NODE_KINDS, tag_of


def tree_of(node: Any) -> Any:
    """A tree as data; `node_of` is the inverse."""
    if hasattr(node, "__dataclass_fields__"):
        parts = {name: tree_of(getattr(node, name)) for name in node.__dataclass_fields__}
        return {"node": tag_of(node), **parts}
    return [tree_of(item) for item in node] if isinstance(node, tuple) else node


def node_of(tree: Any) -> Any:
    """The relational tree that a plan holds as JSON data."""
    if isinstance(tree, list | tuple):
        return tuple(map(node_of, tree))
    if not isinstance(tree, dict):
        return tree
    if isinstance(tree["node"], dict):  # the field of that name hides the node's tag
        return Input(tree["alias"], node_of(tree["node"]))
    kind = NODE_KINDS[tree["node"]]
    known = [field.name for field in fields(kind) if field.name in tree]
    return kind(**{name: node_of(tree[name]) for name in known})
