"""The columns of a table in Arrow, where the process itself reads or writes its files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbt_streamsql.storage.iceberg import gateway_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_streamsql.quoting import TableName

FIELD_ID = "PARQUET:field_id"
"""The metadata of an Arrow field by which Iceberg identifies a column, whatever its name."""

_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def arrow_type(iceberg: Any) -> pa.DataType | None:
    """The Arrow type of an Iceberg type; None for one that only Spark reads and writes."""
    if not isinstance(iceberg, str):
        return None
    decimal = _DECIMAL.fullmatch(iceberg)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _TYPES.get(iceberg)


def arrow_schema(spark: SparkSession, name: TableName) -> pa.Schema:
    """The columns of a table that have an `arrow_type`, with their field ids."""
    fields = json.loads(gateway_work.schema(spark, name))["fields"]
    return pa.schema(
        pa.field(
            field["name"],
            kind,
            nullable=not field["required"],
            metadata={FIELD_ID: str(field["id"])},
        )
        for field in fields
        if (kind := arrow_type(field["type"])) is not None
    )
