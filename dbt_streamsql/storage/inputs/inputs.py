"""The tables that views read, in any format: their versions, and the changes between two.

A version is an Iceberg snapshot id, a Delta version as numbered by `delta_log`, or the number of a
list of files (`file_listing`).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.scans import changes
from dbt_streamsql.storage.iceberg.scans.changes import Change, ChangedFiles
from dbt_streamsql.storage.inputs import delta_log, file_tables
from dbt_streamsql.storage.inputs.file_tables import FileTable, NoVersionsError
from dbt_streamsql.storage.inputs.unversioned import LISTED
from dbt_streamsql.storage.tables import metastore


def load(spark: SparkSession, name: TableName) -> Metadata | None:
    """The versions of a table, or None when there is no such table.

    Errors: SQL_UNSUPPORTED when its format has no versions; `NoVersionsError` says why a
    table of files has none.
    """
    try:
        return metadata.load(spark, name)
    except StreamSqlError:
        rows, told = _described(spark, name)
        found = delta_log.load(spark, told) or file_tables.load(spark, name, rows, told)
        if found is None:
            raise
        return found


def find(spark: SparkSession, name: TableName) -> Metadata | None:
    """The versions of a table; None also for a table of files that has none (any more).

    Errors: SQL_UNSUPPORTED when it has another format without versions.
    """
    try:
        return load(spark, name)
    except NoVersionsError:
        return None


def tagged(spark: SparkSession, name: TableName) -> Metadata | None:
    """The metadata of a table whose versions have tags; None for other tables."""
    try:
        return metadata.load(spark, name)
    except StreamSqlError:
        _, told = _described(spark, name)
        if told.get("Provider", "").lower() not in LISTED | {delta_log.FORMAT}:
            raise
        return None


def as_read(meta: Metadata, now: int) -> Metadata:
    """The versions of a table as distinguished at `now` (milliseconds since 1970)."""
    return file_tables.as_read(meta, now) if isinstance(meta, FileTable) else meta


def look_again(spark: SparkSession, tables: Mapping[TableName, Metadata]) -> None:
    """Let a session see the files of these versions."""
    names = [name for name, meta in tables.items() if isinstance(meta, FileTable)]
    if names:
        file_tables.look_again(spark, names)


def classify(meta: Metadata, old: int | None, new: int | None) -> Change:
    """Look at the commits between two versions and choose the cheapest exact way."""
    if isinstance(meta, FileTable):
        return file_tables.classify(meta, old, new)
    if meta.format == delta_log.FORMAT:
        return delta_log.classify(meta, old, new)
    return changes.classify(meta, old, new)


def _described(spark: SparkSession, name: TableName) -> tuple[list[Row], dict[str, str]]:
    """Spark's description of a table: all rows, and the details in them; empty when it fails."""
    try:
        rows = metastore.description(spark, name)
        return rows, metastore.details(rows)
    except (PySparkException, StopIteration):
        return [], {}


def why_lost(source: str, meta: Metadata, old: int | None) -> str:
    """Why a version is lost, as `classify` calls it."""
    if isinstance(meta, FileTable) and old is not None:
        return file_tables.why_lost(source, old)
    return f"the earlier version of {source} is gone"


def version(name: TableName, number: int | None, meta: Metadata | None = None) -> str:
    """The SQL of a table at a version (None: before its first).

    `meta`: of an outside table, which may be a table of files. Error: CONSISTENCY_UNAVAILABLE when
    files of the version are gone.
    """
    if isinstance(meta, FileTable):
        return file_tables.version(name, meta, number)
    if number is not None and number < 0:
        return delta_log.version(name, number)
    return changes.version(name, number)


def as_now(spark: SparkSession, name: TableName, meta: Metadata, number: int | None) -> str:
    """The SQL of a table at a version, with its current columns."""
    if meta.format != "iceberg":
        return version(name, number, meta)
    return changes.as_now(spark, name, meta, number)


def read(
    name: TableName,
    meta: Metadata,
    change: Change,
    columns: tuple[str, ...],
    files: ChangedFiles | None = None,
) -> str | None:
    """The change as consolidated signed rows, `columns` and the weight: SQL that may follow FROM.

    None when there is no change. `files`: those that it is in, see `changes.read`.
    """
    if meta.format == "iceberg":
        return changes.read(name, meta, change, columns, files)
    if change.kind == "none":
        return None
    if isinstance(meta, FileTable):
        return file_tables.feed(name, meta, change, columns)
    names = ", ".join(quote(column) for column in columns)
    if change.kind != "difference":
        signed = f"SELECT * FROM {delta_log.feed(name, change, columns)}"
    else:
        signed = changes.difference(version(name, change.new), version(name, change.old), names)
    return (
        f"({signed})" if change.insert_only else changes.consolidated(signed, meta.typed(columns))
    )
