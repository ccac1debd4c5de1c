"""Join conditions between a stored table `t` and rows `s` that the driver knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime.local import Kept

_RANGED: tuple[type[DataType], ...] = (
    LongType,
    IntegerType,
    ShortType,
    ByteType,
    DateType,
    StringType,
)
"""Key types whose range is put into the condition, so that files and row groups are skipped."""


def same(columns: Sequence[str], left: str, right: str) -> str:
    """Null-safe equality of all columns ('' without columns)."""
    return " AND ".join(f"{left}.{quote(c)} <=> {right}.{quote(c)}" for c in columns)


def match(rows: Kept, key: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The condition and its parameters: plain equality where no key is NULL, and a key range."""
    if rows.rows is None:
        return same(key, "t", "s") or "true", {}
    types = {field.name: field.dataType for field in rows.rows.schema}
    terms: list[str] = []
    literals: dict[str, Any] = {}
    for index, column in enumerate(key):
        data, name = rows.rows.data.column(column), quote(column)
        if data.null_count:
            terms.append(f"t.{name} <=> s.{name}")
            continue
        terms.append(f"t.{name} = s.{name}")
        if isinstance(types[column], _RANGED) and len(data):
            # A date is a number of days: Python knows only those of the years 1 to 9999.
            days = isinstance(types[column], DateType)
            data = data.cast(pa.int32()) if days else data
            literals |= {f"low{index}": pc.min(data).as_py(), f"high{index}": pc.max(data).as_py()}
            ends = (f":low{index}", f":high{index}")
            low, high = (f"date_from_unix_date({end})" if days else end for end in ends)
            terms.append(f"t.{name} BETWEEN {low} AND {high}")
    return " AND ".join(terms) or "true", literals
