"""Commit a small change from the driver: one data file, deletion vectors, one new snapshot.

A Spark statement that writes a thousand rows spends its time on planning, tasks and a commit for
each kind of write. The driver already has the rows, so it writes them itself, with Iceberg's own
writers and through the table's own file access. Needs a JVM: not over Spark Connect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import gateway_work
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.files import parquet
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.provenance import Provenance

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


@dataclass(frozen=True)
class RowDelta:
    """Rows to add, with the table's columns, and rows to remove: data file -> positions.

    A file is identified by its path, or by the CRC-32 of the path.
    """

    rows: pa.Table
    gone: Mapping[str, Sequence[int]] | Mapping[int, Sequence[int]]


class FilesUnknown(Exception):
    """A snapshot does not have exactly one file for each file with rows to remove."""


def supported(spark: SparkSession, meta: Metadata) -> bool:
    """Whether the table can be written from the driver."""
    if meta.partitioning or meta.format_version < 3 or not tables_of(spark).writes_files:
        return False
    return all(_arrow_type(kind) is not None for kind in meta.types)


def commit(
    spark: SparkSession,
    name: TableName,
    branch: str,
    base: int,
    origin: Provenance,
    delta: RowDelta,
) -> str:
    """Create a branch at the snapshot `base` and commit the change to it, in one commit; returns
    the path of the file with the new rows ('': there are none).

    Error: `FilesUnknown`.
    """
    rows = _file(spark, name, delta.rows) if delta.rows.num_rows else None
    summary = origin.properties()
    path = gateway_work.commit(spark, name, branch, base, summary, rows, delta.gone)
    if path is None:
        raise FilesUnknown
    return path


def _arrow_type(iceberg: Any) -> pa.DataType | None:
    """The Arrow type to write for an Iceberg type; None for one that only Spark writes."""
    if not isinstance(iceberg, str):
        return None
    decimal = _DECIMAL.fullmatch(iceberg)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _TYPES.get(iceberg)


def _file(spark: SparkSession, name: TableName, rows: pa.Table) -> bytes:
    """The rows as a Parquet file with the table's field ids."""
    fields = [
        pa.field(
            field["name"],
            _arrow_type(field["type"]),
            nullable=not field["required"],
            metadata={"PARQUET:field_id": str(field["id"])},
        )
        for field in json.loads(gateway_work.schema(spark, name))["fields"]
    ]
    schema = pa.schema(fields)
    return parquet(rows.select(schema.names).cast(schema))
