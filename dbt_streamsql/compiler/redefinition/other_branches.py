"""The rows of a wide table with other branches, from the stored rows.

Each branch can be restored from what is stored: its rows are the keys where its counter is above
zero, its columns are cells. Only branches that are new, or that write columns that are not stored,
are computed from their sources.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbt_streamsql.compiler.codegen.render_sql import render
from dbt_streamsql.compiler.codegen.wide_sql import (
    Layout,
    branches_sql,
    layout,
    pack_sql,
    side_sql,
)
from dbt_streamsql.compiler.redefinition.equivalence import NotEquivalentError, match_columns
from dbt_streamsql.plan.algebra.expression import escape
from dbt_streamsql.plan.algebra.relational import Branches
from dbt_streamsql.quoting import quote


@dataclass(frozen=True)
class Rebranched:
    """`sql` gives all stored columns of the new version, with a hole for the stored rows and one
    for each table that is read; `lacking` are the branches that are read; `stays`: the stored rows
    are the rows of the new version."""

    sql: str
    lacking: tuple[str, ...]
    stays: bool


def rebranched(new: Branches, old: Branches, tables: tuple[str, ...], stored: str) -> Rebranched:
    """How the rows of `new` follow from those of `old`; raises `Differs`.

    `stored` is the SQL of the stored rows, `tables` are the inputs of the new version.
    """
    if (new.keys, new.key_types) != (old.keys, old.key_types):
        raise NotEquivalentError("the key is different")
    kept = {
        number: known
        for number in range(len(new.inputs))
        if (known := _stored(new, number, old)) is not None
    }
    if not kept:
        raise NotEquivalentError("none of its branches is stored")
    anchor = new.names.index(new.anchor) if new.anchor else -1
    if old.anchor and (anchor not in kept or kept[anchor][0] != old.anchor):
        raise NotEquivalentError("keys that the old anchor does not have are not stored")
    before = layout(old)
    lacking = [number for number in range(len(new.inputs)) if number not in kept]
    sides = [_stored_side(new, old, before, kept, stored)]
    sides += [
        side_sql(
            new, number, render(new.inputs[number].node, lambda t: f"{{t{tables.index(t.table)}}}")
        )
        for number in lacking
    ]
    stays = (
        not lacking
        and layout(new) == before
        and (new.merges, new.anchor, new.columns) == (old.merges, old.anchor, old.columns)
        and all(
            before.cells[old.names.index(name)][at] == layout(new).cells[number][place]
            for number, (name, cells) in kept.items()
            for place, at in enumerate(cells)
        )
    )
    names = tuple(new.names[number] for number in lacking)
    return Rebranched(branches_sql(new, sides, hidden=True), names, stays)


def _stored(new: Branches, number: int, old: Branches) -> tuple[str, tuple[int, ...]] | None:
    """The old branch with the rows of a new one, and which of its cells are the targets."""
    node, width = new.inputs[number].node, len(new.keys)
    own = [child for child in old.inputs if child.alias == new.names[number]]
    for child in [*own, *old.inputs]:
        try:
            found = match_columns(node, child.node)
        except NotEquivalentError:
            continue
        at = [child.node.columns.index(found[column]) for column in node.columns]
        if at[:width] != list(range(width)) or any(place < width for place in at[width:]):
            continue
        kinds = old.types[old.names.index(child.alias)]
        cells = tuple(place - width for place in at[width:])
        if tuple(kinds[cell] for cell in cells) == new.types[number]:
            return child.alias, cells
    return None


def _stored_side(
    new: Branches,
    old: Branches,
    before: Layout,
    kept: dict[int, tuple[str, tuple[int, ...]]],
    stored: str,
) -> str:
    """The stored rows, with a pack for each kept branch."""
    keys = [f"r.{_name(key)} AS k{at}" for at, key in enumerate(new.keys)]
    packs, there = [], []
    for number in range(len(new.inputs)):
        if number not in kept:
            packs.append(f"NULL AS p{number}")
            continue
        name, cells = kept[number]
        at = old.names.index(name)
        pack = pack_sql([f"r.{_name(before.cells[at][cell])}" for cell in cells])
        there.append(f"r.{_name(before.rows[at])} > 0")
        packs.append(f"IF({there[-1]}, {pack}, NULL) AS p{number}")
    items, where = ", ".join([*keys, *packs]), " OR ".join(there)
    return f"SELECT {items} FROM {stored} r WHERE {where}"


def _name(column: str) -> str:
    return escape(quote(column))
