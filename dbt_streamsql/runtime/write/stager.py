"""Stage a new version of a table where no reader looks: in a staging table, or on a branch."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import ChangeFile, Job, TableVersion
from dbt_streamsql.meta.model.stored_definition import definition_of
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core import definition_property
from dbt_streamsql.runtime.core.epoch_state import EpochState, Version
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.write import change_feed
from dbt_streamsql.runtime.write.write_result import Outcome
from dbt_streamsql.storage.iceberg import files, metadata, staging
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.provenance import Provenance


@dataclass(frozen=True)
class Stager:
    """Stages for one job in one epoch. `inputs` are the snapshots that a version is computed from,
    `position` is how far its stream is read, `event_time` the stream's event-time progress."""

    epoch: EpochState
    job: Job
    inputs: Mapping[str, int | None]
    position: Mapping[str, Any] | None = None
    event_time: Mapping[str, Any] | None = None

    def origin(self) -> Provenance:
        """The provenance that the snapshots of this version record."""
        new = self.job.table in self.epoch.definitions
        text = definition_property.encode(self.job) if new else ""
        return Provenance(
            *(self.epoch.barrier(), self.inputs, self.job.fingerprint, text),
            position=self.position,
            event_time=self.event_time,
        )

    def build(
        self, spark: SparkSession, select: str, meta: Metadata | None
    ) -> tuple[TableName, Metadata]:
        """Build a staging table from a query; `meta` is that of the table it replaces."""
        name = TableName.parse(self.job.table)
        at = self.epoch.staging_place(name)
        location = "" if meta is not None else self.epoch.warehouse.place_of(name)
        known = definition_of(self.job)
        properties = {
            **staging.view_properties(len(self.job.columns) + len(known.hidden)),
            **known.properties,
            **definition_property.properties(
                self.job.table, self.epoch.warehouse.store_id, self.job
            ),
        }
        with failpoint("table.build"), staging.stamped(spark, self.origin()):
            staging.build(spark, at, select, location, properties)
        return at, loaded(spark, at)

    def replacement(
        self, at: TableName, staged: Metadata, meta: Metadata | None, mode: str, reason: str
    ) -> TableVersion:
        """The record of a staging table that replaces the job's table."""
        barrier = self.epoch.barrier()
        self.announce(Version(at, staged, staged.current, barrier))
        return TableVersion(
            barrier,
            self.job.table,
            snapshot=staged.current,
            staged_at=str(at),
            created=meta is None,
            mode=mode,
            reason=reason,
            rows_inserted=staged.live_rows(staged.current),
            rows_deleted=meta.live_rows(meta.current) if meta is not None else 0,
            inputs=self.inputs,
        )

    def branched(self, spark: SparkSession, branch: str, **more: Any) -> TableVersion:
        """The record of what was written on a branch of the job's table; `more` are other
        fields."""
        barrier, name = self.epoch.barrier(), TableName.parse(self.job.table)
        staged = loaded(spark, name)
        head = staged.refs[branch]
        self.announce(Version(name, staged, head, barrier))
        return TableVersion(
            barrier, self.job.table, snapshot=head, branch=branch, inputs=self.inputs, **more
        )

    def wrote(
        self, spark: SparkSession, branch: str, outcome: Outcome, before: Metadata
    ) -> TableVersion:
        """The record of a change that was written on a branch. If the process has its rows, the
        readers of this epoch get them from it."""
        version = self.branched(
            spark,
            branch,
            mode="incremental" if outcome.deleted else "append",
            rows_inserted=outcome.inserted,
            rows_deleted=outcome.deleted,
        )
        if outcome.feed is not None and outcome.feed.rows is not None:
            change = (self.job.table, before.current, version.snapshot)
            self.epoch.changes.put(change, outcome.feed.rows)
        return version

    def announce(self, version: Version) -> None:
        """Let the jobs that read the table read this version."""
        with self.epoch.lock:
            self.epoch.staged[self.job.table] = version

    def write_feed(
        self, spark: SparkSession, outcome: Outcome, meta: Metadata, columns: Sequence[str]
    ) -> None:
        """Write the table's own change next to it, for views that read it later.

        Where no file can be next to it, they read the change from the table.
        """
        if outcome.feed is None or not files.reaches(spark, meta.location):
            return
        barrier = self.epoch.barrier()
        own = self.epoch.warehouse.new_name()[:8]
        path = posixpath.join(f"{meta.location}-changes", f"b{barrier}-{own}")
        file = ChangeFile(self.job.table, barrier, path, outcome.inserted + outcome.deleted)
        # Registered before it exists, so that files of a dead process can be found and removed.
        with failpoint("changes.register"):
            self.epoch.warehouse.store.add_change_file(self.epoch.fence, file)
        with failpoint("changes.write"):
            change_feed.write(spark, path, outcome.feed, list(columns))
        listed = self.epoch.warehouse.store.change_files(self.job.table, barrier - 1, barrier)
        if path not in {known.path for known in listed}:
            # A process that aborted the barrier while this one was paused found nothing to delete.
            files.delete_folder(spark, path)
            raise StreamSqlError(
                "META_CONFLICT",
                f"another runner has aborted barrier {barrier}",
                hint="run again",
            )

    def forget_feed(self, spark: SparkSession) -> None:
        """Undo `write_feed`: the table's change will be a different one."""
        store, barrier = self.epoch.warehouse.store, self.epoch.barrier()
        paths = [f.path for f in store.change_files(self.job.table, barrier - 1, barrier)]
        for path in paths:
            files.delete_folder(spark, path)
        if paths:
            # Last: a process that dies in between leaves files that a sweep can find.
            store.forget_change_files_at(self.epoch.fence, paths)


def loaded(spark: SparkSession, table: TableName) -> Metadata:
    """The metadata of a table that was just written."""
    meta = metadata.load(spark, table)
    assert meta is not None
    return meta
