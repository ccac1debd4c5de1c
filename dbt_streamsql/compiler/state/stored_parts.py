"""Cut a view's query where a part of it may be stored: the rows of that part are then read from a
state table, and its changes from the versions of that table.

Without it, the old and new values of an inner grouping are computed from its inputs in each epoch
(`rules/keyed.py`); with it, they are the rows that the epoch changes in the state table.

Of a semi, anti or outer join, the keys of the right side can be stored: which of them appeared and
disappeared is then a change of the state table, and the right side is not read for it
(`rules/match.py`). With `K` = the distinct keys of R,

    L ⋉ R = L ⋉ K        L ▷ R = L ▷ K        L ⟕ R = (L ⋈ R) + pad(L ▷ K)

and of a full join those of the left side, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from dbt_streamsql.compiler.codegen.join_lookups import key_of
from dbt_streamsql.compiler.codegen.render_sql import plain
from dbt_streamsql.compiler.passes.merge_projections import merge
from dbt_streamsql.compiler.rules.match import padded
from dbt_streamsql.compiler.state.normal_form import Names, normal_form
from dbt_streamsql.compiler.state.places import (
    PartPlace,
    conditions,
    inputs_of,
    is_stateful,
    numbers_of,
    places_of,
    source,
)
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.relational import (
    Aggregate,
    Input,
    Match,
    Node,
    Output,
    Scan,
    Select,
    UnionAll,
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
    """The parts of a query that can be stored: the rows of groupings, windows, limits and joins
    below its top, the keys of joins' sides, and copies of what joins read; the outer ones first.

    A part that depends on the time of the barrier is none; a query that forgets has none.
    `declared`: the keys of its tables.
    """
    if any(getattr(node, "ttl", 0) for node in walk(root)):
        return ()
    found: dict[str, StoredPart] = {}
    ids: list[str] = []
    places = places_of(root)
    keyed = {place.number for place in places if place.kind == "keys"}
    for place in places:
        ids.append(_id(place))
        part = found.get(ids[-1]) or _stored_part(ids[-1], place, declared)
        around = (*part.around, tuple(ids[at] for at in place.around))
        operators = tuple(dict.fromkeys((*part.operators, place.number)))
        has_keys = place.kind == "rows" and place.number in keyed
        found[part.id] = replace(part, operators=operators, around=around, keyed=has_keys)
    return tuple(found.values())


def parts_in(plan: CompiledPlan, declared: Collection[TableKey] = ()) -> tuple[StoredPart, ...]:
    """The parts of a view's query that can be stored, whether they are or not."""
    if plan.mode != "incremental" or plan.unversioned:
        return ()
    return parts_of(node_of(plan.tree), declared)


def cut(root: Node, parts: tuple[StoredPart, ...]) -> Node:
    """The query with its stored parts read from their tables."""
    if not parts:
        return root
    stored = {part.id: part.stored for part in parts}
    numbers = numbers_of(root)
    read = {
        place.spot: _read(place, stored[found])
        for place in places_of(root)
        if (found := _id(place)) in stored
    }

    def visit(node: Node) -> Node:
        number = numbers[id(node)]
        if rows := read.get(("rows", number, "")):
            return rows
        made = with_children(node, tuple(visit(child) for child in children(node)))
        if not isinstance(made, Select | Match):
            return made
        aliases = [child.alias for child in inputs_of(made)]
        copies = {at: rows for at in aliases if (rows := read.get(("copy", number, at)))}
        keys = {at: rows for at in aliases if (rows := read.get(("keys", number, at)))}
        made = _with_copies(made, copies) if copies else made
        return _with_keys(made, keys) if isinstance(made, Match) and keys else made

    return merge(visit(root)) if read else root


def _with_copies(node: Select | Match, copies: Mapping[str, Node]) -> Select | Match:
    """The join, when these inputs are read from copies, which meet its conditions over them."""
    made = tuple(replace(each, node=copies.get(each.alias, each.node)) for each in inputs_of(node))
    if isinstance(node, Match):
        left, right = made
        return replace(node, left=left, right=right)
    where = node.where
    for alias in copies:
        _, where = conditions(replace(node, where=where), alias)
    return replace(node, inputs=made, where=where)


def _with_keys(node: Match, keys: Mapping[str, Node]) -> Node:
    """The join, when the keys of these sides are read from other rows."""
    left, right = (
        replace(each, node=keys.get(each.alias, each.node)) for each in (node.left, node.right)
    )
    if node.kind in {"semi", "anti"}:
        return replace(node, right=right)
    matched = Select((node.left, node.right), node.on, node.outputs)
    alone = [_alone(node, node.left, right)]
    if node.kind == "full":
        alone.append(_alone(node, node.right, left))
    return UnionAll((matched, *alone))


def _alone(node: Match, rows: Input, partners: Input) -> Select:
    """The rows of one side of an outer join that have no partner."""
    every = tuple(Output(name, Expr.column(rows.alias, name)) for name in rows.node.columns)
    alone = Match("anti", rows, partners, node.on, every, node.types, exact=node.exact)
    return Select((Input(rows.alias, alone),), (), padded(node, rows))


def _stored_part(part: str, place: PartPlace, declared: Collection[TableKey]) -> StoredPart:
    """A part at the first of its places, without the fields that depend on the others."""
    form, _ = _stored_form(place)
    sql = plain(form)
    if place.kind == "copy":
        return StoredPart(part, (), f"{sql}\nORDER BY c0", tables(form), around=(), copy=True)
    if place.kind == "keys":
        found_by, parent = _declared(place.rows, declared)
        return StoredPart(
            *(part, (), sql, tables(form)), keys=True, declared=found_by, parent=parent, around=()
        )
    join = not is_stateful(place.rows)
    return StoredPart(part, (), sql, tables(form), join=join, around=())


def _declared(keys: Node, declared: Collection[TableKey]) -> tuple[bool, str]:
    """Whether declared keys may find the partners of the changed rows in the changes, and the
    table that has to change with them ('': none)."""
    assert isinstance(keys, Aggregate)
    below, names = source(keys.input, keys.keys)
    table = below.table if isinstance(below, Scan) else ""
    found = [(by, parent) for by, parent, _ in (key_of(table, n, declared) for n in names) if by]
    return bool(found), min((parent for _, parent in found), default="")


def _id(place: PartPlace) -> str:
    """Equal for parts with the same rows in the same order."""
    form, _ = _stored_form(place)
    text = json.dumps(tree_of(form)) + (" ordered" if place.kind == "copy" else "")
    return hashlib.sha256(text.encode()).hexdigest()[:_ID]


def _stored_form(place: PartPlace) -> tuple[Select, Names]:
    """The query of a state table, under names that do not depend on the view, and the column of
    the table for each of the rows that are stored."""
    form, names = normal_form(place.rows)
    first = names.get(place.first)
    order = sorted(form.columns, key=lambda name: name != first)
    new = {name: f"c{at}" for at, name in enumerate(order)}
    outputs = tuple(Output(new[old], Expr.column("p", old)) for old in order)
    shown = {name: new[names[name]] for name in place.rows.columns}
    return Select((Input("p", form),), (), outputs), shown


def _read(place: PartPlace, table: str) -> Select:
    """The rows of a part, from its state table."""
    _, shown = _stored_form(place)
    outputs = tuple(Output(name, Expr.column("p", column)) for name, column in shown.items())
    scan = Scan(table, tuple(dict.fromkeys(shown.values())))
    return Select((Input("p", scan),), (), outputs)


def with_stored(
    operators: tuple[Operator, ...], parts: tuple[StoredPart, ...]
) -> tuple[Operator, ...]:
    """The operators of a view, with what is said of those whose rows are stored, and of those
    below them."""
    stored: dict[int, list[StoredPart]] = {}
    for part in parts:
        for number in part.operators:
            stored.setdefault(number, []).append(part)
    made: list[Operator] = []
    below = -1
    """The depth of the stored operator above (-1: there is none)."""
    for each in operators:
        if 0 <= below < each.depth:
            made.append(replace(each, state="", strategy="by the state table above"))
            continue
        there = stored.get(each.id, [])
        rows = any(not part.keys for part in there)
        below = each.depth if rows else -1
        made.append(
            replace(
                each,
                state="; ".join(map(_said, there)) or each.state,
                strategy="the changes of its state table" if rows else each.strategy,
            )
        )
    return tuple(made)


def _said(part: StoredPart) -> str:
    return f"{'the keys of a side' if part.keys else 'its rows'}, in {part.stored}"
