"""Columns and their Spark types."""

from __future__ import annotations

import re
from dataclasses import dataclass

HIDDEN_PREFIX = "__streamsql_"
"""The prefix of the engine's own columns in a view's table."""

WEIGHT = "_streamsql_w"
"""The signed multiplicity of a row in a change: how often it appears (+) or disappears (-)."""

_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_COLLATION = re.compile(r" collate \w+", re.IGNORECASE)
_INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Their digits, as Spark compares them with decimals."""
_MOST_DIGITS = 38


@dataclass(frozen=True)
class Column:
    """A column: its name, its Spark type (as in `type_text`), and whether it may be NULL."""

    name: str
    type: str
    nullable: bool = True

    @property
    def is_integer(self) -> bool:
        return self.type in _INTEGERS

    @property
    def decimal(self) -> tuple[int, int] | None:
        """(precision, scale) of a decimal column."""
        match = _DECIMAL.fullmatch(self.type)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def is_exact(self) -> bool:
        """Sums do not depend on the order of addition."""
        return self.is_integer or self.decimal is not None

    @property
    def is_comparable(self) -> bool:
        """Rows can be grouped and compared by this column."""
        return not re.search(r"\b(map|variant|geometry|geography)\b", self.type)

    @property
    def stored_type(self) -> str:
        """The type of the column in a table: Iceberg strings have no collation."""
        return _COLLATION.sub("", self.type)

    @property
    def is_sortable(self) -> bool:
        """Rows can be sorted by this column."""
        return not re.search(r"\b(map|variant|geometry|geography|interval)\b", self.type)


def are_one_to_one(one: Column, other: Column) -> bool:
    """Whether a value of one column equals at most one value of the other one.

    The number 1 equals the texts '1' and '01', and a double several long integers. Integers and
    decimals are compared digit by digit, unless the digits of both are too many for a decimal.
    """
    if one.type == other.type:
        return True
    sizes = [column.decimal or (_INTEGERS.get(column.type, 0), 0) for column in (one, other)]
    if not all(precision for precision, _ in sizes):
        return False
    whole = max(precision - scale for precision, scale in sizes)
    return whole + max(scale for _, scale in sizes) <= _MOST_DIGITS


def visible(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns that belong to the user's query."""
    return tuple(column for column in columns if not column.name.startswith(HIDDEN_PREFIX))
