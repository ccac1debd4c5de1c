"""The tables that views read, of whatever format: their versions, and what changed between two.

A version is an Iceberg snapshot id, or a Delta version as `delta_log` numbers it.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage import delta_log
from dbt_streamsql.storage.iceberg import changes, metadata
from dbt_streamsql.storage.iceberg.changes import Change
from dbt_streamsql.storage.iceberg.metadata import Metadata


def load(spark: SparkSession, name: TableName) -> Metadata | None:
    """The versions of a table, or None when there is no such table.

    Errors: SQL_UNSUPPORTED when it is of a format without versions.
    """
    try:
        return metadata.load(spark, name)
    except StreamSqlError:
        found = delta_log.load(spark, name)
        if found is None:
            raise
        return found


def classify(meta: Metadata, old: int | None, new: int | None) -> Change:
    """Look at the commits between two versions and choose the cheapest exact way."""
    if meta.format == delta_log.FORMAT:
        return delta_log.classify(meta, old, new)
    return changes.classify(meta, old, new)


def version(name: TableName, number: int | None) -> str:
    """The SQL of a table as it was at a version (None: before its first)."""
    if number is not None and number < 0:
        return delta_log.version(name, number)
    return changes.version(name, number)


def as_now(spark: SparkSession, name: TableName, meta: Metadata, number: int | None) -> str:
    """The SQL of a table as it was at a version, with the columns that it has now."""
    if meta.format == delta_log.FORMAT:
        return version(name, number)
    return changes.as_now(spark, name, meta, number)


def read(name: TableName, meta: Metadata, change: Change, columns: tuple[str, ...]) -> str | None:
    """The change as consolidated signed rows, `columns` and the weight: SQL that may follow FROM.

    None when there is none.
    """
    if meta.format != delta_log.FORMAT:
        return changes.read(name, meta, change, columns)
    if change.kind == "none":
        return None
    names = ", ".join(quote(column) for column in columns)
    if change.kind != "difference":
        signed = f"SELECT * FROM {delta_log.feed(name, change, columns)}"
    else:
        signed = changes.difference(version(name, change.new), version(name, change.old), names)
    return (
        f"({signed})" if change.insert_only else changes.consolidated(signed, meta.typed(columns))
    )
