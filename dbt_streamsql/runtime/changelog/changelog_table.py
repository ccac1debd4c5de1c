"""The changes of a view as a table next to it, `<view>__changelog`: redo and undo rows by barrier.

For every barrier t, with all rows up to t: R[t] = rows with `+` - rows with `-`

Each change is in it exactly once, whenever a process dies, because it has no protocol of its own:
it is staged on a branch (or in the hidden schema), recorded with the view's version in one
transaction, published by the same roll-forward and swept by the same sweep. Whether it continues
from where the view was shows in the snapshot of the view that its last version was computed from;
where it does not (it is new, was off for a while, or the view has other columns), it is rebuilt
from the whole view, as rows that were added at that barrier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import NOOP, ROLLED_BACK, Fence, Job, TableVersion
from dbt_streamsql.meta.model.stored_definition import definition_of
from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.changelog import changelog_query
from dbt_streamsql.runtime.core import definition_property
from dbt_streamsql.runtime.core.epoch_state import (
    EpochState,
    Version,
    Warehouse,
    unchanged,
)
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.spark.scratch import Scratch
from dbt_streamsql.runtime.write import staging_branch
from dbt_streamsql.runtime.write.change_feed import Feed
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.iceberg import metadata, provenance, staging
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.provenance import Provenance
from dbt_streamsql.storage.iceberg.scans import changes
from dbt_streamsql.storage.inputs import inputs

SUFFIX = "__changelog"
_ONE_FILE = 100_000
"""Changes up to this number of rows are written by one task, into one file."""


def table_of(view: str) -> TableName:
    """The name of the changelog of a view, whether it has one or not."""
    name = TableName.parse(view)
    return replace(name, table=name.table + SUFFIX)


def view_of(table: str) -> str:
    """The view whose changelog has this name ('' when it is not such a name)."""
    name = TableName.parse(table)
    short = name.table.removesuffix(SUFFIX)
    return str(replace(name, table=short)) if short and short != name.table else ""


def wanted(jobs: Mapping[str, Job], view: str) -> bool:
    """Whether this is a view that has a changelog table."""
    return view in jobs and definition_of(jobs[view]).changelog


def in_order(jobs: Mapping[str, Job]) -> dict[str, Job]:
    """The jobs as if those that read the changelog of a view read the view itself."""
    return {name: replace(job, sources=tuple(runs_first(job, jobs))) for name, job in jobs.items()}


def runs_first(job: Job, jobs: Mapping[str, Job]) -> list[str]:
    """What a job reads, with the view for its changelog."""
    owners = {source: view_of(source) for source in job.sources if source not in jobs}
    return [
        owners[source] if wanted(jobs, owners.get(source, "")) else source
        for source in job.sources
    ]


def stage(epoch: EpochState, job: Job, version: TableVersion) -> TableVersion | None:
    """Stage what a version of a view changes in its changelog; None when there is nothing to do.

    `version` is staged, or says that the view is unchanged.
    Errors: TABLE_EXISTS, DUPLICATE_WRITER, RESERVED_NAME.
    """
    if not wanted({job.table: job}, job.table):
        return None
    changelog_query.check_columns(job)
    clock = epoch.warehouse.clock
    started = clock.monotonic()
    with epoch.warehouse.sessions.use() as spark:
        counter = epoch.warehouse.sessions.job_count(spark)
        local = Scratch(spark, epoch.warehouse.tuning.fetched_bytes)
        try:
            staged = _Table(epoch, job, version, spark, local).stage()
        finally:
            local.close()
            usage = counter.stop()
    return staged and replace(staged, jobs=usage.jobs, seconds=clock.monotonic() - started)


def drop_of(warehouse: Warehouse, fence: Fence, view: str) -> None:
    """Drop the changelog of a view, if it has one."""
    table = str(table_of(view))
    if table not in warehouse.store.jobs() and warehouse.store.latest(table) is not None:
        _drop(warehouse, fence, table)


def _drop(warehouse: Warehouse, fence: Fence, table: str) -> None:
    with failpoint("sweep.changelog"):
        staging.drop_table(warehouse.sessions.main, TableName.parse(table))
        warehouse.store.drop_job(fence, table)


def sweep(warehouse: Warehouse, fence: Fence) -> int:
    """Drop the changelog tables that no view wants any more; returns how many."""
    jobs = warehouse.store.jobs()
    known = [table for table in warehouse.store.latest_all() if table not in jobs]
    gone = [table for table in known if not wanted(jobs, view_of(table))]
    for table in gone:
        _drop(warehouse, fence, table)
    return len(gone)


class _Table:
    """The changelog of one view in one epoch."""

    def __init__(
        self,
        epoch: EpochState,
        job: Job,
        version: TableVersion,
        spark: SparkSession,
        local: Scratch,
    ) -> None:
        self.epoch, self.job, self.version = epoch, job, version
        self.spark, self.local = spark, local
        self.view = TableName.parse(job.table)
        self.name = table_of(job.table).checked()
        self.meta = metadata.load(spark, self.name)
        self.last = epoch.latest.get(str(self.name))

    def stage(self) -> TableVersion | None:
        if self.meta is not None and self._goes_on(self.meta):
            assert self.last is not None
            if self.version.mode == NOOP:
                return None
            rows = self._change()
            if rows is None:
                read = {self.job.table: self.version.snapshot}
                return replace(unchanged(self.last, read), barrier=self.epoch.barrier())
            return self._append(self.meta, rows)
        self._check_free()
        names = ", ".join(quote(name) for name in changelog_query.names_of(self.job))
        return self._build(f"(SELECT {names}, 1L AS {WEIGHT} FROM {self._now})")

    # -- where it stands ---------------------------------------------------------------------

    def _goes_on(self, meta: Metadata) -> bool:
        """Whether the table holds all changes up to the version that the view had before."""
        before = self.epoch.latest.get(self.job.table)
        if before is None or self.last is None or self.version.created:
            return False
        in_step = self.last.inputs.get(self.job.table) == before.snapshot
        return in_step and self.last.snapshot in meta.snapshots and self._same_columns()

    def _same_columns(self) -> bool:
        stored = [(f.name, type_text(f.dataType)) for f in self.spark.table(self.name.sql).schema]
        ours = [(column["name"], column["type"]) for column in self.job.columns]
        return stored == [
            *ours,
            (changelog_query.BARRIER, "bigint"),
            (changelog_query.OPERATION, "string"),
        ]

    def _check_free(self) -> None:
        if str(self.name) in self.epoch.jobs:
            raise StreamSqlError(
                "DUPLICATE_WRITER",
                f"{self.name} is a view and cannot also be the changelog of {self.view}",
                hint=f"give the view another name, or set `changelog: false` on {self.view}",
            )
        snapshots = self.meta.snapshots.values() if self.meta is not None else ()
        ours = any(provenance.BARRIER_PROPERTY in snapshot.summary for snapshot in snapshots)
        if not ours and staging.exists(self.spark, self.name):
            raise StreamSqlError(
                "TABLE_EXISTS",
                f"{self.name} exists and is not the changelog of {self.view}",
                hint=f"drop it, or set `changelog: false` on {self.view}",
            )

    # -- what to write -----------------------------------------------------------------------

    @property
    def _now(self) -> str:
        """The view as it is at this barrier."""
        staged = self.epoch.staged.get(self.job.table)
        if staged is not None:
            return inputs.version(staged.at, staged.snapshot)
        return inputs.version(self.view, self.version.snapshot)

    def _change(self) -> str | None:
        """What the view's version changes, as signed rows."""
        old = self.epoch.latest[self.job.table].snapshot
        staged = self.epoch.staged[self.job.table]
        barrier = self.epoch.barrier()
        # Only an incremental run writes one, and it holds the change to the version that the run
        # continued from.
        files = self.epoch.warehouse.store.change_files(self.job.table, barrier - 1, barrier)
        if files and ROLLED_BACK not in self.version.stats:
            known = self.local.view(Feed(self.job, (files[-1].path,)).read(self.spark))
            return changes.consolidated(
                f"SELECT * FROM {known}", changelog_query.columns_of(self.job)
            )
        if staged.at == self.view:
            return changelog_query.change(self.view, staged.meta, old, staged.snapshot, self.job)
        return changelog_query.difference(self._now, inputs.version(self.view, old), self.job)

    def _told(self, rows: str) -> str:
        barrier = f"SELECT *, {self.epoch.barrier()}L AS {changelog_query.BARRIER} FROM {rows}"
        return changelog_query.as_redo_undo_rows(
            f"({barrier})", changelog_query.names_of(self.job)
        )

    # -- writing where no reader looks -------------------------------------------------------

    def _append(self, meta: Metadata, rows: str) -> TableVersion:
        assert meta.current is not None
        few = self.version.rows_inserted + self.version.rows_deleted <= _ONE_FILE
        hint = "/*+ COALESCE(1) */ " if few else ""
        origin = self._origin()
        on_branch = staging_branch.written(self.spark, self.name, meta.current, origin)
        with on_branch as (branch, target):
            self.spark.sql(f"INSERT INTO {target} SELECT {hint}* FROM ({self._told(rows)})")
        staged = metadata.load(self.spark, self.name)
        assert staged is not None
        head = staged.refs[branch]
        self._announce(Version(self.name, staged, head, origin.barrier))
        return TableVersion(
            origin.barrier,
            str(self.name),
            snapshot=head,
            branch=branch,
            mode="append",
            rows_inserted=staged.snapshots[head].count("added-records"),
            inputs={self.job.table: self.version.snapshot},
        )

    def _build(self, rows: str) -> TableVersion:
        barrier = self.epoch.barrier()
        at = self.epoch.staging_place(self.name)
        new = self.meta is None
        location = self.epoch.warehouse.place_of(self.name) if new else ""
        kept = definition_property.properties(str(self.name), self.epoch.warehouse.store_id, None)
        properties = {**staging.view_properties(len(self.job.columns)), **kept}
        with failpoint("table.build"), staging.stamped(self.spark, self._origin()):
            snapshot = staging.build(self.spark, at, self._told(rows), location, properties)
        staged = metadata.load(self.spark, at)
        assert staged is not None
        self._announce(Version(at, staged, snapshot, barrier))
        return TableVersion(
            barrier,
            str(self.name),
            snapshot=snapshot,
            staged_at=str(at),
            created=new,
            mode="full",
            rows_inserted=staged.live_rows(snapshot),
            inputs={self.job.table: self.version.snapshot},
        )

    def _origin(self) -> Provenance:
        return Provenance(self.epoch.barrier(), {self.job.table: self.version.snapshot})

    def _announce(self, version: Version) -> None:
        with self.epoch.lock:
            self.epoch.staged[str(self.name)] = version
