"""Changed columns of a query: what happens to its table, by dbt's `on_schema_change`."""

from __future__ import annotations

from collections.abc import Sequence

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.quoting import quote

IGNORE, FAIL, APPEND, SYNC = "ignore", "fail", "append_new_columns", "sync_all_columns"
ON_SCHEMA_CHANGE = (IGNORE, FAIL, APPEND, SYNC)

_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}


def widens(old: Column, new: Column) -> bool:
    """Whether every value of `old`'s type is a value of `new`'s type, as Iceberg allows it."""
    before, now = old.decimal, new.decimal
    if before is not None and now is not None:
        return now[0] > before[0] and now[1] == before[1]
    return new.type in _WIDER.get(old.type, ())


def settled(
    policy: str,
    old: Sequence[Column],
    made: Sequence[Column],
    key: Sequence[str],
    place: Place,
) -> tuple[Column, ...]:
    """The columns of a table that has `old` when its query returns `made`: the kept ones in their
    old order, then the new ones.

    Error: CONFIG_INVALID, listing everything that `policy` does not allow.
    """
    given = {column.name.lower(): column for column in made}
    known = {column.name.lower() for column in old}
    problems: list[str] = []
    columns: list[Column] = []
    for column in old:
        found = given.get(column.name.lower())
        if found is None:
            if policy in (IGNORE, FAIL):
                problems.append(f"{column.name} is missing")
            if policy != SYNC:
                columns.append(column)
        elif found.type == column.type or (policy != FAIL and widens(found, column)):
            columns.append(column)
        elif policy in (APPEND, SYNC) and widens(column, found):
            if column.name in key:
                problems.append(f"key column {column.name} is a {found.type}, not {column.type}")
            columns.append(Column(column.name, found.type, column.nullable))
        else:
            problems.append(f"{column.name} is a {found.type}, not {column.type}")
            columns.append(column)
    new = [column for name, column in given.items() if name not in known]
    if policy == FAIL:
        problems += [f"{column.name} {column.type} is new" for column in new]
    if problems:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "the query returns different columns than the table has",
            given="; ".join(problems),
            allowed=", ".join(f"{column.name} {column.type}" for column in old),
            hint=_hint(policy),
            place=place,
        )
    return (*columns, *(new if policy in (APPEND, SYNC) else ()))


def conformed(select: str, made: Sequence[Column], columns: Sequence[Column]) -> str:
    """A query that returns `made`, extended to `columns`: wider ones cast, missing ones NULL."""
    given = {column.name.lower(): column for column in made}
    cast, missing = [], []
    for column in columns:
        found = given.get(column.name.lower())
        if found is None:
            missing.append(column)
        elif found.type != column.type:
            cast.append(column)
    if not cast and not missing:
        return select
    names = ", ".join(quote(column.name) for column in cast)
    parts = [f"* EXCEPT ({names})" if cast else "*"]
    parts += [f"CAST({quote(c.name)} AS {c.type}) AS {quote(c.name)}" for c in cast]
    parts += [f"CAST(NULL AS {c.type}) AS {quote(c.name)}" for c in missing]
    return f"SELECT {', '.join(parts)} FROM ({select})"


def describe_drift(old: Sequence[Column], columns: Sequence[Column]) -> str:
    """How a table's columns change, in words ('': nothing)."""
    before = {column.name: column for column in old}
    now = {column.name for column in columns}
    parts = [f"{c.name} is new" for c in columns if c.name not in before]
    parts += [
        f"{c.name} is a {c.type}"
        for c in columns
        if c.name in before and before[c.name].type != c.type
    ]
    parts += [f"{column.name} is gone" for column in old if column.name not in now]
    return ", ".join(parts)


def _hint(policy: str) -> str:
    again = "`dbt run --full-refresh` of this model reads its stream again"
    if policy == SYNC:
        return again
    others = f"{APPEND}, {SYNC}" if policy != APPEND else SYNC
    return f"`on_schema_change: {others}` may allow it; {again}"
