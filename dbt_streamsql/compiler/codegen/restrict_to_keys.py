"""Restrict a relation to the rows that a few keys need, as close to the tables as possible.

A semi-join above a join, a grouping or a window would compute all of it first. The rows read from
the tables are a superset of the rows of those keys, complete for each key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dbt_streamsql.compiler.codegen.equal_columns import EQUALITIES
from dbt_streamsql.plan.algebra.expression import Expr, Ref
from dbt_streamsql.plan.algebra.relational import (
    Aggregate,
    Chosen,
    Generate,
    Input,
    Match,
    Node,
    Output,
    Scan,
    Select,
    UnionAll,
    Window,
    keys_of,
    with_children,
)


@dataclass(frozen=True)
class Link:
    """What a column must equal: a column of the keys, by `operator`.

    `same`: it has the type of the key, so a value that equals the column also equals the key.
    """

    key: str
    operator: str = "<=>"
    same: bool = True


def restrict(node: Node, frame: str, links: Mapping[str, Link]) -> Node:
    """The node when only rows that match some row of `frame` in the linked columns matter.

    Returns the same node when nothing below it can be restricted.
    """
    if isinstance(node, Scan):
        found = {name: link for name, link in links.items() if name in node.columns}
        pairs = tuple((name, link.operator, link.key) for name, link in found.items())
        return Chosen(node.table, node.columns, frame, pairs, ttl=node.ttl) if pairs else node
    if isinstance(node, Select):
        refs = _through(node.outputs, links)
        refs = _across(node.where, refs) | refs
        return with_children(node, tuple(_input(child, frame, refs) for child in node.inputs))
    if isinstance(node, Match):
        if node.kind == "full":
            return node
        # A missing row of the right side produces a different row of the left side.
        alias = node.left.alias
        refs = {
            ref: link for ref, link in _through(node.outputs, links).items() if ref[0] == alias
        }
        refs = _across(node.on, refs) | refs
        return with_children(
            node, (_input(node.left, frame, refs), _input(node.right, frame, refs))
        )
    if isinstance(node, Aggregate | Window):
        keys = {name: link for name, link in links.items() if name in keys_of(node)}
        return with_children(node, (restrict(node.input, frame, keys),))
    if isinstance(node, Generate):
        own = {name: link for name, link in links.items() if name in node.input.columns}
        return with_children(node, (restrict(node.input, frame, own),))
    if isinstance(node, UnionAll):
        sides = (
            restrict(
                side,
                frame,
                {
                    own: Link(links[name].key, links[name].operator, same=False)
                    for own, name in zip(side.columns, node.columns, strict=True)
                    if name in links
                },
            )
            for side in node.inputs
        )
        return with_children(node, tuple(sides))
    return node


def _input(child: Input, frame: str, refs: Mapping[Ref, Link]) -> Node:
    links = {name: link for (alias, name), link in refs.items() if alias == child.alias}
    return restrict(child.node, frame, links) if links else child.node


def _through(outputs: Iterable[Output], links: Mapping[str, Link]) -> dict[Ref, Link]:
    """The columns below that the linked columns pass through unchanged."""
    found: dict[Ref, Link] = {}
    for output in outputs:
        ref = output.expr.as_column
        if ref is not None and output.name in links:
            found[ref] = links[output.name]
    return found


def _across(where: Iterable[Expr], refs: Mapping[Ref, Link]) -> dict[Ref, Link]:
    """The columns that a condition makes equal to linked ones."""
    found: dict[Ref, Link] = {}
    for expr in where:
        operator = EQUALITIES.get(expr.template)
        if operator is None:
            continue
        for known, other in (expr.refs, expr.refs[::-1]):
            if known in refs and refs[known].same:
                found[other] = Link(refs[known].key, operator, same=False)
    return found
