"""Cut a view's query where a part of it may be stored: the rows of that part are then read from a
state table, and its changes from the versions of that table.

Without it, the old and new values of an inner grouping are computed from its inputs in each epoch
(`rules/keyed.py`); with it, they are the rows that the epoch changes in the state table.

Of a semi, anti or left join, the keys of the right side can be stored: which of them appeared and
disappeared is then a change of the state table, and the right side is not read for it
(`rules/match.py`). With `K` = the distinct keys of R,

    L ⋉ R = L ⋉ K        L ▷ R = L ▷ K        L ⟕ R = (L ⋈ R) + pad(L ▷ K)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import replace

from dbt_streamsql.compiler.codegen.join_lookups import key_of
from dbt_streamsql.compiler.codegen.render_sql import plain
from dbt_streamsql.compiler.lowering.view import top
from dbt_streamsql.compiler.passes.merge_projections import merge
from dbt_streamsql.compiler.passes.prune_columns import prune
from dbt_streamsql.compiler.rules.match import padded, partner_columns
from dbt_streamsql.compiler.state.normal_form import Names, normal_form
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Input,
    Limit,
    Match,
    Node,
    Output,
    Scan,
    Select,
    UnionAll,
    Window,
    children,
    tables,
    walk,
    with_children,
)
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.stored_part import StoredPart
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.plan.operators import Operator
from dbt_streamsql.plan.tree_json import node_of, tree_of

_ID = 16
"""Characters of a part's id."""


def parts_of(root: Node, declared: Collection[TableKey] = ()) -> tuple[StoredPart, ...]:
    """The parts of a query that can be stored: groupings, windows, limits and inner joins below
    its top, and the keys of joins' right sides; the outer ones first. What is below a grouping, a
    window or a limit are parts of their own queries.

    A part that depends on the time of the barrier is none; a query that forgets has none.
    `declared`: the keys of its tables.
    """
    if any(getattr(node, "ttl", 0) for node in walk(root)):
        return ()
    found: dict[str, StoredPart] = {}
    ids: dict[int, str] = {}
    for number, node, joins in _places(root):
        form, _ = _stored_form(node)
        digest = hashlib.sha256(json.dumps(tree_of(form)).encode()).hexdigest()[:_ID]
        ids[number] = digest
        part = found.get(digest) or StoredPart(
            digest, (), plain(form), tables(form), join=_is_join(node), around=()
        )
        if isinstance(node, Match):
            found_by, parent = _declared(node, declared)
            part = replace(part, keys=True, declared=found_by, parent=parent)
        around = (*part.around, tuple(ids[join] for join in joins))
        found[digest] = replace(part, operators=(*part.operators, number), around=around)
    return tuple(found.values())


def parts_in(plan: CompiledPlan, declared: Collection[TableKey] = ()) -> tuple[StoredPart, ...]:
    """The parts of a view's query that can be stored, whether they are or not."""
    if plan.mode != "incremental" or plan.unversioned:
        return ()
    return parts_of(node_of(plan.tree), declared)


def cut(root: Node, parts: tuple[StoredPart, ...]) -> Node:
    """The query with its stored parts read from their tables."""
    stored = {number: part.stored for part in parts for number in part.operators}
    numbers = _numbers(root)
    wanted = {node: stored[number] for node, number in numbers.items() if number in stored}

    def visit(node: Node) -> Node:
        table = wanted.get(id(node))
        if table and not isinstance(node, Match):
            return _read(node, table)
        made = with_children(node, tuple(visit(child) for child in children(node)))
        return _with_stored_keys(made, _read(node, table)) if table else made

    return merge(visit(root)) if wanted else root


def _with_stored_keys(node: Node, keys: Node) -> Node:
    """The join, when the keys of its right side are read from `keys`."""
    assert isinstance(node, Match)
    there = Input(node.right.alias, keys)
    if node.kind != "left":
        return replace(node, right=there)
    every = tuple(
        Output(name, Expr.column(node.left.alias, name)) for name in node.left.node.columns
    )
    alone = Input(node.left.alias, Match("anti", node.left, there, node.on, every, node.types))
    matched = Select((node.left, node.right), node.on, node.outputs)
    return UnionAll((matched, Select((alone,), (), padded(node, node.left))))


def _numbers(root: Node) -> dict[int, int]:
    """The number of each operator (see `Operator.id`), by the identity of its node."""
    numbers: dict[int, int] = {}
    for number, node in enumerate(walk(root), 1):
        numbers.setdefault(id(node), number)
    return numbers


def _places(root: Node) -> Iterator[tuple[int, Node, tuple[int, ...]]]:
    """The topmost operators of the parts, and the joins whose right side's keys are parts, with
    their numbers and those of the joins around them that are parts, too."""
    found = top(root)
    rows_of_view = {id(found[0])} if found is not None else set[int]()
    node = root
    while isinstance(node, Select):
        rows_of_view.add(id(node))
        if len(node.inputs) != 1:
            break
        node = node.inputs[0].node
    numbers = _numbers(root)

    def visit(node: Node, joins: tuple[int, ...]) -> Iterator[tuple[int, Node, tuple[int, ...]]]:
        if id(node) not in rows_of_view and _can_be_stored(node):
            yield numbers[id(node)], node, joins
            if not _is_join(node):
                return
            joins = (*joins, numbers[id(node)])
        below = children(node)
        if isinstance(node, Match) and _has_keys(node):
            yield numbers[id(node)], node, joins
            # The right side of a left join is read for the rows that have partners, too.
            below = below if node.kind == "left" else (node.left.node,)
        for child in below:
            yield from visit(child, joins)

    yield from visit(root, ())


def _can_be_stored(node: Node) -> bool:
    read = tables(node)
    return (_is_stateful(node) or _is_join(node)) and bool(read) and CLOCK not in read


def _is_stateful(node: Node) -> bool:
    return isinstance(node, Aggregate | Window | Limit)


def _is_join(node: Node) -> bool:
    return isinstance(node, Select) and len(node.inputs) > 1


def _has_keys(node: Match) -> bool:
    """Whether the distinct keys of the right side of a join can be stored, and are worth it: an
    inner grouping, window or limit there is a part itself."""
    columns = partner_columns(node)
    if node.kind == "full" or not columns or not _can_be_stored(_partner_keys(node)):
        return False
    below, _ = _source(node.right.node, columns)
    return not (_is_stateful(below) and _can_be_stored(below))


def _declared(node: Match, declared: Collection[TableKey]) -> tuple[bool, str]:
    """Whether declared keys may find the partners of the changed rows in the changes, and the
    table that has to change with them ('': none)."""
    below, names = _source(node.right.node, partner_columns(node))
    table = below.table if isinstance(below, Scan) else ""
    found = [(by, parent) for by, parent, _ in (key_of(table, n, declared) for n in names) if by]
    return bool(found), min((parent for _, parent in found), default="")


def _source(node: Node, columns: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
    """What filters and projections read, and which of the columns are its own."""
    while isinstance(node, Select) and len(node.inputs) == 1:
        shown = {output.name: output.expr.as_column for output in node.outputs}
        columns = tuple(ref[1] for name in columns if (ref := shown[name]) is not None)
        node = node.inputs[0].node
    return node, columns


def _partner_keys(node: Match) -> Aggregate:
    keys = prune(Aggregate(node.right.node, partner_columns(node), ()))
    assert isinstance(keys, Aggregate)
    return keys


def _stored_form(node: Node) -> tuple[Select, Names]:
    """The query of a state table, under names that do not depend on the view, and the column of
    the table for each of the rows that are stored."""
    rows = _partner_keys(node) if isinstance(node, Match) else node
    form, names = normal_form(rows)
    place = {name: f"c{at}" for at, name in enumerate(form.columns)}
    outputs = tuple(Output(new, Expr.column("p", old)) for old, new in place.items())
    shown = {name: place[names[name]] for name in rows.columns}
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
    stored = {number: part for part in parts for number in part.operators}
    made: list[Operator] = []
    below = -1
    """The depth of the stored operator above (-1: there is none)."""
    for each in operators:
        if 0 <= below < each.depth:
            made.append(replace(each, state="", strategy="by the state table above"))
            continue
        part = stored.get(each.id)
        below = each.depth if part is not None and not part.keys else -1
        if part is None:
            made.append(each)
        elif part.keys:
            made.append(replace(each, state=f"the keys of its right side, in {part.stored}"))
        else:
            state = f"its rows, in {part.stored}"
            made.append(replace(each, state=state, strategy="the changes of its state table"))
    return tuple(made)
