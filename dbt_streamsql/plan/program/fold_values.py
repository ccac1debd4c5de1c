"""The new value of every stored column of a folded group, as SQL."""

from __future__ import annotations

from collections.abc import Sequence

from dbt_streamsql.plan.algebra.expression import fill
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.plan.program.steps import Component, Fold
from dbt_streamsql.plan.program.wide_keys import several_sql
from dbt_streamsql.quoting import quote

LOST = f"{HIDDEN_PREFIX}lost"
MOVED = f"{HIDDEN_PREFIX}moved"
"""For groups that may expire: whether the change is one, since changes that cancel are none."""
WRITTEN = f"{HIDDEN_PREFIX}written"
"""For groups that may expire: the time of the last write, in microseconds since 1970."""


def fold_values(spec: Fold, old: str, new: str) -> dict[str, str]:
    """Column -> SQL over the aliases of the old row and the change.

    With `old` = '' there is no old row: the value of a new group.
    """
    values = {column: f"{new}.{quote(column)}" for column in spec.key}
    if spec.ttl:
        values[WRITTEN] = f"{spec.now}L"
        if old:
            left = f"{old}.{quote(WRITTEN)} < {spec.since}L AND NOT {new}.{MOVED}"
            values[WRITTEN] = f"IF({left}, {old}.{quote(WRITTEN)}, {spec.now}L)"
    parts = {part.column: part for part in spec.components}
    values |= {column: _component(part, parts, spec, old, new) for column, part in parts.items()}
    bare = dict(values)
    for derived in sorted(spec.derived, key=lambda each: each.column != spec.alive):
        shown = fill(derived.sql, lambda column: f"({bare[column]})")
        if derived.column == spec.alive:
            bare[spec.alive] = shown
        elif spec.key:
            # For a removed group an expression may have no value: `sum(x) / count(*)`.
            shown = f"CASE WHEN {bare[spec.alive]} > 0 THEN {shown} END"
        values[derived.column] = shown
    for part in spec.components:
        if part.kind == "claims" and part.column not in spec.lacking:
            # Nothing is known of a key that is not a row because the anchor does not have it.
            rows = bare[part.column]
            told = several_sql(part.of, [values[column] for column in spec.key])
            wrong = f"{rows} > 1 AND {bare[spec.alive]} > 0"
            values[part.column] = f"IF({wrong}, CAST({told} AS {part.type}), {rows})"
    return values


def folded_rows(spec: Fold, columns: Sequence[str], groups: str, stored: str) -> str:
    """The query of the changed groups' new rows: `columns`, over the change and the stored
    rows."""
    values = fold_values(spec, "t", "s")
    items = ", ".join(f"{values[column]} AS {quote(column)}" for column in columns)
    alive = f" WHERE {values[spec.alive]} > 0" if spec.alive else ""
    on = " AND ".join(f"s.{quote(c)} <=> t.{quote(c)}" for c in spec.key) or "true"
    return f"SELECT {items} FROM {groups} s LEFT JOIN {stored} t ON {on}{alive}"


def _component(
    part: Component, parts: dict[str, Component], spec: Fold, old: str, new: str
) -> str:
    change, stored = (f"{alias}.{quote(part.column)}" for alias in (new, old))
    if spec.ttl:
        known = f"{old}.{quote(WRITTEN)} >= {spec.since}L OR NOT {new}.{MOVED}"
        stored = f"IF({known}, {stored}, NULL)"
    if part.kind in ("cell", "claims"):
        combined = _cell if part.kind == "cell" else _rows
        return combined(part, old, "" if part.column in spec.lacking else new)
    if part.kind != "add":
        both = f"{part.kind}({stored}, {change})" if old else change
        exact = f"{new}.{exact_column(part, spec.components)}"
        return f"CAST(IF({new}.{LOST}, {exact}, {both}) AS {part.type})"
    total = f"CAST(coalesce({stored}, 0) + {change} AS {part.type})" if old else change
    if part.null_when_zero:
        counter = _component(parts[part.null_when_zero], parts, spec, old, new)
        return f"CASE WHEN {counter} = 0 THEN NULL ELSE {total} END"
    return total


def _rows(part: Component, old: str, new: str) -> str:
    """The number of rows that a branch has for the key: 0 or 1 if it is valid. '' = no old row, or
    no change of the branch."""
    name = quote(part.column)
    terms = [f"coalesce({alias}.{name}, 0L)" for alias in (old, new) if alias]
    return f"({' + '.join(terms)})" if terms else "0L"


def _cell(part: Component, old: str, new: str) -> str:
    """The last value that the branch has written; '' as for `_rows`."""
    stored = f"{old}.{quote(part.column)}" if old else ""
    if not new:
        return stored or f"CAST(NULL AS {part.type})"
    change = f"CAST({new}.{quote(part.column)} AS {part.type})"
    # Of the keys that other branches change, this branch may have changed nothing.
    return f"IF({new}.{quote(part.of)} IS NULL, {stored}, {change})" if stored else change


def exact_column(part: Component, parts: Sequence[Component]) -> str:
    """The column of the change with the recomputed extremum of a component."""
    return f"{HIDDEN_PREFIX}exact_{parts.index(part)}"
