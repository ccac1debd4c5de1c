"""Partial updates: a change of a branch updates the cells of its own columns, and no others.

A branch has at most one row for a key. From its consolidated change, for each key

    rows_b' = rows_b + Σ w        cell' = the value of the inserted row, NULL after only a delete

and the wide row lives while Σ_b rows_b > 0, or, with an anchor, while rows_anchor > 0. Branches
without a change are neither read nor written. A key that the anchor gains is new: the values of
the other branches are read from their current rows, and their own change of it is skipped.
"""

from __future__ import annotations

from dataclasses import replace

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.render_sql import indent, render
from dbt_streamsql.compiler.codegen.restrict_to_keys import Link, restrict
from dbt_streamsql.compiler.codegen.wide_sql import (
    Layout,
    key_sql,
    layout,
    values,
)
from dbt_streamsql.compiler.lowering.view import View, refuse_incomparable
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.plan.algebra.expression import escape, hole
from dbt_streamsql.plan.algebra.relational import Branches
from dbt_streamsql.plan.algebra.schema import WEIGHT, Column
from dbt_streamsql.plan.program.steps import (
    Component,
    Derived,
    Fold,
    Part,
)
from dbt_streamsql.quoting import quote


def plan(view: View, emitter: Emitter) -> View:
    """Emit the changes of all branches and the fold that applies them: with `reuse` one for all,
    otherwise one for each."""
    node = view.root
    assert isinstance(node, Branches)
    at = layout(node)
    _refuse(node)
    parts = _parts(node, at, emitter)
    fold = Fold(
        "",
        tuple(column.name for column in view.columns[: len(node.keys)]),
        _components(node, at),
        _derived(node, at, view.columns),
        at.rows[node.names.index(node.anchor)] if node.anchor else at.claims,
    )
    # The anchor comes first: it creates the rows that the other branches fill.
    order = sorted(range(len(parts)), key=lambda number: node.names[number] != node.anchor)
    groups = [parts] if node.reuse else [[parts[number]] for number in order]
    for group in groups:
        name = emitter.together(tuple(group), fold.key)
        emitter.steps.append(replace(fold, groups=name))
    return replace(view, strategy="fold", key=fold.key, full=node)


def _refuse(node: Branches) -> None:
    for child, paths, kinds in zip(node.inputs, node.targets, node.types, strict=True):
        columns = tuple(Column(path, kind) for path, kind in zip(paths, kinds, strict=True))
        refuse_incomparable(columns, f"the change of branch {child.alias}")


def _components(node: Branches, at: Layout) -> tuple[Component, ...]:
    found = []
    for number, child in enumerate(node.inputs):
        rows = at.rows[number]
        found.append(Component(rows, "claims", "bigint", of=child.alias))
        found += [
            Component(name, "cell", kind, of=rows)
            for name, kind in zip(at.cells[number], node.types[number], strict=True)
        ]
    return tuple(found)


def _derived(node: Branches, at: Layout, columns: tuple[Column, ...]) -> tuple[Derived, ...]:
    """The columns computed from several branches, from the stored cells of each."""
    stored = {name for names in at.cells for name in names}
    shown = values(
        node,
        lambda branch, target: hole(at.cells[branch][target]),
        lambda branch: f"{hole(at.rows[branch])} > 0",
    )
    claims = " + ".join(hole(rows) for rows in at.rows)
    return (
        Derived(at.claims, claims),
        *(
            Derived(column.name, f"CAST({sql} AS {column.type})")
            for column, sql in zip(columns[len(node.keys) :], shown.values(), strict=True)
            if column.name not in stored
        ),
    )


def _parts(node: Branches, at: Layout, emitter: Emitter) -> list[Part]:
    deltas = [delta_of(child.node, emitter) for child in node.inputs]
    anchor = node.names.index(node.anchor) if node.anchor else -1
    moved = {anchor: _moved(node, at, anchor, deltas[anchor], emitter)} if anchor >= 0 else {}
    gained = _gained(node, at, anchor, moved[anchor], emitter) if anchor >= 0 else ""
    parts = []
    for number, frame in enumerate(deltas):
        if number not in moved:
            rows = _beside(node, number, frame, gained, emitter) if gained else frame
            moved[number] = _moved(node, at, number, rows, emitter)
        parts.append(Part(moved[number], (at.rows[number], *at.cells[number])))
    return parts


def _moved(node: Branches, at: Layout, number: int, frame: str, emitter: Emitter) -> str:
    """What the signed rows of a branch do to each key: the change in rows, and the new cells."""
    columns = node.inputs[number].node.columns
    width = len(node.keys)
    signed = emitter.consolidated("moves", frame, columns, {})
    keys = [key_sql(node, number, place, _name(columns[place])) for place in range(width)]
    items = [f"{sql} AS {_name(key)}" for sql, key in zip(keys, node.keys, strict=True)]
    items.append(f"sum({WEIGHT}) AS {_name(at.rows[number])}")
    # Several inserted rows break the rule: take any of them; their count reveals the violation.
    items += [
        f"any_value(IF({WEIGHT} > 0, {_name(column)}, NULL), true) AS {_name(cell)}"
        for column, cell in zip(columns[width:], at.cells[number], strict=True)
    ]
    return emitter.query(
        f"of_{number}", f"SELECT {', '.join(items)}\nFROM {{{signed}}}\nGROUP BY {', '.join(keys)}"
    )


def _gained(node: Branches, at: Layout, anchor: int, moved: str, emitter: Emitter) -> str:
    """The keys that the anchor gains."""
    keys = ", ".join(f"{_name(key)} AS k{place}" for place, key in enumerate(node.keys))
    rows = _name(at.rows[anchor])
    sql = f"SELECT {keys}\nFROM {{{moved}}}\nWHERE {rows} > 0"
    return emitter.collect("gained", emitter.query("gained_rows", sql))


def _beside(node: Branches, number: int, frame: str, gained: str, emitter: Emitter) -> str:
    """The change of a branch; for keys that the anchor gains, all its rows, as if new."""
    child = node.inputs[number].node
    columns = ", ".join(f"r.{_name(column)}" for column in child.columns)
    own = child.columns[: len(node.keys)]
    on = " AND ".join(f"r.{_name(column)} <=> g.k{place}" for place, column in enumerate(own))
    links = {column: Link(f"k{place}", same=False) for place, column in enumerate(own)}
    rows = indent(render(restrict(child, gained, links), emitter.after))
    parts = [
        emitter.query(
            "unmoved", f"SELECT {columns}, r.{WEIGHT}\nFROM {{{frame}}} r", unless=(gained,)
        ),
        emitter.query(
            "others",
            f"SELECT {columns}, r.{WEIGHT}\nFROM {{{frame}}} r\n"
            f"LEFT ANTI JOIN {{{gained}}} g ON {on}",
        ),
        emitter.query(
            "known",
            f"SELECT {columns}, CAST(1 AS BIGINT) AS {WEIGHT}\nFROM (\n{rows}\n) r\n"
            f"LEFT SEMI JOIN {{{gained}}} g ON {on}",
        ),
    ]
    return emitter.union("beside", parts)


def _name(column: str) -> str:
    return escape(quote(column))
