"""Tags that keep snapshots alive for those who still have to read them."""

from __future__ import annotations

from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg.commits.refs import RefUpdate, update_refs
from dbt_streamsql.storage.iceberg.metadata import Metadata

_PREFIX = "streamsql_pin_"


def reconcile(
    spark: SparkSession, name: TableName, meta: Metadata, store: str, wanted: set[int]
) -> int:
    """Make the tags of this store on a table exactly those for `wanted` snapshots; returns the
    number of changes.

    `store` distinguishes one MetaService from another: several may pin the same table.
    """
    change = moves(meta, store, wanted)
    update_refs(spark, name, change)
    return len(change.tags) + len(change.drop_tags)


def moves(meta: Metadata, store: str, wanted: set[int]) -> RefUpdate:
    """What `reconcile` does to a table, for callers that move more refs in the same commit."""
    have = of(meta, store)
    new = sorted(wanted - set(have))
    return RefUpdate(
        tags={_tag(store, snapshot): snapshot for snapshot in new if snapshot in meta.snapshots},
        drop_tags=tuple(have[snapshot] for snapshot in sorted(set(have) - wanted)),
    )


def of(meta: Metadata, store: str) -> dict[int, str]:
    """The tags of this store on a table, by the snapshot that each keeps."""
    prefix = _tag(store, "")
    return {snapshot: tag for tag, snapshot in meta.refs.items() if tag.startswith(prefix)}


def _tag(store: str, snapshot: int | str) -> str:
    return f"{_PREFIX}{store}_{snapshot}"
