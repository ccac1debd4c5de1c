"""Tags that keep the snapshots alive that somebody still has to read."""

from __future__ import annotations

from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.refs import Moves, move

_PREFIX = "streamsql_pin_"


def reconcile(
    spark: SparkSession, name: TableName, meta: Metadata, store: str, wanted: set[int]
) -> int:
    """Make the tags of this store on a table exactly those for `wanted` snapshots; how many moved.

    `store` tells one MetaService from another: several may pin the same table.
    """
    prefix = f"{_PREFIX}{store}_"
    have = {snapshot: tag for tag, snapshot in meta.refs.items() if tag.startswith(prefix)}
    new = sorted(wanted - set(have))
    moves = Moves(
        tags={prefix + str(snapshot): snapshot for snapshot in new if snapshot in meta.snapshots},
        drop_tags=tuple(have[snapshot] for snapshot in sorted(set(have) - wanted)),
    )
    move(spark, name, moves)
    return len(moves.tags) + len(moves.drop_tags)
