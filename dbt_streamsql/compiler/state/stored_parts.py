"""Cut a view's query where a part of it may be stored: the rows of that part are then read from a
state table, and its changes from the versions of that table.

Without it, the old and new values of an inner grouping are computed from its inputs in each epoch
(`rules/keyed.py`); with it, they are the rows that the epoch changes in the state table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace

from dbt_streamsql.compiler.codegen.render_sql import plain
from dbt_streamsql.compiler.codegen.tree_json import node_of, tree_of
from dbt_streamsql.compiler.lowering.view import top
from dbt_streamsql.compiler.passes.merge_projections import merge
from dbt_streamsql.compiler.state.normal_form import Names, normal_form
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Input,
    Limit,
    Node,
    Output,
    Scan,
    Select,
    Window,
    children,
    tables,
    walk,
    with_children,
)
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.stored_part import StoredPart
from dbt_streamsql.plan.operators import Operator

_ID = 16
"""Characters of a part's id."""


def parts_of(root: Node) -> tuple[StoredPart, ...]:
    """The parts of a query that can be stored: groupings, windows and limits below its top, the
    outermost ones. What is below them are parts of their own queries.

    A part that depends on the time of the barrier is none; a query that forgets has none.
    """
    if any(getattr(node, "ttl", 0) for node in walk(root)):
        return ()
    found: dict[str, StoredPart] = {}
    for number, node in _places(root):
        form, _ = _stored_form(node)
        digest = hashlib.sha256(json.dumps(tree_of(form)).encode()).hexdigest()[:_ID]
        part = found.get(digest) or StoredPart(digest, (), plain(form), tables(form))
        found[digest] = replace(part, operators=(*part.operators, number))
    return tuple(found.values())


def parts_in(plan: CompiledPlan) -> tuple[StoredPart, ...]:
    """The parts of a view's query that can be stored, whether they are or not."""
    if plan.mode != "incremental" or plan.unversioned:
        return ()
    return parts_of(node_of(plan.tree))


def cut(root: Node, parts: tuple[StoredPart, ...]) -> Node:
    """The query with its stored parts read from their tables."""
    stored = {number: part.stored for part in parts for number in part.operators}
    wanted = {id(node): stored[number] for number, node in _places(root) if number in stored}

    def visit(node: Node) -> Node:
        if id(node) in wanted:
            return _read(node, wanted[id(node)])
        return with_children(node, tuple(visit(child) for child in children(node)))

    return merge(visit(root)) if wanted else root


def _places(root: Node) -> Iterator[tuple[int, Node]]:
    """The topmost operators of the parts, with their numbers."""
    found = top(root)
    best = found[0] if found is not None else None
    numbers: dict[int, int] = {}
    for number, node in enumerate(walk(root), 1):
        numbers.setdefault(id(node), number)

    def visit(node: Node) -> Iterator[tuple[int, Node]]:
        if node is not best and _can_be_stored(node):
            yield numbers[id(node)], node
            return
        for child in children(node):
            yield from visit(child)

    yield from visit(root)


def _can_be_stored(node: Node) -> bool:
    read = tables(node)
    return isinstance(node, Aggregate | Window | Limit) and bool(read) and CLOCK not in read


def _stored_form(node: Node) -> tuple[Select, Names]:
    """The query of a state table, under names that do not depend on the view, and the column of
    the table for each of the node."""
    form, names = normal_form(node)
    place = {name: f"c{at}" for at, name in enumerate(form.columns)}
    outputs = tuple(Output(new, Expr.column("p", old)) for old, new in place.items())
    shown = {name: place[names[name]] for name in node.columns}
    return Select((Input("p", form),), (), outputs), shown


def _read(node: Node, table: str) -> Select:
    """The rows of a part, from its state table."""
    _, shown = _stored_form(node)
    outputs = tuple(Output(name, Expr.column("p", column)) for name, column in shown.items())
    scan = Scan(table, tuple(dict.fromkeys(shown.values())))
    return Select((Input("p", scan),), (), outputs)


def with_stored(
    operators: tuple[Operator, ...], parts: tuple[StoredPart, ...]
) -> tuple[Operator, ...]:
    """The operators of a view, with what is said of those whose rows are stored, and of those
    below them."""
    stored = {number: part.stored for part in parts for number in part.operators}
    made: list[Operator] = []
    below = -1
    """The depth of the stored operator above (-1: there is none)."""
    for each in operators:
        if 0 <= below < each.depth:
            made.append(replace(each, state="", strategy="by the state table above"))
            continue
        below = each.depth if each.id in stored else -1
        if each.id in stored:
            state = f"its rows, in {stored[each.id]}"
            made.append(replace(each, state=state, strategy="the changes of its state table"))
        else:
            made.append(each)
    return tuple(made)
