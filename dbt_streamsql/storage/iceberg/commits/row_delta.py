"""Commit a small change from the driver: one data file, deletion vectors, one new snapshot.

A Spark statement that writes a thousand rows spends its time on planning, tasks and a commit for
each kind of write. The driver already has the rows, so it writes them itself, with Iceberg's own
writers and through the table's own file access. Needs a JVM: not over Spark Connect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import gateway_work
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.arrow_schema import arrow_schema, arrow_type
from dbt_streamsql.storage.iceberg.files import parquet
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.provenance import Provenance


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
    return all(arrow_type(kind) is not None for kind in meta.types)


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


def _file(spark: SparkSession, name: TableName, rows: pa.Table) -> bytes:
    """The rows as a Parquet file with the table's field ids."""
    schema = arrow_schema(spark, name)
    assert set(schema.names) == set(rows.column_names)
    return parquet(rows.select(schema.names).cast(schema))
