"""Building blocks of the SQL expressions over records.

All are strings: building so many expressions as Spark objects takes Python seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from dbt_streamsql.quoting import literal, quote

NULL = "CAST(NULL AS STRING)"


def field(struct: str, name: str) -> str:
    return f"{struct}.{quote(name)}"


def when(condition: str, value: str) -> str:
    """NULL where the condition is not true."""
    return f"if({condition}, {value}, NULL)"


def concat(*parts: str) -> str:
    return f"concat({', '.join(parts)})"


def coalesce(parts: Iterable[str]) -> str:
    """The first that is not NULL; NULL without parts."""
    return f"coalesce({', '.join([*parts, NULL])})"


def struct(fields: Iterable[tuple[str, str]]) -> str:
    """A struct of named values."""
    parts = [part for name, value in fields for part in (literal(name), value)]
    return f"named_struct({', '.join(parts)})"


def one_of(value: str, texts: Iterable[str]) -> str:
    return f"{value} IN ({', '.join(literal(text) for text in texts)})"


def let(value: str, name: str, use: str) -> str:
    """`use`, where `name` is a value that is computed once."""
    return f"get(transform(array({value}), {name} -> {use}), 0)"
