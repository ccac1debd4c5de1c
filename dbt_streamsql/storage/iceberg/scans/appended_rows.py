"""New rows of a table from the commits that appended them, in one scan (`sequence_scan.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg.metadata import Metadata, Snapshot
from dbt_streamsql.storage.iceberg.scans import changes, summaries
from dbt_streamsql.storage.iceberg.scans.changes import Change

MANY_COMMITS = 100
"""The scan of appended rows opens a manifest list for each commit."""


@dataclass(frozen=True)
class AppendedRows:
    """`NewerRows` without a JVM."""

    spark: SparkSession
    by_options = True

    def after(
        self, name: TableName, meta: Metadata, snapshot: int, number: int, worth: float
    ) -> DataFrame | None:
        path = _appends(meta, snapshot, number)
        if not path or len(path) > MANY_COMMITS:
            return None
        size = meta.snapshots[snapshot].count("total-files-size")
        if sum(commit.count("added-files-size") for commit in path) > worth * size:
            return None
        return self._between(name, path[0].parent, snapshot)

    def appended(self, name: TableName, change: Change) -> DataFrame:
        return self._between(name, change.old, change.new)

    def changed(self, _: TableName, __: Metadata, ___: Change) -> None:
        """Without a JVM no files can be staged."""

    def close(self) -> None:
        """Nothing was prepared."""

    def _between(self, name: TableName, old: int | None, new: int | None) -> DataFrame:
        """The rows that commits appended after one snapshot, up to another."""
        reader = self.spark.read.option("start-snapshot-id", str(old))
        reader = reader.option("end-snapshot-id", str(new))
        return reader.table(name.sql).select("*", *changes.LINEAGE)


def _appends(meta: Metadata, snapshot: int, number: int) -> list[Snapshot]:
    """The commits after the one with a sequence number: none unless all appended or compacted.

    Also none where that commit is no longer known.
    """
    path: list[Snapshot] = []
    at = meta.snapshots.get(snapshot)
    while at is not None and at.sequence != number:
        if at.operation != "replace" and not summaries.appends(at):
            return []
        path.append(at)
        at = meta.snapshots.get(at.parent) if at.parent is not None else None
    return path[::-1] if at is not None else []
