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
    have = of(meta, store)
    new = sorted(wanted - set(have))
    moves = Moves(
        tags={_tag(store, snapshot): snapshot for snapshot in new if snapshot in meta.snapshots},
        drop_tags=tuple(have[snapshot] for snapshot in sorted(set(have) - wanted)),
    )
    move(spark, name, moves)
    return len(moves.tags) + len(moves.drop_tags)


def of(meta: Metadata, store: str) -> dict[int, str]:
    """The tags of this store on a table, by the snapshot that each keeps."""
    prefix = _tag(store, "")
    return {snapshot: tag for tag, snapshot in meta.refs.items() if tag.startswith(prefix)}


def _tag(store: str, snapshot: int | str) -> str:
    return f"{_PREFIX}{store}_{snapshot}"
