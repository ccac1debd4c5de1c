"""Small files become few big ones; old snapshots are expired with the files only they need."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName, literal, quote
from dbt_streamsql.storage.iceberg import files
from dbt_streamsql.storage.iceberg.access import tables_of

_PLAIN = re.compile(r"[A-Za-z_]\w*")


def compact(spark: SparkSession, table: TableName, key: Sequence[str], small: int) -> None:
    """Rewrite files below `small` bytes and files with many deletes, in the order of `key`.

    Similar keys are then stored together. Row ids and sequence numbers stay. A key whose names are
    not plain does not affect the order.
    """
    limits = {
        "min-input-files": 2,
        "min-file-size-bytes": small,
        "delete-ratio-threshold": 0.1,
    }
    listed = ", ".join(f"'{name}', '{value}'" for name, value in limits.items())
    order = ""
    if key and all(_PLAIN.fullmatch(name) for name in key):
        keys = ", ".join(f"{name} ASC NULLS FIRST" for name in key)
        order = f", strategy => 'sort', sort_order => {literal(keys)}"
    spark.sql(
        f"CALL {quote(table.catalog)}.system.rewrite_data_files("
        f"table => {literal(_path(table))}{order}, options => map({listed}))"
    ).collect()


def expire(spark: SparkSession, table: TableName, snapshots: Sequence[int]) -> None:
    """Expire these snapshots, and delete the files that only they need.

    By id: no clock is involved. If one has got a tag or a branch in the meantime, it
    fails, and nothing is expired.
    """
    if not snapshots:
        return
    tables_of(spark).expire(table, snapshots)


def orphans(
    spark: SparkSession, table: TableName, location: str, before: int, *, remove: bool
) -> int:
    """The number of files at the table's location that no metadata refers to, written before a
    moment (milliseconds since 1970); `remove` deletes them."""
    # By Hadoop, unless only Iceberg reaches the store.
    listed = "" if files.reaches(spark, location) else ", prefix_listing => true"
    found = spark.sql(
        f"CALL {quote(table.catalog)}.system.remove_orphan_files("
        f"table => {literal(_path(table))}, dry_run => {str(not remove).lower()}, "
        f"older_than => timestamp_millis({int(before)}L){listed})"
    )
    return len(found.collect())


def _path(table: TableName) -> str:
    return f"{quote(table.schema)}.{quote(table.table)}"
