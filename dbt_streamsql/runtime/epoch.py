"""One epoch of a warehouse: open, run views in dependency order, publish all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import NOOP, Job, Sink, TableVersion
from dbt_streamsql.meta.model import topology
from dbt_streamsql.meta.model.stored_definition import definition_of, known_plan
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.redefinition import METADATA, Redefinition
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.changelog import changelog_table
from dbt_streamsql.runtime.core import definition_property, key_moment
from dbt_streamsql.runtime.core.clock import Pool
from dbt_streamsql.runtime.core.epoch_state import (
    EpochState,
    Replay,
    Version,
    Warehouse,
    pin,
    registered,
    repin,
    unchanged,
    waiting,
)
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.core.storage_errors import reopen, translate_error
from dbt_streamsql.runtime.deliver import deliver
from dbt_streamsql.runtime.deliver.deliver import Delivered
from dbt_streamsql.runtime.ingest import stream_definition
from dbt_streamsql.runtime.ingest.stream_definition import Stream
from dbt_streamsql.runtime.ingest.stream_ingest import StreamIngest
from dbt_streamsql.runtime.publish import openlineage, publish
from dbt_streamsql.runtime.refresh.full_query import Rewrite
from dbt_streamsql.runtime.refresh.view_refresh import RefreshTask
from dbt_streamsql.runtime.upkeep import retention, worn_tables
from dbt_streamsql.storage.iceberg import metadata, provenance, staging
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.inputs.file_tables import NoVersionsError

Refreshed = Callable[[Job], tuple[Job, CompiledPlan, Redefinition | None]]
"""The definition as it is to run now: (job, plan, what happens to the rows if it is new)."""


class Epoch:
    """An open epoch; it holds the warehouse's runner lock until `publish` or `abort`."""

    def __init__(self, warehouse: Warehouse, rewrite: Rewrite, refreshed: Refreshed) -> None:
        self.warehouse = warehouse
        self._rewrite = rewrite
        self._refreshed = refreshed
        store = warehouse.store
        before = store.fence()
        fence = store.acquire(wait=True, on_wait=waiting)
        # The previous runner has died if it did not release its fence; one that ran while this one
        # waited may have died as well.
        crashed = before.owner or fence.token != before.token + 1
        try:
            if crashed or warehouse.unswept or store.unfinished():
                publish.recover(warehouse, fence)
                warehouse.unswept = False
            self.state = EpochState(warehouse, fence, store.jobs(), store.latest_all())
        except BaseException:
            store.release(fence)
            raise
        self._running: dict[str, Future[TableVersion]] = {}
        self._held: set[str] = set()
        self._background: deliver.InBackground | None = None
        self.delivered: dict[str, Delivered] = {}
        """The results of the sinks that had something to do, by name."""

    # -- inputs ------------------------------------------------------------------------------

    def pin_roots(self) -> None:
        """Fix the version of every outside input of every view, at one moment."""
        jobs = self.state.jobs
        key_moment.pin_together(self.state, jobs.values())
        for source in dict.fromkeys(s for job in jobs.values() for s in job.sources):
            if source not in jobs and source not in self.state.latest:
                try:
                    pin(self.state, source)
                except NoVersionsError:
                    pass  # it had versions: its readers are recompiled
                except StreamSqlError as error:
                    if error.code != "TABLE_MISSING":
                        raise

    def touch(self, table: str) -> None:
        """The same run wrote this table by other means: read its new version from here on."""
        repin(self.state, table)

    def keep_pins(self, before: EpochState) -> None:
        """Continue at the moment of an earlier epoch of the same run: its pins and its clock."""
        with self.state.lock:
            ours = {*self.state.jobs, *self.state.latest}
            kept = {name: at for name, at in before.pins.items() if name not in ours}
            self.state.pins.update(kept)
            self.state.together, self.state.torn = before.together, before.torn
            self.state.clock = before.clock

    def forget(self, table: str) -> None:
        """A view was dropped."""
        with self.state.lock:
            for known in (self.state.jobs, self.state.staged, self.state.done, self.state.latest):
                known.pop(table, None)
                known.pop(str(changelog_table.table_of(table)), None)
            self._running.pop(table, None)

    def staged(self, table: str) -> Version | None:
        """The version that this epoch staged and has not published."""
        with self.state.lock:
            return self.state.staged.get(table)

    def known(self, table: str) -> Metadata | None:
        """The metadata that this epoch has already loaded of a table."""
        with self.state.lock:
            version = self.state.staged.get(table) or self.state.pins.get(table)
        return version.meta if version is not None else None

    # -- views -------------------------------------------------------------------------------

    def define(
        self, job: Job, plan: CompiledPlan, change: Redefinition | None, why: str = ""
    ) -> TableVersion:
        """Register a definition if it is new and stage its version, in full if `why` is given.

        Error: DUPLICATE_WRITER when the table has a version by another definition in this epoch.
        """
        if self.state.jobs.get(job.table) != job:
            self._check_free(job)
            ordered = changelog_table.in_order({**self.state.jobs, job.table: job})
            topology.order_of(ordered)

        def run() -> TableVersion:
            # In here: if it fails, MetaService may know the definition anyway.
            if self.state.jobs.get(job.table) != job:
                self._stage(job)
            return self._run(job, plan, change, why)

        version = self._once(job.table, run)
        if self.state.jobs.get(job.table) == job:
            return version
        if change is not None and change.verdict != METADATA:
            # Its readers have seen that version, and a barrier has one version of each table.
            raise StreamSqlError(
                "DUPLICATE_WRITER",
                f"{job.table} was already updated by a different definition in this run",
                hint="publish first; in a dbt project, use `ref` in the models that read it",
            )
        self._stage(job)
        return version

    def ensure(self, table: str) -> TableVersion:
        """Bring a registered view to this epoch, once, whichever caller comes first."""
        job = registered(self.state.jobs, table)
        why = self.state.replay.anew.get(table, "") if self.state.replay is not None else ""
        return self._once(table, lambda: self._run(*self._current(job), why))

    def define_sink(self, sink: Sink, current: Sink | None) -> None:
        """Register a definition that takes effect, and is delivered, when this epoch is published.

        What is already published of its table is delivered at once, unless this definition or that
        of the table is new; then it is only checked whether the target can take it.
        Errors: those of a delivery.
        """
        with self.state.lock:
            self.state.sinks[sink.name] = sink
            new = sink.table in self.state.definitions
        self.settle()
        if new or not deliver.same(current, sink) or not sink.delivered:
            deliver.check(self.warehouse, sink)
        else:
            deliver.deliver(self.warehouse, self.state.fence, self._rewrite, sink)

    def revise(
        self, replay: Replay, definition: tuple[Job, CompiledPlan, Redefinition | None] | None
    ) -> None:
        """Recompute views from an earlier barrier, one of them with a new definition if that is
        given; no other table is touched."""
        self.state.replay = replay
        if definition is not None:
            self.define(*definition, replay.anew.get(definition[0].table, ""))
        self.advance(replay.views)

    def advance(self, tables: Iterable[str] | None = None) -> None:
        """Bring views (all by default) to this epoch; independent ones in parallel."""
        jobs = self.state.jobs
        wanted = set(jobs if tables is None else tables)
        levels = topology.order_of(changelog_table.in_order(jobs))
        with self._pool() as pool:
            for level in levels:
                list(pool.map(self.ensure, [table for table in level if table in wanted]))

    def advance_what_can(
        self, tables: Iterable[str] | None, leave_out: Collection[str]
    ) -> dict[str, Exception]:
        """The same for all but `leave_out` and its readers; returns the errors of failed tables.

        Readers of a failed table have the same error object.
        """
        jobs = self.state.jobs
        wanted = set(jobs if tables is None else tables) - set(self._cone(leave_out))
        errors: dict[str, Exception] = {}

        def attempt(table: str) -> None:
            try:
                self.ensure(table)
            except Exception as error:  # noqa: BLE001 - it is reported, and other views go on
                errors[table] = error

        with self._pool() as pool:
            for level in topology.order_of(changelog_table.in_order(jobs)):
                list(pool.map(attempt, [table for table in level if table in wanted]))
        return errors

    def _pool(self) -> AbstractContextManager[Pool]:
        return self.warehouse.workers(self.warehouse.tuning.parallel, "streamsql")

    def _cone(self, tables: Collection[str]) -> list[str]:
        """These views and all their readers, in dependency order."""
        jobs = self.state.jobs
        out: dict[str, None] = {}
        for level in topology.order_of(jobs):
            for table in level:
                if table in tables or not out.keys().isdisjoint(jobs[table].sources):
                    out[table] = None
        return list(out)

    def _current(self, job: Job) -> tuple[Job, CompiledPlan, Redefinition | None]:
        fresh, plan, change = self._refreshed(job)
        if fresh != job:
            self._stage(fresh)
        return fresh, plan, change

    def _stage(self, job: Job) -> None:
        """Register a definition that takes effect at this barrier."""
        with failpoint("job.stage"):
            self.warehouse.store.stage_job(self.state.fence, self.state.barrier(), job)
        with self.state.lock:
            self.state.jobs = {**self.state.jobs, job.table: job}
            self.state.definitions[job.table] = job

    def _once(self, table: str, run: Callable[[], TableVersion]) -> TableVersion:
        with self.state.lock:
            future = self._running.get(table)
            mine = future is None
            if future is None:
                future = self._running[table] = Future()
        if mine:
            began = self.warehouse.clock.time()
            try:
                future.set_result(run())
            except BaseException as caught:  # noqa: BLE001 - waiting threads must get it
                # First of all: waiting threads must not wait forever if undoing fails too.
                error = translate_error(caught)
                future.set_exception(error)
                job = self.state.jobs.get(table)
                self._unstage(table)
                reopen(error, self.warehouse.sessions)
                if job is not None:
                    ended = self.warehouse.clock.time()
                    openlineage.failed(self.warehouse, job, began, ended, error)
        return future.result()

    def _run(
        self, job: Job, plan: CompiledPlan, change: Redefinition | None, why: str = ""
    ) -> TableVersion:
        replay = self.state.replay
        taking_part = self.state.jobs if replay is None else replay.views
        earlier = change.earlier if change is not None and not why else None
        if change is not None and earlier is not None and replay is not None:
            # What the earlier plan reads need not be part of the replay.
            earlier, why = None, change.reason
        first = changelog_table.runs_first(job, self.state.jobs)
        if earlier is not None:
            first += [source for source in earlier.sources if source in self.state.jobs]
        for source in first:
            if source in taking_part and source != job.table:
                self.ensure(source)
        if stream_definition.is_side_table(job):
            return self._beside(job)
        stream = stream_definition.stream_of(job)
        if stream is not None:
            return self._run_stream(job, plan, stream, change, why)
        key_moment.check(self.state, job)
        version = RefreshTask(self.state, job, earlier or plan, change, why, self._rewrite).run()
        told = changelog_table.stage(self.state, job, version)
        if told is not None and version.mode != NOOP:
            jobs = version.jobs + told.jobs if min(version.jobs, told.jobs) >= 0 else -1
            version = replace(version, jobs=jobs, seconds=version.seconds + told.seconds)
        staged = [told] if told is not None else []
        staged += [version] if version.mode != NOOP else []
        if staged:
            with failpoint("table.processed"):
                self.warehouse.store.processed_many(self.state.fence, staged)
        with self.state.lock:
            self.state.done[job.table] = version
        return version

    def _run_stream(
        self, job: Job, plan: CompiledPlan, stream: Stream, change: Redefinition | None, why: str
    ) -> TableVersion:
        """Run a streaming table, with its side tables."""
        for other in stream_definition.side_tables(job):
            known = self.state.jobs.get(other.table)
            same = (
                known is not None
                and known_plan(known) is not None
                and (known.config, known.columns) == (other.config, other.columns)
            )
            if not same:
                self._check_free(other)
                self._stage(other)
        version, *others = StreamIngest(
            self.state, job, plan, stream, why, change.reason if change else "", self._rewrite
        ).run()
        staged = [each for each in (version, *others) if each.mode != NOOP]
        if staged:
            with failpoint("table.processed"):
                self.warehouse.store.processed_many(self.state.fence, staged)
        with self.state.lock:
            self.state.done |= {each.table: each for each in (version, *others)}
        return version

    def _beside(self, job: Job) -> TableVersion:
        """The version of a side table, which its streaming table writes."""
        self.ensure(definition_of(job).side_of)
        with self.state.lock:
            known = self.state.done.get(job.table)
            if known is None:
                known = unchanged(self.state.latest[job.table], {})
                self.state.done[job.table] = known
        return known

    def take_over(self, table: str) -> bool:
        """Let a view of this epoch replace a table that others have written, when the epoch is
        published. False when the table is no Iceberg table."""
        if table in self.state.jobs:
            return True
        try:
            if metadata.load(self.warehouse.sessions.main, TableName.parse(table)) is None:
                return False
        except StreamSqlError as error:
            if error.code != "SQL_UNSUPPORTED":
                raise
            return False
        with self.state.lock:
            self.state.taken.add(table)
        return True

    def _check_free(self, job: Job) -> None:
        """Refuse to take over a table or view that was not created by a view of this warehouse."""
        if job.table in self.state.jobs:
            return
        if job.table in self.state.latest or job.table in self.state.staged:
            owner = changelog_table.view_of(job.table)
            raise StreamSqlError(
                "DUPLICATE_WRITER",
                f"{job.table} is the changelog of {owner}",
                hint=f"give the view another name, or set `changelog: false` on {owner}",
            )
        if any(sink.name == job.table for sink in self.warehouse.store.sinks()):
            raise StreamSqlError(
                "DUPLICATE_WRITER",
                f"{job.table} is a sink",
                hint=f"`streamsql sinks --drop {job.table}`, or give the view another name",
            )
        spark, name = self.warehouse.sessions.main, TableName.parse(job.table)
        found = metadata.load(spark, name)
        snapshots = found.snapshots.values() if found is not None else ()
        owner = found.properties.get(definition_property.STORE, "") if found is not None else ""
        if owner not in ("", self.warehouse.store_id):
            raise StreamSqlError(
                "DUPLICATE_WRITER",
                f"{job.table} is maintained by another MetaService store",
                given=f"its store is {owner}, and this is store {self.warehouse.store_id}",
                hint="drop the view there, with the `boundary` or `meta` that built it; "
                "if that store is lost: `streamsql meta rebuild`",
            )
        ours = any(provenance.BARRIER_PROPERTY in snapshot.summary for snapshot in snapshots)
        if not ours and job.table not in self.state.taken and staging.exists(spark, name):
            raise StreamSqlError(
                "NOT_A_VIEW",
                f"{job.table} exists and was not created by a materialized view",
                hint="drop it, or give the model another name or `alias`",
            )

    def _unstage(self, table: str) -> None:
        """A view failed: the others go on, and nothing of it is published."""
        with self.state.lock:
            job = self.state.jobs.get(table)
            others = (
                [other.table for other in stream_definition.side_tables(job)]
                if job is not None
                else []
            )
            names = (table, str(changelog_table.table_of(table)), *others)
            self._held.update(names)
            for name in names:
                self.state.staged.pop(name, None)
            number = self.state.number
        store, fence = self.warehouse.store, self.state.fence
        for name in names if number else ():
            paths = store.unstage(fence, number, name)
            gone = publish.delete_changes(self.warehouse.sessions.main, paths)
            if gone:
                # Last: a process that dies in between leaves files that a sweep can find.
                store.forget_change_files_at(fence, gone)

    # -- the end -----------------------------------------------------------------------------

    def deliver_meanwhile(self, leave_out: Collection[str]) -> None:
        """Deliver in the background what is published already, to sinks except those in
        `leave_out`; what this epoch publishes is left to a later one."""
        by = (self.warehouse, self.state.fence, self._rewrite, leave_out)
        self._background = self._background or deliver.InBackground(*by)

    def settle(self) -> None:
        """Wait until nothing is delivered in the background: a sink or its table is to change."""
        if self._background is not None:
            self._background.wait()

    def publish(self, leave_out: Collection[str] = ()) -> list[TableVersion]:
        """Publish everything that was staged as one barrier, deliver it to sinks except those in
        `leave_out` (unless `deliver_meanwhile` was called), and close the epoch."""
        store, fence, number = self.warehouse.store, self.state.fence, self.state.number
        done = self.state.done
        moved = [
            version
            for version in done.values()
            if version.mode == "noop"
            and (
                version.table in self.state.definitions
                or version.inputs != self.state.latest[version.table].inputs
                or stream_definition.moved(version, self.state.latest[version.table])
            )
        ]
        if self._held and not moved and not self.state.staged:
            # Everything that had something to do failed.
            try:
                self._deliver(leave_out)
            finally:
                self.abort()
            return list(done.values())
        try:
            if self.state.definitions:
                self.settle()
            if moved and not number:
                number = self.state.barrier()
            if number:
                store.add_inputs(fence, number, *self.state.pinned())
                store.processed_many(fence, [replace(v, barrier=number) for v in moved])
                if self._held:
                    publish.clear(self.warehouse, number, self._held)
                with failpoint("barrier.precommit"):
                    store.precommit(fence, number)
                self.warehouse.unswept = True
                publish.roll_forward(self.warehouse, fence, number, self.state.definitions)
                published = store.versions(number)
                stream_definition.release(self.warehouse, self.state.jobs, number)
            self._deliver(leave_out)
            if number:
                publish.sweep(self.warehouse, fence, None if self._held else published)
                self.warehouse.unswept = False
                worn_tables.upkeep(self.warehouse, fence, published)
                retention.after_run(self.warehouse, fence)
        finally:
            self._end()
        if number:
            # Without the runner's lock: no run should wait for a lineage server.
            openlineage.published(self.warehouse, number)
        return list(done.values())

    def _deliver(self, leave_out: Collection[str]) -> None:
        held = self._held
        new = [sink for sink in self.state.sinks.values() if sink.table not in held]
        by, background = (self.warehouse, self.state.fence), self._background
        if background is not None:
            self.delivered = background.results()
        deliver.register(*by, self._as_they_are(new))
        if background is None:
            self.delivered = deliver.deliver_all(*by, self._rewrite, leave_out)

    def _as_they_are(self, new: list[Sink]) -> list[Sink]:
        """Without those that the store has already, or has in a newer state since they were
        delivered."""
        known = {sink.name: sink for sink in self.warehouse.store.sinks()} if new else {}
        return [sink for sink in new if not deliver.same(known.get(sink.name), sink)]

    def withdraw(self, nodes: Collection[str]) -> list[str]:
        """Take the views with these ids, and all their readers, out of the epoch."""
        jobs = self.state.jobs
        named = {table for table, job in jobs.items() if job.unique_id in nodes}
        held = sorted(self.state.done.keys() & self._cone(named))
        for table in held:
            self._unstage(table)
            for beside in stream_definition.side_tables(jobs[table]):
                self.state.done.pop(beside.table, None)
            self.state.done.pop(table, None)
            self.state.definitions.pop(table, None)
        return held

    def leave(self) -> int:
        """Close the epoch with its barrier open: what is staged waits for the next process."""
        self._end()
        return self.state.number

    def abort(self) -> None:
        """Undo everything that was staged, and close the epoch."""
        try:
            if self.state.number:
                publish.roll_back(self.warehouse, self.state.fence, self.state.number)
                publish.sweep(self.warehouse, self.state.fence)
        finally:
            self._end()

    def _end(self) -> None:
        try:
            self.settle()
            self.state.changes.close()
            self.state.versions.close()
        finally:
            self.warehouse.store.release(self.state.fence)
