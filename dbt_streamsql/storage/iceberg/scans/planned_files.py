"""New rows of a table from the files with them, planned once for Spark (`sequence_scan.py`).

Iceberg's own Java plans the files of a snapshot, including deletes, and those that are new enough
are staged as in Iceberg's compaction.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import gateway_work
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.scans import changes
from dbt_streamsql.storage.iceberg.scans.changes import Change, ChangedFiles
from dbt_streamsql.storage.java import (
    frame_of,
    java_class,
    java_table,
    number_of,
)

_TASK, _FILE = "org.apache.iceberg.ContentScanTask", "org.apache.iceberg.ContentFile"


@dataclass(frozen=True)
class _Files:
    """The scan tasks of a snapshot, oldest first: Java's table and list. `size`: Java's function
    from a task to the bytes that it reads."""

    table: Any
    tasks: Any
    size: Any


@dataclass
class PlannedFiles:
    """`NewerRows` with a JVM."""

    spark: SparkSession
    _files: dict[tuple[str, int], _Files] = field(default_factory=dict)
    _staged: list[tuple[Any, str]] = field(default_factory=list)
    _views: list[tuple[TableName, str, str]] = field(default_factory=list)
    by_options = False

    def after(
        self, name: TableName, _: Metadata, snapshot: int, number: int, worth: float
    ) -> DataFrame | None:
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
        if read > worth * every:
            return None
        own = f"streamsql-{uuid.uuid4().hex}"
        kept = java_class(self.spark, "java.util.ArrayList")(newer)
        task_sets(self.spark).stageTasks(files.table, own, kept)
        self._staged.append((files.table, own))
        return frame_of(self.spark, gateway_work.staged(self.spark, files.table, own))

    def appended(self, _: TableName, __: Change) -> None:
        """A change reads the new rows with its own SQL."""

    def changed(self, name: TableName, meta: Metadata, change: Change) -> ChangedFiles | None:
        if not changes.is_in_files(meta, change):
            return None
        assert change.new is not None
        fresh, marked = (f"streamsql_{uuid.uuid4().hex}" for _ in range(2))
        self._views.append((name, fresh, marked))
        of_fresh, of_marked = gateway_work.stage_changed(
            self.spark, name, change.new, changes.sequence(meta, change), fresh, marked
        )
        return ChangedFiles(
            fresh if of_fresh else "", marked if of_marked else "", of_fresh + of_marked
        )

    def close(self) -> None:
        for name, fresh, marked in self._views:
            gateway_work.unstage_changed(self.spark, name, fresh, marked)
        self._views.clear()
        for table, key in self._staged:
            task_sets(self.spark).removeTasks(table, key)
        self._staged.clear()


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


def task_sets(spark: SparkSession) -> Any:
    """Iceberg's registry of the files staged for one read."""
    return java_class(spark, "org.apache.iceberg.spark.ScanTaskSetManager").get()
