"""The epochs of an engine: at most one is open, and calls from several threads join it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from dbt_streamsql.engine.definitions import Definitions
from dbt_streamsql.engine.reads.consistent_reads import ConsistentReads
from dbt_streamsql.engine.reads.current import CurrentEpoch
from dbt_streamsql.engine.state_tables import StateTables
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Fence, Job
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.redefinition import Redefinition
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Warehouse, waiting
from dbt_streamsql.runtime.core.storage_errors import translate_storage_errors
from dbt_streamsql.runtime.epoch import Epoch
from dbt_streamsql.runtime.publish import plain_tables, publish
from dbt_streamsql.runtime.report import Report, blame, reports_of
from dbt_streamsql.storage.iceberg import jvm_cleanup

log = logging.getLogger("dbt_streamsql")


class EpochControl:
    """Opens, joins and ends epochs, and holds the right to write outside of them."""

    def __init__(
        self,
        warehouse: Warehouse,
        current: CurrentEpoch,
        definitions: Definitions,
        reads: ConsistentReads,
        states: StateTables,
    ) -> None:
        self._warehouse = warehouse
        self._states = states
        self.current = current
        self._definitions = definitions
        self._reads = reads
        self.swept = False
        self.lock = threading.RLock()

    @property
    def opened(self) -> Epoch | None:
        """The open epoch."""
        return self.current.epoch

    @property
    def is_open(self) -> bool:
        """Whether an epoch is open."""
        return self.current.epoch is not None

    @translate_storage_errors
    def begin(self) -> int:
        """Open an epoch that later calls join, and pin the inputs of all views at this moment.

        Waits while another process runs an epoch on this warehouse; finishes or undoes the work of
        a dead one. Returns the number of the last committed barrier (0: there is none).
        An epoch that is open already stays open.
        """
        with self.lock:
            if self.current.epoch is None:
                self.sweep_once()
                self.current.epoch = self.new_epoch()
                self.current.epoch.pin_roots()
        return self._warehouse.store.last_committed()

    @translate_storage_errors
    def publish(self, leave_out: Collection[str] = ()) -> Report:
        """Publish what the open epoch staged as one barrier; without one, an empty report.

        All its tables become visible together, or none does (FLIP-276). The sinks of `leave_out`
        receive nothing. Error: META_CONFLICT when another runner took over.
        """
        with self.lock:
            epoch = self._taken()
            if epoch is None:
                return Report(self._warehouse.store.last_committed(), {})
            versions = epoch.publish(leave_out)
        if epoch.state.number:
            spark = self._warehouse.sessions.main
            jvm_cleanup.close_idle(spark, self._warehouse.tuning.idle_readers)
        barrier = self._warehouse.store.last_committed()
        return Report(barrier, reports_of(versions, barrier), sinks=epoch.delivered)

    @translate_storage_errors
    def leave_staged(self) -> int:
        """Close the open epoch without publishing; its staged data is readable at
        read_uncommitted until the next epoch, or `sweep`, discards it. Returns its barrier (0:
        nothing was staged)."""
        with self.lock:
            epoch = self._taken()
            return epoch.leave() if epoch is not None else 0

    @translate_storage_errors
    def discard(self, barrier: int) -> None:
        """Discard the data that `leave_staged` left.

        Errors: META_CONFLICT when there is no such open barrier, WAREHOUSE_BUSY.
        """
        with self.lock:
            publish.undo(self._warehouse, barrier)

    def unstage_models(self, nodes: Collection[str]) -> list[str]:
        """Remove views, by their dbt ids, and everything downstream from the open epoch; returns
        their tables."""
        with self.lock:
            epoch = self.current.epoch
            return epoch.withdraw(nodes) if epoch is not None else []

    @translate_storage_errors
    def abort(self) -> None:
        """Discard everything that the open epoch staged."""
        with self.lock:
            epoch = self._taken()
            if epoch is not None:
                epoch.abort()

    @translate_storage_errors
    def flush(self) -> None:
        """Publish what is staged so far and continue in a new epoch that reads the same inputs."""
        with self.lock:
            epoch = self.current.epoch
            if epoch is None:
                return
            self.publish()
            self.begin()
            if self.current.epoch is not None:
                self.current.epoch.keep_pins(epoch.state)

    @translate_storage_errors
    def advance(
        self,
        tables: Collection[str] | None = None,
        *,
        keep_going: bool = False,
        leave_out: Collection[str] = (),
        overlap: bool = False,
    ) -> Report:
        """One epoch over every view whose inputs changed, in dependency order.

        `tables`: only these, with everything that they read. A failing view stays at its last
        barrier, and so does everything downstream of it; the other views are published. Then its
        error is raised, or, with `keep_going`, listed in the report. The views and sinks of
        `leave_out` stay as well, without being tried.
        `overlap`: sinks get what earlier epochs published while this one computes, and what this
        one publishes with the next; for calls that follow one another without a pause.
        """
        with self.joined(leave_out) as epoch:
            if overlap:
                epoch.deliver_meanwhile(leave_out)
            errors = epoch.advance_what_can(tables, leave_out)
            versions = list(epoch.state.done.values())
            blamed = blame(errors, epoch.state.jobs)
        barrier = self._warehouse.store.last_committed()
        if errors and not keep_going:
            log.warning(
                "not brought up to date because of failures: %s", ", ".join(sorted(errors))
            )
            raise next(iter(errors.values()))
        return Report(
            barrier,
            reports_of(versions, barrier),
            {table: errors[table] for table, by in blamed.items() if table == by},
            {table: by for table, by in blamed.items() if table != by},
            epoch.delivered,
        )

    def mark_written(self, name: str) -> None:
        """Record in the open epoch that this run has written a table by other means."""
        if self.current.epoch is not None:
            self.current.epoch.touch(str(TableName.parse(name, self._warehouse.catalog)))

    def take_over(self, name: str) -> bool:
        """Let a view of the open epoch replace a table that others have written; it stays until
        the epoch is published. False when the table is no Iceberg table."""
        epoch = self.current.epoch
        table = str(TableName.parse(name, self._warehouse.catalog))
        return epoch is not None and epoch.take_over(table)

    # -- for the other parts -------------------------------------------------------------------

    @contextmanager
    def joined(self, leave_out: Collection[str] = ()) -> Iterator[Epoch]:
        """The open epoch, or one that ends with the block: published, or undone on an error."""
        with self.lock:
            own = self.current.epoch is None
            self.begin()
            epoch = self.current.epoch
        assert epoch is not None
        try:
            yield epoch
        except BaseException:
            if own:
                self.abort()
            raise
        if own:
            self.publish(leave_out)

    @contextmanager
    def writing(self) -> Iterator[Fence]:
        """The right to write: of the open epoch, or one for the block."""
        with self.lock:
            if self.current.epoch is not None:
                self.current.epoch.settle()
                yield self.current.epoch.state.fence
            else:
                with self.outside() as fence:
                    yield fence

    @contextmanager
    def outside(self) -> Iterator[Fence]:
        """The right to write outside of an epoch; waits for a run of another process.

        Error: WAREHOUSE_BUSY when this engine has an epoch open.
        """
        with self.lock:
            if self.current.epoch is not None:
                raise StreamSqlError(
                    "WAREHOUSE_BUSY", "this engine has an open epoch", hint="publish it first"
                )
            fence = self._warehouse.store.acquire(wait=True, on_wait=waiting)
            try:
                yield fence
            finally:
                self._warehouse.store.release(fence)

    @contextmanager
    def alone(self) -> Iterator[Fence]:
        """The same, after recovering from dead processes."""
        with self.outside() as fence:
            publish.recover(self._warehouse, fence)
            yield fence

    def new_epoch(self) -> Epoch:
        """An epoch that no other call joins; the caller ends it."""
        if self._warehouse.sessions.follow_settings():
            self._definitions.follow_settings()

        def refreshed(job: Job) -> tuple[Job, CompiledPlan, Redefinition | None]:
            place, declined = self._states.placed(job, epoch)
            return self._definitions.refreshed(job, self._warehouse.connections, place, declined)

        epoch = Epoch(self._warehouse, self._reads.rewritten, refreshed)
        return epoch

    def sweep_once(self) -> None:
        """Once per process, remove what dead processes left staged for plain tables."""
        with self.lock:
            if not self.swept:
                plain_tables.sweep(self._warehouse)
                self.swept = True

    def _taken(self) -> Epoch | None:
        epoch, self.current.epoch = self.current.epoch, None
        return epoch
