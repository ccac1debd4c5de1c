"""Small files become few big ones, and old snapshots go with the files that only they need."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage.iceberg.java import is_connect, java_table

_PLAIN = re.compile(r"[A-Za-z_]\w*")


def compact(spark: SparkSession, table: TableName, key: Sequence[str], small: int) -> None:
    """Rewrite files below `small` bytes and much-deleted ones, in the order of `key`.

    Keys then lie close together. Row ids and sequence numbers stay. A key whose names are not
    plain is not ordered by.
    """
    given = {"table": _path(table)}
    limits = {
        "min-input-files": 2,
        "min-file-size-bytes": small,
        "delete-ratio-threshold": 0.1,
    }
    listed = ", ".join(f"'{name}', '{value}'" for name, value in limits.items())
    order = ""
    if key and all(_PLAIN.fullmatch(name) for name in key):
        order = ", strategy => 'sort', sort_order => :sort_order"
        given["sort_order"] = ", ".join(f"{name} ASC NULLS FIRST" for name in key)
    spark.sql(
        f"CALL {quote(table.catalog)}.system.rewrite_data_files("
        f"table => :table{order}, options => map({listed}))",
        args=given,
    ).collect()


def expire(spark: SparkSession, table: TableName, keep: int, before: int) -> None:
    """Forget all snapshots but the newest `keep`, those with a tag or a branch, and those that
    were committed at `before` (milliseconds since 1970) or later."""
    if not is_connect(spark):
        found = java_table(spark, table)
        found.expireSnapshots().expireOlderThan(before).retainLast(keep).commit()
        return
    spark.sql(
        f"CALL {quote(table.catalog)}.system.expire_snapshots("
        f"table => :table, older_than => timestamp_millis({int(before)}L), retain_last => :keep)",
        args={"table": _path(table), "keep": keep},
    ).collect()


def _path(table: TableName) -> str:
    return f"{quote(table.schema)}.{quote(table.table)}"
