"""Conditions from rows that the driver knows: of a join of a stored table `t` with rows `s`, and
ranges of the values that are looked up in an input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
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
from dbt_streamsql.runtime.spark.scratch import TempRelation

RANGED: tuple[type[DataType], ...] = (
    LongType,
    IntegerType,
    ShortType,
    ByteType,
    DateType,
    StringType,
)
"""Key types whose range is put into the condition, so that files and row groups are skipped."""

_MONOTONE: tuple[type[DataType], ...] = (LongType, IntegerType, ShortType, ByteType, DateType)
"""Of these, the types that compare with another type on the other side in the same order."""

_MOST_RANGES = 8
"""Ranges into which the values of a key are divided at most: Spark plans each of them."""

_WIDE = 0.05
"""The share of the whole range from which on a gap is worth a range more."""


def ranges(own: str, keys: TempRelation, key: str, *, nulls: bool = False) -> str:
    """A condition that holds where the SQL `own` has one of the values of the column `key`: the
    ranges in which they lie ('': they are unknown, or of a type without such ranges).

    `nulls`: NULL matches NULL.
    """
    if keys.rows is None:
        return ""
    kind = keys.rows.schema[key].dataType
    data = keys.rows.data.column(key)
    if not isinstance(kind, _MONOTONE) or (nulls and data.null_count):
        return ""
    data = data.cast(pa.int32()) if isinstance(kind, DateType) else data
    values = np.sort(data.drop_null().to_numpy())
    if not len(values):
        return ""
    terms = [
        f"{own} BETWEEN {_written(low, kind)} AND {_written(high, kind)}"
        for low, high in _clusters(values)
    ]
    return terms[0] if len(terms) == 1 else f"({' OR '.join(terms)})"


def _clusters(values: Any) -> list[tuple[int, int]]:
    """The ends of the few ranges in which sorted numbers lie, without their widest gaps."""
    gaps = np.diff(values.astype(np.float64))
    widest = np.sort(np.argsort(gaps)[::-1][: _MOST_RANGES - 1])
    cuts = widest[gaps[widest] >= _WIDE * (float(values[-1]) - float(values[0]))]
    cuts = cuts[gaps[cuts] > 1]
    begins, ends = np.append(0, cuts + 1), np.append(cuts, len(values) - 1)
    return [(int(values[b]), int(values[e])) for b, e in zip(begins, ends, strict=True)]


def _ends(data: Any, kind: DataType) -> tuple[Any, Any]:
    """The least and the greatest value; for dates, their numbers of days."""
    # Python supports only the dates of the years 1 to 9999.
    data = data.cast(pa.int32()) if isinstance(kind, DateType) else data
    return pc.min(data).as_py(), pc.max(data).as_py()


def _written(end: object, kind: DataType) -> str:
    return f"date_from_unix_date({end})" if isinstance(kind, DateType) else str(end)


def same(columns: Sequence[str], left: str, right: str) -> str:
    """Null-safe equality of all columns ('' without columns)."""
    return " AND ".join(f"{left}.{quote(c)} <=> {right}.{quote(c)}" for c in columns)


def match(rows: TempRelation, key: Sequence[str]) -> tuple[str, dict[str, Any]]:
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
        if isinstance(types[column], RANGED) and len(data):
            ends = _ends(data, types[column])
            names = (f"low{index}", f"high{index}")
            literals |= dict(zip(names, ends, strict=True))
            low, high = (_written(f":{end}", types[column]) for end in names)
            terms.append(f"t.{name} BETWEEN {low} AND {high}")
    return " AND ".join(terms) or "true", literals
