"""Refresh one view in one epoch: find the changes of its inputs, choose how, stage the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import NOOP, ROLLBACK, ROLLED_BACK, Job, TableVersion
from dbt_streamsql.meta.inspect.history import LAST_FULL, OLDEST_CHANGE, SIZE
from dbt_streamsql.plan.algebra.expression import fill
from dbt_streamsql.plan.algebra.relational import CLOCK
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.redefinition import (
    METADATA,
    NOW,
    SHADOW,
    STORED,
    Redefinition,
)
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.core import key_moment, own_keys
from dbt_streamsql.runtime.core.epoch_state import (
    LISTINGS,
    ONE_MOMENT,
    OWN_KEYS,
    EpochState,
    Version,
    log,
    pin,
    unchanged,
)
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.core.foreign import foreign_write, table_moved
from dbt_streamsql.runtime.core.oldest_change import oldest_changes
from dbt_streamsql.runtime.core.row_expiry import Expiry, expiry_of, has_unknown_age
from dbt_streamsql.runtime.core.storage_errors import branch_refusal, brief, is_of_a_query
from dbt_streamsql.runtime.core.table_wear import scattered
from dbt_streamsql.runtime.core.ways import COMPARE
from dbt_streamsql.runtime.refresh.choice import Choice
from dbt_streamsql.runtime.refresh.comparison import Comparison
from dbt_streamsql.runtime.refresh.full_query import FullQuery, Rewrite
from dbt_streamsql.runtime.refresh.input_changes import readings
from dbt_streamsql.runtime.refresh.spark_program import RunsPrograms
from dbt_streamsql.runtime.spark import native
from dbt_streamsql.runtime.spark.scratch import Scratch
from dbt_streamsql.runtime.spark.session_pool import Usage
from dbt_streamsql.runtime.write import staging_branch
from dbt_streamsql.runtime.write.stager import Stager, loaded
from dbt_streamsql.runtime.write.write_result import Mismatch, Outcome
from dbt_streamsql.runtime.write.writer import Writer
from dbt_streamsql.storage.iceberg import staging
from dbt_streamsql.storage.iceberg.commits import row_delta
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.scans.changes import Change
from dbt_streamsql.storage.inputs import inputs, unversioned
from dbt_streamsql.storage.locations import local_path

MAIN = "main"
"""The branch that readers of a table see; a staging table has no readers."""

_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
"""Whether Spark infers further conditions from those of a query."""


@dataclass(frozen=True)
class RefreshTask:
    """The refresh of one view. `job` is its definition, `plan` the one that is run, `change` what
    happens to its rows if the definition is new, `asked` why it needs a full refresh whatever
    changed ('': it does not)."""

    epoch: EpochState
    job: Job
    plan: CompiledPlan
    change: Redefinition | None
    asked: str
    rewrite: Rewrite

    def run(self) -> TableVersion:
        """Stage the view's version for this barrier and return its record."""
        clock = self.epoch.warehouse.clock
        at, started = clock.time(), clock.monotonic()
        with self.epoch.warehouse.sessions.use() as spark, _planned(spark, self.plan):
            counter = self.epoch.warehouse.sessions.job_count(spark)
            try:
                refresh = ViewRefresh.of(self, spark)
                run, nested = partial(refresh.run, spark), refresh.reads_nested
                version = native.or_without(spark, run, self.job.table, nested=nested)
            except (PySparkException, Py4JError) as error:
                told = branch_refusal(error, Place(self.job.unique_id or self.job.table))
                if told is None:
                    raise
                raise told from error
            finally:
                usage = counter.stop()
        seconds = clock.monotonic() - started
        version = replace(version, jobs=usage.jobs, started_at=at, seconds=seconds)
        # A change without effect took time too.
        if version.mode != NOOP or usage.jobs:
            version = replace(version, stats=refresh.stats(version, usage))
        elif version.inputs != refresh.seen:
            # The process read changes that came to nothing.
            version = replace(version, stats={**version.stats, **refresh.keys_that_hold})
        return self._judged(version, self.change) if self.change is not None else version

    def _judged(self, version: TableVersion, change: Redefinition) -> TableVersion:
        """The version with the verdict on the definition that was carried out."""
        full = version.mode == "full"
        verdict = SHADOW if full and change.verdict != METADATA else change.verdict
        reason = version.reason if full else change.reason
        log.info("%s: %s: %s", self.job.table, verdict, reason)
        stats = {**version.stats, "definition": verdict}
        return replace(version, reason=reason, stats=stats)

    @property
    def sources(self) -> tuple[str, ...]:
        """The tables of its definition, whose versions the view has seen afterwards, and of the
        plan that is run."""
        return tuple(dict.fromkeys((*self.job.sources, *self.plan.sources)))

    @property
    def follows(self) -> str:
        """The query that derives the rows of a new definition from the stored ones."""
        return self.change.sql if self.change is not None else ""

    @property
    def redefined(self) -> str:
        """Why none of the stored rows can be kept."""
        change = self.change
        shadow = change.reason if change is not None and change.verdict == SHADOW else ""
        return self.asked or shadow

    @property
    def is_forgetful(self) -> bool:
        """Whether the view, or one that reads it, forgets state: a full refresh restores what the
        view has forgotten, and gives new rows to readers that forget."""
        return bool(self.plan.ttls or self.epoch.ages(self.job.table))


@dataclass(frozen=True)
class ViewRefresh:
    """One run of one view, once the changes of its inputs are known.

    `inputs` are the versions that it reads, `moves` their changes since `previous`, the version
    that it continues from (None: there is none); `consumed` is what its record will say about
    them. `listings`: the files of inputs without versions. `expiry`: what has expired in the
    inputs. `choice` is made during the run.
    """

    task: RefreshTask
    inputs: Mapping[str, Version]
    moves: Mapping[str, Change]
    previous: TableVersion | None
    consumed: dict[str, int | None]
    listings: Mapping[str, str]
    expiry: Expiry
    choice: Choice
    stager: Stager

    @classmethod
    def of(cls, task: RefreshTask, spark: SparkSession) -> ViewRefresh:
        """Pin the inputs and find their changes."""
        epoch, job, plan = task.epoch, task.job, task.plan
        found = {source: pin(epoch, source) for source in task.sources}
        consumed = {source: found[source].snapshot for source in job.sources}
        if CLOCK in plan.tables:
            consumed[CLOCK] = epoch.clock
        previous = epoch.before(job.table)
        moves = {source: _move(task, source, at, previous) for source, at in found.items()}
        choice = Choice(epoch, job, plan, found, moves, previous, forgetful=task.is_forgetful)
        now = int(epoch.warehouse.clock.time() * 1000)
        listings = unversioned.looked_at(spark, plan.unversioned, now)
        inputs.look_again(spark, {at.at: at.meta for at in found.values()})
        return cls(
            task,
            found,
            moves,
            previous,
            consumed,
            listings,
            _expiry(task, found, previous),
            choice,
            Stager(epoch, job, consumed),
        )

    @property
    def epoch(self) -> EpochState:
        return self.task.epoch

    @property
    def job(self) -> Job:
        return self.task.job

    @property
    def plan(self) -> CompiledPlan:
        return self.task.plan

    @property
    def name(self) -> TableName:
        return TableName.parse(self.job.table)

    @property
    def seen(self) -> Mapping[str, int | None]:
        """The versions of the inputs that the view last saw."""
        return self.previous.inputs if self.previous is not None else {}

    @property
    def rolled_back(self) -> TableVersion | None:
        """The earlier version that the table is rolled back to in this epoch, if it is."""
        return self.epoch.start(self.job.table)

    def stats(self, version: TableVersion, usage: Usage) -> dict[str, Any]:
        """The statistics to record for a run."""
        stats: dict[str, Any] = {
            **self.choice.learn(version),
            "bytes_read": usage.bytes,
            "reads": usage.reads(self.plan.tables),
            "plan": self.plan.fingerprint,
            **self.expiry.stats(version, self.previous),
        }
        staged = self.epoch.staged.get(self.job.table)
        if staged is not None and staged.snapshot == version.snapshot:
            at = staged.snapshot
            stats[SIZE] = [staged.meta.live_rows(at), staged.meta.live_bytes(at)]
        full = version.seconds if version.mode == "full" else self._last_full
        if full is not None:
            stats[LAST_FULL] = full
        stats |= self.keys_that_hold
        if self.listings and all(self.listings.values()):
            stats[LISTINGS] = self.listings
        replay = self.epoch.replay
        if replay is not None and self.rolled_back is not None:
            # Replayed changes were in time when they were first consumed.
            return {**stats, ROLLED_BACK: replay.since}
        made = oldest_changes(self.epoch, self.inputs, self.previous)
        return {**stats, OLDEST_CHANGE: made} if made else stats

    @property
    def keys_that_hold(self) -> dict[str, Any]:
        """What the statistics say of the keys that the next epoch may rely on."""
        found: dict[str, Any] = {}
        if key_moment.is_one(self.epoch, self.job):
            found[ONE_MOMENT] = True
        if own := own_keys.held(self.epoch, self.plan):
            found[OWN_KEYS] = own
        return found

    @property
    def _last_full(self) -> float | None:
        return self.previous.stats.get(LAST_FULL) if self.previous is not None else None

    def reads_nested(self) -> bool:
        """Whether an input, or the view's table, has nested columns."""
        own = self._own()
        read = [*(at.meta for at in self.inputs.values()), *([own] if own is not None else [])]
        return any(native.is_nested(kind) for meta in read for kind in meta.types)

    def run(self, spark: SparkSession) -> TableVersion:
        """Stage the version, from the changes of the inputs or in full."""
        previous, reason, meta = self.previous, self._why_full(), self._own()
        if previous is None or meta is None:
            return self._full(spark, reason or "the table is built for the first time", meta)
        foreign = foreign_write(meta, previous)
        if foreign and self.plan.is_wide and not self.task.asked and self.rolled_back is None:
            raise table_moved(self.job, meta, previous)
        still = all(move.kind == "none" for move in self.moves.values())
        follows = self.task.follows
        if not (reason or foreign or CLOCK in self.plan.tables or follows) and still:
            return self._still(meta, previous)
        reason = reason or foreign or self._why_whole(spark, meta)
        if reason:
            return self._full(spark, reason, meta)
        try:
            if follows:
                return self._restore(spark, follows, meta, previous)
            return self._incremental(spark, meta, previous)
        except Mismatch as found:
            self.choice.give_up(found, meta)
            return self._full(spark, str(found), meta)
        except Exception as error:
            if native.failed(error):
                # The refresh runs again, and writes its change once more.
                self.stager.forget_feed(spark)
            if not self._may_pass_in_full(error):
                raise
            how = "by comparison" if self.choice.way is COMPARE else "from its changes"
            reason = f"the refresh {how} failed with {brief(error)}"
            log.warning("retrying %s once in full: %s", self.job.table, reason)
            self.stager.forget_feed(spark)
            return self._full(spark, reason, meta)

    def _may_pass_in_full(self, error: Exception) -> bool:
        """Whether an error may come from how the changes are applied, not from the query."""
        strict = self.job.refresh_mode == "incremental_strict" or native.failed(error)
        return not (strict or self.task.is_forgetful or self.epoch.replay) and is_of_a_query(error)

    def _own(self) -> Metadata | None:
        """The metadata of the view's table, for its readers too; None when it does not exist."""
        try:
            return pin(self.epoch, self.job.table).meta
        except StreamSqlError as error:
            if error.code != "TABLE_MISSING":
                raise
            return None

    # -- what happened -----------------------------------------------------------------------

    def _why_full(self) -> str:
        if self.task.redefined:
            return self.task.redefined
        previous = self.previous
        if previous is None:
            return ""
        before = previous.stats.get(LISTINGS, {})
        listed = all(told and told == before.get(at) for at, told in self.listings.items())
        if self.plan.volatile or not listed:
            return "; ".join(self.plan.reasons)
        lost = [
            inputs.why_lost(source, self.inputs[source].meta, previous.inputs.get(source))
            for source, move in self.moves.items()
            if move.kind == "lost"
        ]
        if CLOCK in self.plan.tables and CLOCK not in previous.inputs:
            lost.append(f"the earlier version of {CLOCK} is gone")
        if lost:
            return "; ".join(lost)
        moved = [source for source, move in self.moves.items() if move.kind != "none"]
        # Read at its old version, such an input lacks the columns that the plan was compiled for.
        lagging = [
            source
            for source, at in self.inputs.items()
            if at.meta.lags(previous.inputs.get(source, at.snapshot)) or at.meta.lags(at.snapshot)
        ]
        if moved and lagging:
            return f"the columns of {', '.join(lagging)} have changed since it was read"
        ageless = [
            source
            for source in dict.fromkeys(table for table, _ in self.plan.ttls)
            if has_unknown_age(self.inputs[source].meta, self.moves[source])
        ]
        if ageless:
            return f"the ages of the rows of {', '.join(ageless)} are not known"
        return ""

    def _why_whole(self, spark: SparkSession, meta: Metadata) -> str:
        """Why all rows are written although the changes are known ('': they are not, and the way
        is chosen)."""
        if self.plan.mode == "full":
            return "; ".join(self.plan.reasons) or "refresh_mode is full"
        if self.task.follows:
            return ""
        return self.choice.take(spark, meta)

    def _still(self, meta: Metadata, previous: TableVersion) -> TableVersion:
        """The record that the rows are those of `previous`; the table may have to be rolled back
        to it."""
        if self.rolled_back is None or meta.refs.get(MAIN) == previous.snapshot:
            return unchanged(previous, self.consumed)
        barrier = self.epoch.barrier()
        self.stager.announce(Version(self.name, meta, previous.snapshot, barrier))
        why = f"nothing that it reads has changed since barrier {previous.barrier}"
        kept = unchanged(previous, self.consumed)
        return replace(kept, barrier=barrier, mode=ROLLBACK, reason=why)

    # -- incremental -------------------------------------------------------------------------

    def _incremental(
        self, spark: SparkSession, meta: Metadata, previous: TableVersion
    ) -> TableVersion:
        assert meta.current is not None
        barrier = self.epoch.barrier()
        branch = staging.branch_name(barrier)
        outcome = self._write(spark, self.name, branch, meta, previous, feed=self.choice.is_read)
        if not outcome.changed:
            return self._still(meta, previous)
        version = self.stager.wrote(spark, branch, outcome, meta)
        assert version.snapshot is not None
        if outcome.stored is not None:
            at = (version.snapshot, meta.schema_id)
            self.epoch.warehouse.known_rows.put(self.job.table, at, outcome.stored)
        return version

    def _write(
        self,
        spark: SparkSession,
        table: TableName,
        branch: str,
        meta: Metadata,
        previous: TableVersion,
        *,
        feed: bool,
    ) -> Outcome:
        """Run the program over the rows of `table`, which are those of `previous`."""
        assert meta.current is not None
        origin, aged = self.stager.origin(), self.epoch.ages(self.job.table)
        tuning = self.epoch.warehouse.tuning
        local, query = Scratch(spark, tuning.fetched_bytes), self._query(spark)
        writer = Writer(
            spark,
            local,
            table,
            origin,
            branch,
            meta.current,
            meta.live_rows(meta.current),
            tuple(column.name for column in query.columns),
            tuple(column.name for column in self.plan.columns),
            feed,
            row_delta.supported(spark, meta) and (aged or not scattered(meta, tuning)),
            aged=aged,
            tuning=tuning,
            types={column.name: column.type for column in query.columns},
            most=self.choice.most(meta),
            known=self.epoch.warehouse.known_rows,
            schema_id=meta.schema_id,
            at_hand=local_path(meta.location) is not None,
        )
        program: RunsPrograms
        if self.choice.way is COMPARE:
            program = Comparison(writer, query.sql)
        else:
            clock = (previous.inputs.get(CLOCK), self.consumed.get(CLOCK))
            reads = readings(self.epoch, spark, self.inputs, self.moves)
            program = self.epoch.warehouse.programs(reads, writer, clock, self.expiry)
        try:
            with staging.stamped(spark, origin):
                own = own_keys.relied(self.epoch, self.plan, previous)
                declared = key_moment.relies(self.epoch, self.job, previous)
                outcome = program.run(self.plan.relying(own, declared=declared))
            if outcome.changed:
                self.stager.write_feed(spark, outcome, meta, [c.name for c in self.plan.columns])
        finally:
            program.close()
        return outcome

    def _restore(
        self, spark: SparkSession, follows: str, meta: Metadata, previous: TableVersion
    ) -> TableVersion:
        """Derive a new definition's rows from the stored ones, then apply the change of the
        inputs.

        Both are written where no reader looks. The stored rows are as of the inputs of `previous`,
        and so are the rows derived from them: only then does the new program bring them to this
        barrier.
        """
        assert meta.current is not None
        rows = inputs.version(self.name, meta.current)
        query = self._query(spark)

        def read(hole: str) -> str:
            if hole == STORED:
                return rows
            if hole == NOW:
                return f"{self.expiry.written}L"
            source = self.plan.tables[int(hole.removeprefix("t"))]
            at = self.inputs[source]
            if source in previous.inputs:
                return inputs.version(TableName.parse(source), previous.inputs[source], at.meta)
            return query.version(at)

        at, staged = self.stager.build(spark, query.sorted(fill(follows, read)), meta)
        if any(move.kind != "none" for move in self.moves.values()):
            try:
                self._write(spark, at, MAIN, staged, previous, feed=False)
            except Exception:
                with failpoint("sweep.staging"):
                    staging.drop_table(spark, at)
                raise
            staged = loaded(spark, at)
        return self.stager.replacement(at, staged, meta, "incremental", "")

    # -- full --------------------------------------------------------------------------------

    def _full(self, spark: SparkSession, reason: str, meta: Metadata | None) -> TableVersion:
        if self.job.refresh_mode == "incremental" and meta is not None and not self.task.redefined:
            log.warning("%s is refreshed in full: %s", self.job.table, reason)
        query = self._query(spark)
        select = query.sorted(query.sql)
        # A table of another writer has its format, its partitions and its properties.
        ours = meta is not None and self.job.table not in self.epoch.taken
        if ours and meta is not None and meta.current is not None and query.fits(self.name):
            names = ", ".join(quote(column.name) for column in query.columns)
            origin = self.stager.origin()
            on_branch = staging_branch.written(spark, self.name, meta.current, origin)
            with on_branch as (branch, target):
                spark.sql(f"INSERT OVERWRITE {target} ({names}) SELECT {names} FROM ({select})")
            version = self.stager.branched(spark, branch, reason=reason)
            rows = self.epoch.staged[version.table].meta.live_rows(version.snapshot)
            gone = meta.live_rows(meta.current)
            return replace(version, rows_inserted=rows, rows_deleted=gone)
        at, built = self.stager.build(spark, select, meta)
        query.check_columns(at)
        return self.stager.replacement(at, built, meta, "full", reason)

    def _query(self, spark: SparkSession) -> FullQuery:
        task = self.task
        return FullQuery(spark, task.epoch, task.job, task.plan, self.inputs, task.rewrite)


def _move(task: RefreshTask, source: str, now: Version, previous: TableVersion | None) -> Change:
    """The change of an input since the version that the view continues from."""
    known = previous.inputs if previous is not None else {}
    # What a plan does not read yet is read from the next barrier on; rows that follow from the
    # stored ones are computed from its current version.
    begins = source not in task.plan.sources or (task.follows and source not in known)
    if previous is not None and begins:
        return Change("none", now.snapshot, now.snapshot)
    if source not in known:
        return Change("lost", None, now.snapshot)
    return inputs.classify(now.meta, known[source], now.snapshot)


def _expiry(
    task: RefreshTask, found: Mapping[str, Version], previous: TableVersion | None
) -> Expiry:
    """What has expired in the inputs, if the view forgets any of it."""
    known = {source: (at.meta, at.snapshot) for source, at in found.items()}
    reads = task.plan.reads if task.plan.ttls else ()
    committed = task.epoch.warehouse.clock.committed
    return expiry_of(reads, known, task.epoch.clock, previous, committed) if reads else Expiry()


@contextmanager
def _planned(spark: SparkSession, plan: CompiledPlan) -> Iterator[None]:
    """Set how Spark plans the queries of a view."""
    if not plan.is_wide:
        yield
        return
    # For a sum of n columns that are also selected, Spark would infer 2^n conditions.
    spark.conf.set(_CONSTRAINTS, "false")
    try:
        yield
    finally:
        spark.conf.unset(_CONSTRAINTS)
