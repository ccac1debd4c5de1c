"""The new value of every stored column of a folded group, as SQL."""

from __future__ import annotations

from collections.abc import Sequence

from dbt_streamsql.plan.expression import fill
from dbt_streamsql.plan.schema import HIDDEN_PREFIX
from dbt_streamsql.plan.steps import Component, Fold
from dbt_streamsql.quoting import quote

LOST = f"{HIDDEN_PREFIX}lost"


def fold_values(spec: Fold, old: str, new: str) -> dict[str, str]:
    """Column -> SQL over the aliases of the old row and the change.

    With `old` = '' there is no old row: the value of a new group.
    """
    values = {column: f"{new}.{quote(column)}" for column in spec.key}
    parts = {part.column: part for part in spec.components}

    def value(column: str) -> str:
        part = parts[column]
        change = f"{new}.{quote(column)}"
        stored = f"{old}.{quote(column)}"
        if part.kind != "add":
            both = f"{part.kind}({stored}, {change})" if old else change
            exact = f"{new}.{exact_column(part, spec.components)}"
            return f"CAST(IF({new}.{LOST}, {exact}, {both}) AS {part.type})"
        total = f"CAST(coalesce({stored}, 0) + {change} AS {part.type})" if old else change
        if part.null_when_zero:
            return f"CASE WHEN {value(part.null_when_zero)} = 0 THEN NULL ELSE {total} END"
        return total

    values |= {column: value(column) for column in parts}
    bare = dict(values)
    for derived in spec.derived:
        shown = fill(derived.sql, lambda column: f"({bare[column]})")
        if spec.key:
            # Of a group that has gone an expression may have no value: `sum(x) / count(*)`.
            shown = f"CASE WHEN {bare[spec.alive]} > 0 THEN {shown} END"
        values[derived.column] = shown
    return values


def exact_column(part: Component, parts: Sequence[Component]) -> str:
    """Where the change carries the recomputed extremum of one of the components."""
    return f"{HIDDEN_PREFIX}exact_{parts.index(part)}"
