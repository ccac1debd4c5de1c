"""Write where no reader looks, then publish by one pointer change.

An existing table is written on its own branch and published by fast-forward. A table that does
not exist yet, or whose columns change, is built in a hidden schema and published by rename, or by
one atomic replace.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName, literal, pairs, quote
from dbt_streamsql.storage.conf import snapshot_properties
from dbt_streamsql.storage.emptied import swept
from dbt_streamsql.storage.iceberg import metadata, provenance
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.provenance import Provenance
from dbt_streamsql.storage.java import is_connect
from dbt_streamsql.storage.staged_table import TableSpec

STAGING_SCHEMA = "__streamsql_staging"
OWN_PROPERTIES = "streamsql."
"""The prefix of the engine's own table properties."""
_creating = threading.Lock()

FORMAT_VERSION = 3
"""Of tables whose rows are found by their ids, and are deleted by vectors."""
VIEW_PROPERTIES: Mapping[str, str] = {
    "format-version": str(FORMAT_VERSION),
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.distribution-mode": "none",
    "write.delete.distribution-mode": "none",
    "write.update.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "write.parquet.row-group-size-bytes": str(4 * 1024 * 1024),
}
"""Small writes without a shuffle, deletes as vectors, bounded metadata, row groups small enough
that a range of keys skips most of a sorted file."""

_COLUMNS = 24
"""The number of columns for which that row group size is right: with more columns, its rows would
be too few to justify the cost of each column chunk."""


def view_properties(columns: int) -> dict[str, str]:
    """`VIEW_PROPERTIES` for a table with that many columns (0: unknown)."""
    size = "write.parquet.row-group-size-bytes"
    wide = int(VIEW_PROPERTIES[size]) * max(1, -(-columns // _COLUMNS))
    return {**VIEW_PROPERTIES, size: str(wide)}


def branch_name(barrier: int) -> str:
    return f"streamsql_{barrier}"


def branch_barrier(ref: str) -> int:
    """The barrier that a branch belongs to (-1: not one of ours)."""
    prefix, _, number = ref.rpartition("_")
    return int(number) if prefix == "streamsql" and number.isdigit() else -1


def staging_name(table: TableName, barrier: int, number: int, store: str) -> TableName:
    """Where a new table is built; the name holds the barrier and the store that owns it."""
    return TableName(table.catalog, STAGING_SCHEMA, f"b{barrier}_{number}_{store}")


def stamped(spark: SparkSession, origin: Provenance) -> AbstractContextManager[None]:
    """Add the provenance to snapshots written by this session inside the block."""
    return snapshot_properties(spark, origin.properties())


def branch_sql(table: TableName, branch: str) -> str:
    """A branch as the target of a write."""
    return table.child(f"branch_{branch}")


def build(
    spark: SparkSession, at: TableName, select: str, location: str, properties: Mapping[str, str]
) -> int:
    """Create the staging table `at` from a query and return its snapshot id."""
    create_schema(spark, at.catalog, at.schema)
    spark.sql(f"DROP TABLE IF EXISTS {at.sql} PURGE")
    spec = TableSpec(at, properties=properties)
    spark.sql(spec.create_as("CREATE TABLE", at, select, location, {}))
    built = metadata.load(spark, at)
    assert built is not None
    if built.format_version < FORMAT_VERSION:
        spark.sql(f"DROP TABLE IF EXISTS {at.sql} PURGE")
        raise StreamSqlError(
            "FORMAT_VERSION",
            f"the catalog `{at.catalog}` does not make tables of format version {FORMAT_VERSION}",
            given=f"it made one of format version {built.format_version}",
            allowed=f"format version {FORMAT_VERSION}, whose rows have ids",
            hint="use a newer version of the catalog's server, or another catalog",
        )
    assert built.current is not None
    return built.current


def publish_new(spark: SparkSession, staged: TableName, table: TableName) -> None:
    """Rename the staged table to its final name; a no-op when it is gone."""
    if metadata.load(spark, staged) is None:
        return
    create_schema(spark, table.catalog, table.schema)
    spark.sql(f"ALTER TABLE {staged.sql} RENAME TO {quote(table.schema)}.{quote(table.table)}")


def publish_replacement(
    spark: SparkSession, staged: TableName, table: TableName, barrier: int
) -> int:
    """Replace a table by the staged one in one commit, keeping its history; the new snapshot id.

    A no-op when the table's newest snapshot is a copy of the staged one.
    """
    current, source = metadata.load(spark, table), metadata.load(spark, staged)
    assert current is not None
    if source is not None and not _copied(current, source):
        origin = _stamp(source) or Provenance(barrier, None)
        properties = {
            **VIEW_PROPERTIES,
            **{
                key: value
                for key, value in source.properties.items()
                if key in VIEW_PROPERTIES
                or key.startswith(OWN_PROPERTIES)
                or key not in current.properties
            },
        }
        spec, rows = TableSpec(table, properties=properties), f"SELECT * FROM {staged.sql}"
        with stamped(spark, replace(origin, staged=source.current, replaces=current.current)):
            spark.sql(spec.create_as("CREATE OR REPLACE TABLE", table, rows, "", {}))
        current = metadata.load(spark, table)
    assert current is not None
    assert current.current is not None
    return current.current


def _stamp(meta: metadata.Metadata) -> Provenance | None:
    """The provenance of the newest snapshot."""
    newest = meta.snapshots.get(meta.current) if meta.current is not None else None
    return provenance.read(newest.summary) if newest is not None else None


def _copied(table: metadata.Metadata, staged: metadata.Metadata) -> bool:
    origin = _stamp(table)
    return origin is not None and origin.staged is not None and origin.staged == staged.current


def set_properties(
    spark: SparkSession, table: TableName, wanted: Mapping[str, str], gone: Sequence[str] = ()
) -> None:
    """Set table properties and remove others; a no-op where there is no such table."""
    if metadata.load(spark, table) is None:
        return
    if wanted:
        spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES {pairs(wanted)}")
    if gone:
        keys = ", ".join(map(literal, gone))
        spark.sql(f"ALTER TABLE {table.sql} UNSET TBLPROPERTIES ({keys})")


def exists(spark: SparkSession, name: TableName) -> bool:
    """Whether a table or a view of any kind has the name, including one that cannot be read."""
    try:
        _ = spark.table(name.sql).schema
    except PySparkException as error:
        return error.getCondition() not in {"SCHEMA_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND"}
    return True


def drop_table(spark: SparkSession, table: TableName) -> None:
    """Drop a table and its files, if it exists."""
    try:
        with swept(_location(spark, table)):
            spark.sql(f"DROP TABLE IF EXISTS {table.sql} PURGE")
    except PySparkException as error:
        if error.getCondition() not in {"SCHEMA_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND"}:
            raise


def _location(spark: SparkSession, table: TableName) -> str:
    """The location of a table; '' where unknown, and over Spark Connect, where it costs statements
    to look up a folder that may be on another machine."""
    if is_connect(spark):
        return ""
    try:
        meta = metadata.load(spark, table)
    except (StreamSqlError, PySparkException):
        return ""
    return meta.location if meta is not None else ""


def staged_tables(spark: SparkSession, catalog: str) -> list[TableName]:
    """Every table in the hidden schema."""
    schemas = spark.sql(f"SHOW NAMESPACES IN {quote(catalog)}").collect()
    if STAGING_SCHEMA not in {row["namespace"] for row in schemas}:
        return []
    rows = spark.sql(f"SHOW TABLES IN {quote(catalog)}.{quote(STAGING_SCHEMA)}").collect()
    return [TableName(catalog, STAGING_SCHEMA, row["tableName"]) for row in rows]


def create_schema(spark: SparkSession, catalog: str, schema: str) -> None:
    """Create a schema unless it exists."""
    if tables_of(spark).knows_schema(catalog, schema):
        return
    # For the JDBC catalog IF NOT EXISTS is a read and then an insert: two can both insert.
    with _creating:
        try:
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {quote(catalog)}.{quote(schema)}")
        except PySparkException:
            rows = spark.sql(f"SHOW NAMESPACES IN {quote(catalog)}").collect()
            if schema not in {row["namespace"].strip("`") for row in rows}:
                raise


def staged_barrier(name: TableName, store: str) -> int:
    """The barrier of this store that a staging table belongs to (-1: none)."""
    barrier, _, rest = name.table.partition("_")
    number = barrier.removeprefix("b")
    return int(number) if number.isdigit() and rest.partition("_")[2] == store else -1
