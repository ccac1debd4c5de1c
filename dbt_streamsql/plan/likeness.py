"""When two values are the same, of types that Spark does not compare: maps and variants.

A stand-in is a value of a type that Spark compares, and equal where two values are the same: of a
map its entries in an order of their own, of a variant its type and its JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from dbt_streamsql.plan.schema import Column
from dbt_streamsql.quoting import quote

_NEVER = re.compile(r"\b(geometry|geography)\b")
_OPEN, _CLOSED = "<(", ">)"


def stand_in(type_: str, sql: str, depth: int = 0) -> str:
    """What `sql`, of a Spark type as `type_text` has it, is compared by: itself where it can be.

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
    """Whether it can be told that two values of a column are the same."""
    return _NEVER.search(column.type) is None


def grouped(columns: Iterable[Column], written: Callable[[str], str] = quote) -> tuple[str, str]:
    """What a grouping of equal rows shows, and what it groups by; names as `written`."""
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
    """Columns of the types that are known by their names; others are compared as they are."""
    return [Column(name, types.get(name, "")) for name in names]


@lru_cache(maxsize=1024)
def _parts(text: str) -> tuple[str, ...]:
    """The parts of a list, of which each may hold lists and quoted names."""
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
