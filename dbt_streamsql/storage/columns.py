"""Types as text that Spark can read again, and other facts about columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
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

if TYPE_CHECKING:
    import pyarrow as pa

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


def arrow_frame(
    spark: SparkSession, table: pa.Table, schema: StructType | None = None
) -> DataFrame:
    """An Arrow table as a DataFrame, of the types of `schema` where that is given."""
    if schema is None and not len(table):
        # Spark Connect needs the types of an empty table.
        return spark.createDataFrame([], from_arrow_schema(table.schema))
    # In one chunk: at an empty one, Spark stops and loses the rows after it.
    whole = table.combine_chunks() if len(table) else _one_chunk(table.schema)
    return spark.createDataFrame(whole, schema) if schema else spark.createDataFrame(whole)


def _one_chunk(schema: pa.Schema) -> pa.Table:
    """A table without rows: PySpark cannot infer the type of a struct from no chunk at all."""
    import pyarrow as pa

    return pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema=schema)])


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
