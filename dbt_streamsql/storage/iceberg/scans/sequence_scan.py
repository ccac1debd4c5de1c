"""The rows of a table that were written after a sequence number, from the files with them.

Spark reads every file for a filter on `_last_updated_sequence_number`, by which Iceberg does not
prune. But no row is newer than its data file: a row without its own number has the file's, and
rows carried over by updates and compaction have older ones. So files up to the number are left
out; the filter stays, because the other files may contain old rows too.

With a JVM the files of a snapshot are planned once (`planned_files.py`). Without it, append-only
commits are read by Iceberg's scan between two snapshots (`appended_rows.py`). Everything else is
read with the filter alone: small tables, and mostly new ones. Only such a scan uses a query's
other filters when it plans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.scans import changes
from dbt_streamsql.storage.iceberg.scans.changes import Change, ChangedFiles


@dataclass
class Recent:
    """The reads of one job in its session; `view` gives a frame a temporary name.

    Another reader reads the appended rows of the tables `fixed`, by options in SQL. Over Spark
    Connect these tables are read with the filter alone: Spark 4.1 applies our options to such a
    read if each is in its own sub-query.

    A table of at most `few_files` and `few_bytes` is read as fast as it is planned; above the
    share `worth` of a table's bytes its new files are not read separately.
    """

    spark: SparkSession
    view: Callable[[DataFrame], str]
    fixed: frozenset[str] = frozenset()
    few_files: int = 8
    few_bytes: int = 16 << 20
    worth: float = 0.5
    _known: dict[tuple[str, int, int], str] = field(default_factory=dict)
    _changed: dict[str, ChangedFiles | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._newer = tables_of(self.spark).newer_rows()

    def rows(self, name: TableName, meta: Metadata, snapshot: int, number: int) -> str:
        """The rows of a snapshot that were written after a sequence number (0: all): SQL.

        They have `changes.LINEAGE` in addition to their columns.
        """
        key = (str(name), snapshot, number)
        if key not in self._known:
            frame = self._frame(name, meta, snapshot, number) if number > 0 else None
            every = changes.with_lineage(name, snapshot)
            rows = every if frame is None else self.view(frame)
            self._known[key] = changes.written_after(rows, number)
        return self._known[key]

    def appended(self, name: TableName, change: Change) -> str | None:
        """The rows of a change of kind append, where its own SQL would conflict with `rows`."""
        if change.kind != "append" or change.old is None:
            return None
        frame = None if str(name) in self.fixed else self._newer.appended(name, change)
        return self.view(frame) if frame is not None else None

    def changed(self, name: TableName, meta: Metadata, change: Change) -> ChangedFiles | None:
        """The files that a change is in; None where the whole version is to be read."""
        key = str(name)
        if key not in self._changed:
            self._changed[key] = self._newer.changed(name, meta, change)
        return self._changed[key]

    def close(self) -> None:
        """Let Iceberg discard the files staged for it."""
        self._newer.close()

    def _frame(
        self, name: TableName, meta: Metadata, snapshot: int, number: int
    ) -> DataFrame | None:
        """Rows written after a number, possibly with others; None: the filter alone is better."""
        at = meta.snapshots[snapshot]
        size = at.count("total-files-size")
        if at.count("total-data-files") <= self.few_files and size <= self.few_bytes:
            return None
        if meta.lags(snapshot):
            # Both ways return the table's current columns.
            return None
        if self._newer.by_options and str(name) in self.fixed:
            return None
        return self._newer.after(name, meta, snapshot, number, self.worth)
