"""Tags that keep the snapshots alive that somebody still has to read."""

from __future__ import annotations

from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage.iceberg.metadata import Metadata

_PREFIX = "streamsql_pin_"


def reconcile(
    spark: SparkSession, name: TableName, meta: Metadata, store: str, wanted: set[int]
) -> int:
    """Make the tags of this store on a table exactly those for `wanted` snapshots; how many moved.

    `store` tells one MetaService from another: several may pin the same table.
    """
    prefix = f"{_PREFIX}{store}_"
    have = {snapshot: tag for tag, snapshot in meta.refs.items() if tag.startswith(prefix)}
    moved = 0
    for snapshot in sorted(wanted - set(have)):
        if snapshot in meta.snapshots:
            spark.sql(
                f"ALTER TABLE {name.sql} CREATE TAG IF NOT EXISTS {quote(prefix + str(snapshot))} "
                f"AS OF VERSION {snapshot}"
            )
            moved += 1
    for snapshot in sorted(set(have) - wanted):
        spark.sql(f"ALTER TABLE {name.sql} DROP TAG IF EXISTS {quote(have[snapshot])}")
        moved += 1
    return moved
