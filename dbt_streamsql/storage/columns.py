"""Types as text that Spark can read again, and other facts about columns."""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from dbt_streamsql.quoting import quote

_UNKNOWN_TO_PYTHON = (DateType, TimestampType, TimestampNTZType, YearMonthIntervalType)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def type_ddl(kind: DataType) -> str:
    """A type with the names of all its fields quoted: ``struct<`a b`:int>``."""
    return type_text(kind, quote)


def type_text(kind: DataType, name: Callable[[str], str] | None = None) -> str:
    """A type as in Spark's `simpleString`, with names quoted where needed.

    Unlike that, it can be read again: ``struct<`a-b`:int>``. `name` writes the name of a field.
    """
    named = name or _bare
    if isinstance(kind, StructType):
        fields = (f"{named(f.name)}:{type_text(f.dataType, name)}" for f in kind)
        return f"struct<{','.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_text(kind.elementType, name)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.keyType, name)},{type_text(kind.valueType, name)}>"
    return str(kind.simpleString())


def _bare(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name)


def nullable_within(schema: StructType) -> StructType:
    """The columns, with types whose fields may all be NULL.

    Arrow refuses a NULL struct with a non-nullable field, which Spark's aggregates produce.
    """
    return StructType([StructField(f.name, _nullable(f.dataType), f.nullable) for f in schema])


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType), True) for f in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _nullable(kind.valueType), True)
    return kind


def same_columns(left: StructType, right: StructType) -> bool:
    """Whether names, order and types agree; Spark ignores the case of names."""

    def told(schema: StructType) -> list[tuple[str, str]]:
        return [(field.name.lower(), type_ddl(field.dataType).lower()) for field in schema]

    return told(left) == told(right)


def collected(frame: DataFrame) -> list[Row]:
    """The rows for display; where Python has no such date, time or interval, its text.

    Python supports the years 1 to 9999, and no intervals of months.
    """
    try:
        return frame.collect()
    except (OverflowError, ValueError, PySparkNotImplementedError):
        pass
    types = {f"c{place}": field.dataType for place, field in enumerate(frame.schema)}
    texts = (F.col(name).cast(_readable(kind)) for name, kind in types.items())
    return frame.toDF(*types).select(*texts).toDF(*frame.columns).collect()


def _readable(kind: DataType) -> DataType:
    """The type with strings in place of what Python cannot represent."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _readable(f.dataType)) for f in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_readable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_readable(kind.keyType), _readable(kind.valueType))
    return StringType() if isinstance(kind, _UNKNOWN_TO_PYTHON) else kind
