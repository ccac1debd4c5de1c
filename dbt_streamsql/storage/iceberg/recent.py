"""The rows of a table that were written after a sequence number, from the files that have them.

Spark reads every file for a condition on `_last_updated_sequence_number`, by which Iceberg does
not prune. But no row is newer than its data file: one without a number of its own has the file's,
and what updates and compaction carry over has an older one. So files up to the number are left
out; the condition stays, for the others may hold old rows too.

With the JVM in reach the files of a snapshot are planned once, deletes included, and those that
are new enough are handed to Spark as Iceberg's compaction does it. Without it, commits that only
appended are read by Iceberg's scan of what was appended between two snapshots. All else is read
by the condition alone: what is small, and what is new for the most part. Only such a scan makes
use of a query's other conditions when it plans.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import changes
from dbt_streamsql.storage.iceberg.changes import Change
from dbt_streamsql.storage.iceberg.java import (
    frame_of,
    is_connect,
    java_class,
    java_table,
    number_of,
)
from dbt_streamsql.storage.iceberg.metadata import Metadata, Snapshot

MANY_COMMITS = 100
"""The scan of what was appended opens a list of files for each commit."""

_TASK, _FILE = "org.apache.iceberg.ContentScanTask", "org.apache.iceberg.ContentFile"


@dataclass(frozen=True)
class _Files:
    """The scan tasks of a snapshot, oldest first: Java's table and list. `size`: Java's function
    from a task to the bytes that it reads."""

    table: Any
    tasks: Any
    size: Any


@dataclass
class Recent:
    """The reads of one job in its session; `view` gives a frame a temporary name.

    Of the tables `fixed` something else reads what was appended, by options in its SQL. Over Spark
    Connect they are read by the condition alone: Spark 4.1 gives such a read our options where
    each stands in a sub-query of its own.

    A table of at most `few_files` and `few_bytes` is read as quickly as it is planned; above the
    share `worth` of a table's bytes its new files are not read by themselves.
    """

    spark: SparkSession
    view: Callable[[DataFrame], str]
    fixed: frozenset[str] = frozenset()
    few_files: int = 8
    few_bytes: int = 16 << 20
    worth: float = 0.5
    _known: dict[tuple[str, int, int], str] = field(default_factory=dict)
    _files: dict[tuple[str, int], _Files] = field(default_factory=dict)
    _staged: list[tuple[Any, str]] = field(default_factory=list)

    def rows(self, name: TableName, meta: Metadata, snapshot: int, number: int) -> str:
        """The rows of a snapshot that were written after a sequence number (0: all): SQL.

        They have `changes.LINEAGE` beside their columns.
        """
        key = (str(name), snapshot, number)
        if key not in self._known:
            frame = self._frame(name, meta, snapshot, number) if number > 0 else None
            every = changes.with_lineage(name, snapshot)
            rows = every if frame is None else self.view(frame)
            self._known[key] = changes.after(rows, number)
        return self._known[key]

    def appended(self, name: TableName, change: Change) -> str | None:
        """The rows of a change of kind append, where its own SQL would not do beside `rows`."""
        if change.kind != "append" or change.old is None:
            return None
        if not is_connect(self.spark) or str(name) in self.fixed:
            return None
        return self.view(self._between(name, change.old, change.new))

    def close(self) -> None:
        """Let Iceberg forget the files that were handed to it."""
        for table, key in self._staged:
            _task_sets(self.spark).removeTasks(table, key)
        self._staged.clear()

    def _frame(
        self, name: TableName, meta: Metadata, snapshot: int, number: int
    ) -> DataFrame | None:
        """Rows written after a number, maybe others too; None: the condition alone is better."""
        at = meta.snapshots[snapshot]
        size = at.count("total-files-size")
        if at.count("total-data-files") <= self.few_files and size <= self.few_bytes:
            return None
        if meta.lags(snapshot):
            # Both ways give the columns that the table has now.
            return None
        if not is_connect(self.spark):
            return self._newer_files(name, snapshot, number)
        path = _appends(meta, snapshot, number)
        if not path or len(path) > MANY_COMMITS or str(name) in self.fixed:
            return None
        if sum(commit.count("added-files-size") for commit in path) > self.worth * size:
            return None
        return self._between(name, path[0].parent, snapshot)

    def _between(self, name: TableName, old: int | None, new: int | None) -> DataFrame:
        """What commits appended after one snapshot, up to another."""
        reader = self.spark.read.option("start-snapshot-id", str(old))
        reader = reader.option("end-snapshot-id", str(new))
        return reader.table(name.sql).select("*", *changes.LINEAGE)

    def _newer_files(self, name: TableName, snapshot: int, number: int) -> DataFrame | None:
        key = (str(name), snapshot)
        if key not in self._files:
            self._files[key] = _planned(self.spark, name, snapshot)
        files = self._files[key]
        first, end = 0, files.tasks.size()
        while first < end:
            middle = (first + end) // 2
            if files.tasks.get(middle).file().dataSequenceNumber() > number:
                end = middle
            else:
                first = middle + 1
        if first == files.tasks.size():
            return self.spark.sql(f"SELECT * FROM {changes.with_lineage(name, snapshot)} LIMIT 0")
        newer = files.tasks.subList(first, files.tasks.size())
        read, every = (part.stream().mapToLong(files.size).sum() for part in (newer, files.tasks))
        if read > self.worth * every:
            return None
        own = f"streamsql-{uuid.uuid4().hex}"
        kept = java_class(self.spark, "java.util.ArrayList")(newer)
        _task_sets(self.spark).stageTasks(files.table, own, kept)
        self._staged.append((files.table, own))
        table = java_class(self.spark, "org.apache.iceberg.spark.source.SparkRewriteTable")
        return frame_of(self.spark, table(files.table, own))


def _planned(spark: SparkSession, name: TableName, snapshot: int) -> _Files:
    table = java_table(spark, name)
    lists = java_class(spark, "org.apache.iceberg.relocated.com.google.common.collect.Lists")
    planned = table.newScan().useSnapshot(snapshot).planFiles()
    try:
        tasks = lists.newArrayList(planned.iterator())
    finally:
        planned.close()
    written = number_of(spark, table, (_TASK, "file"), (_FILE, "dataSequenceNumber"))
    order = java_class(spark, "java.util.Comparator").comparingLong(written)
    java_class(spark, "java.util.Collections").sort(tasks, order)
    return _Files(table, tasks, number_of(spark, table, (_TASK, "sizeBytes")))


def _task_sets(spark: SparkSession) -> Any:
    return java_class(spark, "org.apache.iceberg.spark.ScanTaskSetManager").get()


def _appends(meta: Metadata, snapshot: int, number: int) -> list[Snapshot]:
    """The commits after that of a sequence number: none unless all appended or compacted.

    None either where that commit is not known any more.
    """
    path: list[Snapshot] = []
    at = meta.snapshots.get(snapshot)
    while at is not None and at.sequence != number:
        if at.operation not in ("append", "replace"):
            return []
        path.append(at)
        at = meta.snapshots.get(at.parent) if at.parent is not None else None
    return path[::-1] if at is not None else []
