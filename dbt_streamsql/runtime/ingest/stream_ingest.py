"""Ingest one streaming table in one epoch: record the end position, read up to it, stage the rows.

The records of a barrier are those after the position of the table's last version, up to one that
the store records before anything is read. So an aborted barrier has consumed nothing, and each
record is in the table once, whichever process dies when (FLIP-276, `<barrier, offsets>`).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from dbt_streamsql.connectors.sources.source import End, Position, end_of
from dbt_streamsql.meta import NOOP, Job, Span, TableVersion
from dbt_streamsql.meta.inspect.history import EVENT_TIME, OLDEST_CHANGE
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.core.epoch_state import EpochState, unchanged
from dbt_streamsql.runtime.core.event_time import Progress, Split
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.ingest.stream_definition import (
    EARLY,
    LOST,
    POSITION,
    QUARANTINE,
    TOMBSTONES,
    Stream,
    beside,
    side_tables,
)
from dbt_streamsql.runtime.ingest.stream_reader import StreamReading
from dbt_streamsql.runtime.ingest.unsent_values import Carry, Settled, Stored
from dbt_streamsql.runtime.ingest.upserts import Target, Upsert
from dbt_streamsql.runtime.refresh.full_query import Rewrite
from dbt_streamsql.runtime.spark.join_conditions import same
from dbt_streamsql.runtime.spark.scratch import Scratch
from dbt_streamsql.runtime.write import staging_branch
from dbt_streamsql.runtime.write.stager import Stager
from dbt_streamsql.storage.conf import over_few_rows
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.inputs import inputs


@dataclass
class StreamIngest:
    """One run of one streaming table. `asked`: why its stream is read from the beginning again
    ('': it is not); `drift`: how the table's columns are to change ('': they are not)."""

    epoch: EpochState
    job: Job
    plan: CompiledPlan
    stream: Stream
    asked: str
    drift: str
    rewrite: Rewrite
    name: TableName = field(init=False)
    reading: StreamReading = field(init=False)

    def __post_init__(self) -> None:
        self.name = TableName.parse(self.job.table)
        self.reading = StreamReading(self.epoch, self.job, self.plan, self.stream, self.rewrite)

    def run(self) -> list[TableVersion]:
        """Stage the versions of the table and its side tables for this barrier; returns their
        records, the table's own first.

        Errors: BAD_RECORD, STREAM_LOST.
        """
        clock = self.epoch.warehouse.clock
        at, started = clock.time(), clock.monotonic()
        with self.epoch.warehouse.sessions.use() as spark, ExitStack() as held:
            counter = self.epoch.warehouse.sessions.job_count(spark)
            try:
                version, *others = self._run(spark, held)
            finally:
                usage = counter.stop()
        seconds = clock.monotonic() - started
        version = replace(version, jobs=usage.jobs, started_at=at, seconds=seconds)
        if version.mode != NOOP:
            version = replace(version, stats={**version.stats, "bytes_read": usage.bytes})
        return [version, *(replace(other, jobs=0, started_at=at) for other in others)]

    def _run(self, spark: SparkSession, held: ExitStack) -> list[TableVersion]:
        known = self.epoch.before(self.job.table)
        meta = self.reading.meta(self.job.table) if known is not None else None
        previous = None if self.asked or meta is None else known
        after = self.reading.after(previous, meta) if previous is not None else None
        end = held.enter_context(end_of(self.reading.source, spark, after))
        others_stand = all(self.epoch.before(o.table) for o in side_tables(self.job))
        progress = self.reading.progress(previous, meta)
        if end is None and previous is not None and others_stand and not self.drift:
            stats: dict[str, Any] = {POSITION: after}
            if self.stream.by_event_time:
                upto = self.reading.watermark(spark, progress, progress.seen, new=False)
                stats[EVENT_TIME] = replace(progress, upto=upto).kept()
            if not progress.passed(stats):
                return [replace(unchanged(previous, {}), stats=stats)]
        if end is not None:
            span = {self.job.table: Span(after, end.position)}
            with failpoint("stream.record"):
                self.epoch.warehouse.store.add_spans(self.epoch.fence, self.epoch.barrier(), span)
        tuning = self.epoch.warehouse.tuning
        local, most = Scratch(spark, tuning.fetched_bytes), tuning.driver_rows
        few = end is None or (end.records is not None and end.records <= most)
        few = few and progress.waiting <= most
        try:
            with over_few_rows(spark, few):
                version, *others = self._take(
                    spark, local, after, end, previous, meta, progress, few=few
                )
        except PySparkException as error:
            bad = self.reading.told(error)
            if bad is None:
                raise
            raise bad from error
        finally:
            local.close()
        stats = {
            **version.stats,
            "strategy": self.plan.strategy,
            "plan": self.plan.fingerprint,
            POSITION: end.position if end is not None else after,
        }
        if end is not None and end.oldest is not None and previous is not None:
            stats[OLDEST_CHANGE] = {self.stream.name: end.oldest}
        return [replace(version, stats=stats), *others]

    # -- what is staged ----------------------------------------------------------------------

    def _take(
        self,
        spark: SparkSession,
        local: Scratch,
        after: Position | None,
        end: End | None,
        previous: TableVersion | None,
        meta: Metadata | None,
        progress: Progress,
        *,
        few: bool,
    ) -> list[TableVersion]:
        """Stage the records up to `end` (None: there is none yet)."""
        position = end.position if end is not None else after
        records = self.reading.records(spark, local, after, end)
        select, split, kept = self.reading.query(spark, records), None, None
        settled: Settled | None = None
        if self.stream.by_event_time:
            new = end is not None
            split, now = self.reading.split(spark, local, select, progress, previous, new=new)
            select, kept = split.ripe, now.kept()
        stager = Stager(self.epoch, self.job, {}, position, kept)
        if self.stream.key:
            most = max(0, self.epoch.warehouse.tuning.driver_rows)
            found = Upsert(self.stream, self.plan, local, select, most, few, self._carry(few))
            staged = self._upsert(spark, stager, found, previous, meta)
            settled = found.settled
        elif previous is None:
            names = ", ".join(quote(column.name) for column in self.plan.columns)
            staged = [self._build(spark, stager, f"SELECT {names} FROM ({select})", meta)]
        elif self.drift:
            assert meta is not None
            staged = [self._restored(spark, stager, select, meta)]
        else:
            assert meta is not None
            staged = [self._append(spark, stager, select, meta)]
        if self.stream.quarantines:
            bad = self.reading.refused(records)
            bad += f" UNION ALL {split.refused}" if split is not None else ""
            if settled is not None and settled.refused:
                bad += f" UNION ALL {settled.refused}"
            bad = f"SELECT *, {self.epoch.barrier()}L AS barrier FROM ({bad})"
            staged += self._beside(spark, QUARANTINE, bad)
        if settled is not None and self.stream.forgives:
            staged += self._lost(spark, settled, anew=previous is None)
        if split is not None:
            staged[0] = replace(staged[0], stats={EVENT_TIME: kept})
            staged += self._waiting(spark, split, progress, previous)
        return staged

    def _carry(self, few: bool) -> Carry | None:
        """How records get values that they lack; None where none may lack any, or none can get
        them."""
        carrying = self.reading.carrying
        if carrying is None or carrying.reason:
            return None
        most = self.epoch.warehouse.tuning.driver_rows
        return Carry(carrying, self.stream.key, self.plan.columns, self.stream.forgives, few, most)

    def _lost_before(self, found: Upsert) -> str:
        """The keys of quarantined records, as SQL that may follow FROM ('': there are none)."""
        if found.carry is None or not self.stream.forgives:
            return ""
        job = beside(self.job, LOST)
        known = self.epoch.before(job.table) is not None
        meta = self.reading.meta(job.table) if known else None
        return inputs.version(TableName.parse(job.table), meta.current) if meta else ""

    def _lost(self, spark: SparkSession, settled: Settled, *, anew: bool) -> list[TableVersion]:
        """Stage the keys of quarantined records."""
        job = beside(self.job, LOST)
        if settled.lost:
            return self._beside(spark, LOST, settled.lost, anew=anew)
        if not anew and self.epoch.before(job.table) is not None:
            return []
        names = ", ".join(
            f"CAST(NULL AS {column['type']}) AS {quote(column['name'])}" for column in job.columns
        )
        return self._beside(spark, LOST, f"SELECT {names} WHERE false", anew=True)

    def _waiting(
        self, spark: SparkSession, split: Split, progress: Progress, previous: TableVersion | None
    ) -> list[TableVersion]:
        """Stage the rows that wait now, in place of those that waited before."""
        job = beside(self.job, EARLY)
        meta = self.reading.meta(job.table) if self.epoch.before(job.table) is not None else None
        if meta is None or previous is None:
            return self._beside(spark, EARLY, split.early, anew=True)
        if not progress.waiting and not spark.sql(f"{split.early} LIMIT 1").head():
            return []
        return [self._append(spark, Stager(self.epoch, job, {}), split.early, meta, instead=True)]

    def _build(
        self, spark: SparkSession, stager: Stager, select: str, meta: Metadata | None
    ) -> TableVersion:
        at, built = stager.build(spark, select, meta)
        reason = self.asked or self.drift or "the table is built for the first time"
        return stager.replacement(at, built, meta, "full", reason)

    def _restored(
        self, spark: SparkSession, stager: Stager, select: str, meta: Metadata, but: str = ""
    ) -> TableVersion:
        """Stage the stored rows with their new columns, `but` some (a join), and rows of `select`.

        Columns belong to the whole table, not to a branch of it: readers would see them too early.
        """
        stored = {name.lower() for name in spark.table(self.name.sql).schema.fieldNames()}
        columns = (*self.plan.columns, *self.plan.hidden)
        had = ", ".join(
            f"CAST({f's.{quote(c.name)}' if c.name.lower() in stored else 'NULL'} AS {c.type}) "
            f"AS {quote(c.name)}"
            for c in columns
        )
        names = ", ".join(quote(column.name) for column in columns)
        rows = (
            f"SELECT {had} FROM {inputs.version(self.name, meta.current)} s {but} "
            f"UNION ALL SELECT {names} FROM ({select})"
        )
        return self._build(spark, stager, rows, meta)

    def _append(
        self,
        spark: SparkSession,
        stager: Stager,
        select: str,
        meta: Metadata,
        *,
        instead: bool = False,
    ) -> TableVersion:
        """Stage rows on a branch, in addition to those of the table or `instead` of them."""
        assert meta.current is not None
        name = TableName.parse(stager.job.table)
        names = ", ".join(quote(column["name"]) for column in stager.job.columns)
        on_branch = staging_branch.written(spark, name, meta.current, stager.origin())
        with on_branch as (branch, target):
            if instead:
                rows = spark.sql(f"SELECT {names} FROM ({select})")
                rows.writeTo(target).overwrite(lit(True))
            else:
                spark.sql(f"INSERT INTO {target} ({names}) SELECT {names} FROM ({select})")
        version = stager.branched(spark, branch, mode="incremental" if instead else "append")
        live = self.epoch.staged[version.table].meta.live_rows(version.snapshot)
        before = meta.live_rows(meta.current)
        if instead:
            return replace(version, rows_inserted=live, rows_deleted=before)
        return replace(version, rows_inserted=live - before)

    def _upsert(
        self,
        spark: SparkSession,
        stager: Stager,
        found: Upsert,
        previous: TableVersion | None,
        meta: Metadata | None,
    ) -> list[TableVersion]:
        """Stage the row that the newest record of each key gives, and the deleted keys."""
        if previous is None or meta is None:
            built = self._build(spark, stager, found.rows(), meta)
            if self.stream.whole:
                return [built]
            return [built, *self._beside(spark, TOMBSTONES, found.deleted(), anew=True)]
        readers = self.epoch.readers(self.job.table)
        if self.stream.whole and self.drift:
            return [self._build(spark, stager, found.rows(), meta)]
        table = Target.of(spark, found.local, stager, meta, feed=readers)
        if self.stream.whole:
            winners = found.whole()
            parts = [(table, winners.rows)]
        else:
            deletes = beside(self.job, TOMBSTONES)
            graves = self.reading.meta(deletes.table)
            assert graves is not None
            at = Stager(self.epoch, deletes, {})
            buried = Target.of(spark, found.local, at, graves, feed=False)
            winners = found.winners(
                Stored(
                    inputs.version(self.name, meta.current),
                    inputs.version(TableName.parse(deletes.table), graves.current),
                    self._lost_before(found),
                    frozenset(spark.table(self.name.sql).columns) if found.carry else frozenset(),
                ),
                (table.writer, buried.writer),
            )
            parts = [(table, winners.rows), (buried, winners.deleted)]
        staged = []
        if self.drift and not self.stream.whole:
            but = f"LEFT ANTI JOIN {winners.keys} k ON {same(self.stream.key, 's', 'k')}"
            staged.append(
                self._restored(spark, stager, f"SELECT * FROM {winners.rows}", meta, but)
            )
            del parts[0]
        for target, new in parts:
            version = target.write(new, winners)
            if version is not None:
                staged.append(version)
            elif target is table:
                # The records were read, but change nothing.
                staged.append(replace(unchanged(previous, {}), barrier=self.epoch.barrier()))
        return staged

    def _beside(
        self, spark: SparkSession, suffix: str, select: str, *, anew: bool = False
    ) -> list[TableVersion]:
        """Stage rows of a side table."""
        job = beside(self.job, suffix)
        stager = Stager(self.epoch, job, {})
        known = self.epoch.before(job.table)
        meta = self.reading.meta(job.table) if known is not None else None
        if meta is None or anew:
            return [self._build(spark, stager, select, meta)]
        if not spark.sql(f"SELECT 1 FROM ({select}) LIMIT 1").head():
            return []
        return [self._append(spark, stager, select, meta)]
