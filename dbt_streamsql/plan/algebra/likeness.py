"""Equality of values for types that Spark cannot compare: maps and variants.

A stand-in is a value of a type that Spark can compare, equal exactly where two values are the
same: for a map its sorted entries, for a variant its type and its JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.quoting import quote

_NEVER = re.compile(r"\b(geometry|geography)\b")
_OPEN, _CLOSED = "<(", ">)"


def stand_in(type_: str, sql: str, depth: int = 0) -> str:
    """The comparable form of `sql`, of a Spark type as in `type_text`: itself where possible.

    >>> stand_in("map<string,int>", "m")
    'array_sort(map_entries(m))'
    """
    if Column("", type_).is_comparable or _NEVER.search(type_):
        return sql
    if type_ == "variant":
        return f"struct(schema_of_variant({sql}), to_json({sql}))"
    kind, _, inner = type_[:-1].partition("<")
    parts = _parts(inner)
    each = f"e{depth}"
    if kind == "array":
        return f"transform({sql}, {each} -> {stand_in(parts[0], each, depth + 1)})"
    if kind == "map":
        entries = f"map_entries({sql})"
        key, value = (
            stand_in(part, f"{each}.{name}", depth + 1)
            for part, name in zip(parts, ("key", "value"), strict=True)
        )
        if (key, value) != (f"{each}.key", f"{each}.value"):
            entries = f"transform({entries}, {each} -> struct({key}, {value}))"
        return f"array_sort({entries})"
    fields = (_field(part) for part in parts)
    values = ", ".join(stand_in(part, f"{sql}.{name}", depth) for name, part in fields)
    return f"IF({sql} IS NULL, NULL, struct({values}))"


def has_likeness(column: Column) -> bool:
    """Whether values of a column can be compared for equality."""
    return _NEVER.search(column.type) is None


def grouped(columns: Iterable[Column], written: Callable[[str], str] = quote) -> tuple[str, str]:
    """The columns and the keys of a grouping of equal rows; names as `written`."""
    shown, keys = [], []
    for column in columns:
        name = written(column.name)
        key = stand_in(column.type, name)
        shown.append(name if key == name else f"any_value({name}) AS {name}")
        keys.append(key)
    return ", ".join(shown), ", ".join(keys)


def same(columns: Sequence[Column], left: str, right: str) -> str:
    """Null-safe equality of all columns of two relations ('' without columns)."""
    sides = (
        tuple(stand_in(c.type, f"{alias}.{quote(c.name)}") for alias in (left, right))
        for c in columns
    )
    return " AND ".join(f"{one} <=> {other}" for one, other in sides)


def typed(names: Iterable[str], types: Mapping[str, str]) -> list[Column]:
    """Columns with known types, by name; other columns are compared as they are."""
    return [Column(name, types.get(name, "")) for name in names]


@lru_cache(maxsize=1024)
def _parts(text: str) -> tuple[str, ...]:
    """The parts of a list, each of which may contain lists and quoted names."""
    parts, depth, quoted, start = [], 0, False, 0
    for at, sign in enumerate(text):
        if sign == "`":
            quoted = not quoted
        elif quoted:
            continue
        elif sign in _OPEN:
            depth += 1
        elif sign in _CLOSED:
            depth -= 1
        elif sign == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    return (*parts, text[start:])


def _field(text: str) -> tuple[str, str]:
    """The name of a struct's field, quoted where the type quotes it, and its type."""
    if not text.startswith("`"):
        name, _, type_ = text.partition(":")
        return quote(name), type_
    end = re.match(r"`(?:[^`]|``)*`:", text)
    assert end is not None, text
    return end[0][:-1], text[end.end() :]
