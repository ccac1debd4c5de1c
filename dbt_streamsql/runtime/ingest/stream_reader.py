"""What one barrier reads from a stream: from where, which records, and up to which event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.connectors.sources.source import (
    AS_READ,
    AT,
    PROBLEM,
    RAW,
    UNSENT,
    End,
    Position,
    Source,
    end_of,
)
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.meta.inspect.history import EVENT_TIME
from dbt_streamsql.meta.model.stored_definition import definition_of, plan_of
from dbt_streamsql.plan.algebra.expression import fill
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition import drift
from dbt_streamsql.plan.definition.unsent import LACKS, Carrying
from dbt_streamsql.quoting import TableName, literal, quote
from dbt_streamsql.runtime.core.epoch_state import (
    EpochState,
    log,
    pin,
)
from dbt_streamsql.runtime.core.event_time import (
    TIME,
    Progress,
    Root,
    Split,
    watermark,
)
from dbt_streamsql.runtime.ingest.sequenced import bad_record, or_fail
from dbt_streamsql.runtime.ingest.stream_definition import (
    BAD,
    EARLY,
    POSITION,
    Stream,
    beside,
    opened,
    stream_of,
    timed,
)
from dbt_streamsql.runtime.refresh.full_query import Rewrite
from dbt_streamsql.runtime.spark.scratch import Scratch
from dbt_streamsql.storage.iceberg import provenance
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.provenance import Provenance
from dbt_streamsql.storage.inputs import inputs


@dataclass
class StreamReading:
    """The stream of one streaming table in one epoch."""

    epoch: EpochState
    job: Job
    plan: CompiledPlan
    stream: Stream
    rewrite: Rewrite
    source: Source = field(init=False)

    def __post_init__(self) -> None:
        self.source = opened(
            self.stream, self.epoch.warehouse.connections, self.place, self.job.table
        )

    def after(self, previous: TableVersion, meta: Metadata | None) -> Position | None:
        """How far the stream was read for the table as it is."""
        if POSITION in previous.stats:
            position: Position | None = previous.stats[POSITION]
            return position
        told = self._told_by_table(previous, meta)
        if told is not None:
            return told.position
        raise StreamSqlError(
            "STREAM_LOST",
            f"the position of {self.job.table} in {self.source.name} is not known",
            hint="`dbt run --full-refresh` of this model reads the stream from its beginning",
            place=self.place,
        )

    def progress(self, previous: TableVersion | None, meta: Metadata | None) -> Progress:
        """The event-time progress of the table as it is."""
        if previous is None or not self.stream.by_event_time:
            return Progress()
        if EVENT_TIME in previous.stats:
            return Progress.of(previous.stats)
        told = self._told_by_table(previous, meta)
        return Progress.of({EVENT_TIME: told.event_time} if told is not None else {})

    def _told_by_table(self, previous: TableVersion, meta: Metadata | None) -> Provenance | None:
        """What the table itself records: for a store that was rebuilt from the tables."""
        at = previous.snapshot
        while meta is not None and at is not None and at in meta.snapshots:
            told = provenance.read(meta.snapshots[at].summary)
            if told is not None:
                return told
            at = meta.snapshots[at].parent
        return None

    # -- the records -------------------------------------------------------------------------

    def records(
        self, spark: SparkSession, local: Scratch, after: Position | None, end: End | None
    ) -> str:
        """The records up to `end` (None: there is none yet): SQL that may follow FROM."""
        if end is None:
            columns = [*self.source.columns(spark)]
            columns += [(name, "STRING") for name in (RAW, AT, PROBLEM)]
            if self.carrying is not None:
                read = ", ".join(f"{quote(name)}: {kind}" for name, kind in columns[:-3])
                columns += [(UNSENT, "ARRAY<STRING>"), (AS_READ, f"STRUCT<{read}>")]
            empty = ", ".join(f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in columns)
            return f"(SELECT {empty} WHERE false)"
        frame = self.source.read(spark, after, end.position)
        # Records that are needed twice are read once.
        return local.cached(frame) if self.stream.quarantines else local.view(frame)

    def query(self, spark: SparkSession, records: str) -> str:
        """The model's query over those records that can be read."""
        columns = [name for name, _ in self.source.columns(spark)]
        if self.carrying is not None and not self.carrying.reason:
            rows = self._sparse(records, columns, self.carrying)
            select = fill(self.carrying.text, lambda _: rows)
        else:
            good = f"{PROBLEM} IS NULL"
            if not self.stream.forgives:
                good = or_fail(good, bad_record(AT, self._problem, RAW))
            names = ", ".join(map(quote, columns))
            rows = f"(SELECT {names} FROM {records} WHERE {good})"
            select = self.rewrite(
                self.job.sql, lambda name: rows if str(name) == self.stream.name else None
            )
        made = definition_of(self.job).makes or self.plan.columns
        return drift.conformed(select, made, self.plan.columns)

    def _sparse(self, records: str, columns: Sequence[str], carrying: Carrying) -> str:
        """The records with LACKS: SQL that may follow FROM. Records that cannot be read are
        included if they are quarantined, with what determines their key: they may have changed a
        value."""
        good, found = "true", {name: quote(name) for name in columns}
        if self.stream.forgives:
            found |= {
                name: f"coalesce({own}, {AS_READ}.{own}) AS {own}"
                for name, own in found.items()
                if name.lower() in carrying.places
            }
        else:
            good = f"({PROBLEM} IS NULL OR {UNSENT} IS NOT NULL)"
            good = or_fail(good, bad_record(AT, self._problem, RAW))
        shown = ", ".join(found.values())
        lacks = (
            f"CASE WHEN {PROBLEM} IS NOT NULL THEN named_struct("
            f"'names', {UNSENT}, 'raw', {RAW}, 'at', {AT}, 'problem', {PROBLEM}) END"
        )
        return f"(SELECT {shown}, {lacks} AS {LACKS} FROM {records} WHERE {good})"

    def refused(self, records: str) -> str:
        """A query of the records that cannot be read, as rows of a quarantine without barrier; not
        of those that only lack values, if these may be known."""
        bad = f"{PROBLEM} IS NOT NULL"
        if self.carrying is not None and not self.carrying.reason:
            bad += f" AND {UNSENT} IS NULL"
        shown = f"{RAW} AS raw, {AT} AS at, {self._problem} AS reason"
        return f"SELECT {shown} FROM {records} WHERE {bad}"

    @property
    def carrying(self) -> Carrying | None:
        return definition_of(self.job).carries

    @property
    def _problem(self) -> str:
        """Why a record cannot be read, and why no stored value helps."""
        if self.carrying is None or not self.carrying.reason:
            return PROBLEM
        why = literal(f"; the stored value cannot replace it: {self.carrying.reason}")
        return f"if({UNSENT} IS NULL, {PROBLEM}, concat({PROBLEM}, {why}))"

    # -- event time --------------------------------------------------------------------------

    def split(
        self,
        spark: SparkSession,
        local: Scratch,
        select: str,
        progress: Progress,
        previous: TableVersion | None,
        *,
        new: bool,
    ) -> tuple[Split, Progress]:
        """What this barrier takes of the rows in `select` and of those that waited; and its
        event-time progress after that."""
        lateness = self.stream.lateness
        assert lateness is not None
        # Read several times: for their newest time, for what is taken, and for what waits.
        fresh = local.cached(spark.sql(timed(self.stream, select)))
        newest = self._newest(spark, fresh)
        seen = max((at for at in (progress.seen, newest) if at is not None), default=None)
        waited, kept = "", beside(self.job, EARLY)
        meta = self.meta(kept.table) if previous is not None else None
        if meta is not None and progress.waiting:
            waited = inputs.version(TableName.parse(kept.table), meta.current)
        late = progress.late(lateness) if self.stream.late_data == "quarantine" else None
        split = Split(
            tuple(column.name for column in definition_of(self.job).waits),
            fresh,
            waited,
            self.watermark(spark, progress, seen, new=new),
            late,
        )
        text = f"SELECT min(unix_micros({TIME})), count(*) FROM ({split.early})"
        row = spark.sql(text).head()
        assert row is not None
        heard = self.epoch.clock / 1e6 if new or previous is None else progress.heard
        return split, Progress(split.upto, seen, heard, row[0], row[1])

    def watermark(
        self, spark: SparkSession, progress: Progress, seen: int | None, *, new: bool
    ) -> int | None:
        """The W of this epoch's barrier, from all streams with a lateness; `seen` is the greatest
        time of this one now, and `new` whether it has had records."""

        def decide() -> int | None:
            roots = [self._root(progress, seen, new)]
            for table, job in list(self.epoch.jobs.items()):
                stream = stream_of(job)
                if stream is not None and stream.by_event_time and table != self.job.table:
                    roots.append(self._peeked(spark, job, stream))
            return watermark(roots)

        return self.epoch.watermark.once(decide)

    def _root(self, progress: Progress, seen: int | None, new: bool) -> Root:
        after = self.stream.idle_after
        silent = not new and after is not None
        idle = silent and self.epoch.clock / 1e6 - progress.heard >= (after or 0)
        assert self.stream.lateness is not None
        return Root(progress.upto, seen, self.stream.lateness, idle)

    def _peeked(self, spark: SparkSession, job: Job, stream: Stream) -> Root:
        """What another stream of the boundary would contribute; this one does not wait until that
        has been read, since a run need not read it at all."""
        known = self.epoch.before(job.table)
        most = self.epoch.warehouse.tuning.fetched_bytes
        local, progress = Scratch(spark, most), Progress()
        try:
            other = StreamReading(self.epoch, job, plan_of(job), stream, self.rewrite)
            meta = other.meta(job.table) if known is not None else None
            progress = other.progress(known, meta)
            after = other.after(known, meta) if known is not None else None
            seen = progress.seen
            with end_of(other.source, spark, after) as end:
                if end is not None:
                    newest = other._newest(spark, other._timed(spark, local, after, end))
                    seen = max((at for at in (seen, newest) if at is not None), default=None)
            return other._root(progress, seen, end is not None)
        except (StreamSqlError, PySparkException, OSError) as error:
            log.info("%s: the progress of its stream is not known: %s", job.table, error)
            assert stream.lateness is not None
            return Root(progress.upto, progress.seen, stream.lateness)
        finally:
            local.close()

    def _newest(self, spark: SparkSession, timed: str) -> int | None:
        row = spark.sql(f"SELECT max(unix_micros({TIME})) FROM {timed}").head()
        newest: int | None = row[0] if row is not None else None
        return newest

    def _timed(
        self, spark: SparkSession, local: Scratch, after: Position | None, end: End | None
    ) -> str:
        """The rows of the records up to `end`, with their times: SQL that may follow FROM."""
        select = self.query(spark, self.records(spark, local, after, end))
        return local.view(spark.sql(timed(self.stream, select)))

    def meta(self, table: str) -> Metadata | None:
        """The metadata of this table, or of a side table; None where there is none."""
        try:
            return pin(self.epoch, table).meta
        except StreamSqlError as error:
            if error.code != "TABLE_MISSING":
                raise
            return None

    def told(self, error: PySparkException) -> StreamSqlError | None:
        """A bad record as BAD_RECORD; None for any other error."""
        _, found, what = str(error).partition(BAD)
        if not found:
            return None
        return StreamSqlError(
            "BAD_RECORD",
            f"{self.source.name} holds a record that cannot be read",
            given=what.splitlines()[0].partition(" SQLSTATE: ")[0],
            hint="correct the source's declaration, or set `on_error: quarantine` in the model",
            place=self.place,
        )

    @property
    def place(self) -> Place:
        return Place(self.job.unique_id or self.job.table)
