"""The public Python API: open a warehouse, define views, bring them up to date, check them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from dbt_streamsql.defining import Defining
from dbt_streamsql.definitions import Definitions
from dbt_streamsql.durations import retention_of
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore, Retention
from dbt_streamsql.meta.places import STORE_FILE, in_file, store_of
from dbt_streamsql.quoting import TableName
from dbt_streamsql.revising import Revising
from dbt_streamsql.runtime import (
    changelog_table,
    publish,
    remembered,
    revision,
    staged,
)
from dbt_streamsql.runtime.clock import Clock, SystemClock
from dbt_streamsql.runtime.context import Warehouse
from dbt_streamsql.runtime.durable import durable
from dbt_streamsql.runtime.epoch import Epoch
from dbt_streamsql.runtime.garbage import Garbage
from dbt_streamsql.runtime.refusals import telling
from dbt_streamsql.runtime.report import Report, TableReport, blame, reports_of
from dbt_streamsql.runtime.session import embedded
from dbt_streamsql.runtime.sessions import Sessions
from dbt_streamsql.runtime.staged import Build
from dbt_streamsql.runtime.streams import all_beside, forget
from dbt_streamsql.storage.iceberg import comments, readers, staging
from dbt_streamsql.tuning import Tuning

log = logging.getLogger("dbt_streamsql")


class Engine(Defining):
    """A warehouse of materialized views. Safe from several threads; `close` it when done."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: str,
        meta: str,
        owns_spark: bool,
        query_timeout: float | None = None,
        consistency: str = "read_committed",
        meta_token: str = "",
        retention: Retention | None = None,
        connections: Mapping[str, Mapping[str, str]] | None = None,
        tuning: Tuning | None = None,
        clock: Clock | None = None,
    ) -> None:
        sessions = Sessions(spark, query_timeout)
        store = MetaStore.open(meta, token=meta_token)
        warehouse = Warehouse(
            sessions,
            store,
            catalog,
            retention or Retention(),
            connections or {},
            tuning or Tuning(),
            clock or SystemClock(),
        )
        super().__init__(spark, catalog, warehouse, consistency)
        self._owns_spark = owns_spark
        self._definitions = Definitions(self._known)
        self._swept = False

    @classmethod
    def open(
        cls,
        warehouse: str | Path | None = None,
        *,
        spark: SparkSession | None = None,
        catalog: str = "lake",
        meta: str | None = None,
        meta_token: str = "",
        boundary: str = "",
        query_timeout: float | None = None,
        consistency: str = "read_committed",
        retain: float | str = "7 days",
        retain_barriers: int = 300,
        connections: Mapping[str, Mapping[str, str]] | None = None,
        tuning: Tuning | None = None,
        clock: Clock | None = None,
    ) -> Engine:
        """Open a warehouse folder, or the one that `spark`'s catalog has.

        `meta` is the SQLAlchemy URL of MetaService's store (default: SQLite in the warehouse), or
        where a MetaService serves one, `http://127.0.0.1:<port>` or `https://…`; `meta_token` is
        for a service ('': the token that a service on this host keeps in its file).
        `boundary`: the part of the topology that this engine runs, with barriers of its own.
        `query_timeout`: seconds that the refresh of one view may take (None: any time).
        `consistency`: of queries that do not name one.
        `retain`: how long a barrier can be read after it ended (a number is seconds), and
        `retain_barriers`: how many of the newest can, at most; see docs/retention.md.
        `connections`: options of streams and sinks, by the name that their `connection` says.
        `tuning`: the limits by which an epoch chooses its ways, which change no rows; `clock`: by
        which it tells the time. Both are as they should be when they are not given.
        Errors: CONFIG_INVALID, JAVA_MISSING, JAR_UNAVAILABLE, CONNECTION, META_UNREACHABLE,
        META_VERSION, META_DENIED.
        """
        kept = retention_of(retain, retain_barriers)
        folder = str(Path(warehouse).resolve()) if warehouse is not None else ""
        owns = spark is None and SparkContext._active_spark_context is None  # noqa: SLF001
        session = spark or embedded(folder or str(Path("warehouse").resolve()), catalog)
        if not folder:
            folder = str(session.conf.get(f"spark.sql.catalog.{catalog}.warehouse", "") or "")
        if meta is None:
            if not folder or "://" in folder.removeprefix("file://"):
                raise StreamSqlError(
                    "CONFIG_INVALID",
                    "a warehouse that is not a local folder needs `meta`",
                    allowed="an SQLAlchemy URL, such as postgresql+psycopg://host/db",
                )
            path = Path(folder.removeprefix("file:"))
            path.mkdir(parents=True, exist_ok=True)
            meta = in_file(path / STORE_FILE)
        return cls(
            session,
            catalog,
            store_of(meta, boundary),
            owns_spark=owns,
            query_timeout=query_timeout,
            consistency=consistency,
            meta_token=meta_token,
            retention=kept,
            connections=connections,
            tuning=tuning,
            clock=clock,
        )

    # -- definitions -------------------------------------------------------------------------

    @telling
    def create_table_as(
        self, build: Build, *, spark: SparkSession | None = None, atomic: bool = True
    ) -> bool:
        """Build a plain table: staged, checked, and published by one change, or not at all.

        `spark` is the session that knows the query's temporary views. False when the table was
        there and the purpose is CREATE_TABLE_AS_IF_NOT_EXISTS. `atomic=False`: the table is
        created first and stays when its build fails.
        Errors: ATOMIC_UNSUPPORTED, CONSTRAINT_VIOLATED, TABLE_EXISTS.
        """
        session = spark or self.spark
        if not atomic:
            return staged.run_plainly(session, build)
        self._sweep_once()
        return staged.run(self._warehouse, session, build)

    def document(self, name: str, comment: str | None, columns: Mapping[str, str]) -> list[str]:
        """Give a published Iceberg table and its columns their comments, where they have others.

        `comment` None leaves the table's own. Columns that it has not are returned.
        """
        return comments.keep(self.spark, TableName.parse(name, self.catalog), comment, columns)

    @telling
    def drop(self, name: str, *, keep_table: bool = False) -> None:
        """Forget a view and drop its table; DEFINITION_MISSING when it is not a view.

        `keep_table`: it goes on as a plain table.
        """
        table = str(TableName.parse(name, self.catalog))
        if not self.knows(table):
            raise StreamSqlError("DEFINITION_MISSING", f"{table} is not a materialized view")
        store = self._warehouse.store
        with self._lock:
            opened = self._epoch
            fence = opened.open.fence if opened is not None else store.acquire(wait=True)
            try:
                if opened is None:
                    publish.recover(self._warehouse, fence)
                job = store.jobs()[table]
                beside = [other.table for other in all_beside(job)]
                if keep_table:
                    for each in (table, *beside):
                        remembered.forget(self.spark, TableName.parse(each))
                else:
                    # A runner that has lost its lock unnoticed must not take it away.
                    store.newest_barrier(fence)
                    with durable("view.drop"):
                        for each in (table, *beside):
                            staging.drop_table(self.spark, TableName.parse(each))
                with durable("view.forget"):
                    for each in (*beside, table):
                        store.drop_job(fence, each)
                    changelog_table.drop_of(self._warehouse, fence, table)
                forget(self._warehouse, job)
                if opened is not None:
                    for each in (table, *beside):
                        opened.forget(each)
                else:
                    publish.sweep(self._warehouse, fence)
            finally:
                if opened is None:
                    store.release(fence)

    # -- epochs ------------------------------------------------------------------------------

    @property
    def epoch_open(self) -> bool:
        return self._epoch is not None

    @telling
    def begin(self) -> int:
        """Open an epoch that later calls join, and pin the inputs of all views at this moment.

        Waits while another process runs an epoch on this warehouse; finishes or undoes what a
        dead one left. Returns the number that the last committed barrier has.
        """
        with self._lock:
            if self._epoch is None:
                self._sweep_once()
                self._epoch = self._new_epoch()
                self._epoch.pin_roots()
        return self._warehouse.store.last_committed()

    @telling
    def publish(self) -> Report:
        """Publish what the open epoch staged as one barrier; without one, an empty report."""
        return self._publish(())

    def _publish(self, leave_out: Collection[str]) -> Report:
        with self._lock:
            epoch, self._epoch = self._epoch, None
            if epoch is None:
                return Report(self._warehouse.store.last_committed(), {})
            versions = epoch.publish(leave_out)
        if epoch.open.number:
            readers.close_idle(self.spark, self._warehouse.tuning.idle_readers)
        barrier = self._warehouse.store.last_committed()
        return Report(barrier, reports_of(versions, barrier), sinks=epoch.delivered)

    @telling
    def hold(self) -> int:
        """Close the open epoch and leave what it staged where only read_uncommitted looks.

        The next epoch, or `sweep`, undoes it. Its barrier; 0 when nothing was staged.
        """
        with self._lock:
            epoch, self._epoch = self._epoch, None
            return epoch.leave() if epoch is not None else 0

    @telling
    def undo(self, barrier: int) -> None:
        """Give up what a run that was held back has staged.

        Errors: META_CONFLICT when there is no such open barrier, WAREHOUSE_BUSY.
        """
        with self._lock:
            publish.undo(self._warehouse, barrier)

    def withdraw(self, nodes: Collection[str]) -> list[str]:
        """Take views, by their dbt ids, and all that reads them out of the open epoch; their
        tables."""
        with self._lock:
            return self._epoch.withdraw(nodes) if self._epoch is not None else []

    @telling
    def abort(self) -> None:
        """Undo everything that the open epoch staged."""
        with self._lock:
            epoch, self._epoch = self._epoch, None
            if epoch is not None:
                epoch.abort()

    @telling
    def flush(self) -> None:
        """Publish what is staged so far and go on in a next epoch that reads the same inputs."""
        with self._lock:
            if self._epoch is None:
                return
            before = self._epoch.open
            self.publish()
            self.begin()
            self._epoch.keep_pins(before)

    @telling
    def advance(
        self,
        tables: Collection[str] | None = None,
        *,
        keep_going: bool = False,
        leave_out: Collection[str] = (),
    ) -> Report:
        """One epoch over every view whose inputs changed, in dependency order.

        `tables`: only these, with all that they read. A view that fails stays at its last barrier
        with all that reads it, and the others are published; then its error is raised, or, with
        `keep_going`, told in the report. The views and sinks of `leave_out` stay as well, without
        being tried.
        """
        with self._in_epoch(leave_out) as epoch:
            errors = epoch.advance_what_can(tables, leave_out)
            versions = list(epoch.open.done.values())
            blamed = blame(errors, epoch.open.jobs)
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

    @telling
    def revise(
        self,
        name: str,
        *,
        to_barrier: int | None = None,
        sql: str = "",
        mode: revision.Mode = "auto",
    ) -> Report:
        """Make a table and all views that come from it anew from an earlier barrier, or corrected.

        `name`: a view, or a table that views read. `to_barrier`: the committed barrier to go back
        to; views then take up again what came after it, a table of others loses it. `sql`: a
        view's new query, or INSERT, UPDATE, DELETE and MERGE statements on a table of others.
        `mode`: incremental, full, or auto (full only where it must be). One barrier publishes all.
        Errors: DEFINITION_MISSING, REVISION_IMPOSSIBLE, CONFIG_INVALID, META_CONFLICT.
        """
        with self._lock:
            versions = self._revising().run(self._revision(name, to_barrier, sql, mode))
        barrier = self._warehouse.store.last_committed()
        return Report(barrier, reports_of(versions, barrier))

    def plan_revision(
        self,
        name: str,
        *,
        to_barrier: int | None = None,
        sql: str = "",
        mode: revision.Mode = "auto",
    ) -> revision.RevisionPlan:
        """What `revise` would do; nothing is changed. Errors: those of `revise`."""
        return self._revising().plan(self._revision(name, to_barrier, sql, mode))

    def touch(self, name: str) -> None:
        """Tell the open epoch that this run has written a table by other means."""
        if self._epoch is not None:
            self._epoch.touch(str(TableName.parse(name, self.catalog)))

    def close(self) -> None:
        """Abort an open epoch and let go of the store (and of Spark, when it was opened here)."""
        self.abort()
        self._reading.close()
        self._warehouse.store.close()
        if self._owns_spark:
            self.spark.stop()

    # -- inside ------------------------------------------------------------------------------

    def _new_epoch(self) -> Epoch:
        if self._warehouse.sessions.follow_settings():
            self._definitions.follow_settings()
        refreshed = partial(self._definitions.refreshed, connections=self._warehouse.connections)
        return Epoch(self._warehouse, self._reading.rewritten, refreshed)

    def _revising(self) -> Revising:
        if self._epoch is not None:
            raise StreamSqlError(
                "REVISION_IMPOSSIBLE",
                "a revision needs its own epoch, but an epoch is open",
                hint="publish it or abort it first",
            )
        return Revising(self._warehouse, self._definitions, self._new_epoch)

    def _revision(
        self, name: str, to_barrier: int | None, sql: str, mode: revision.Mode
    ) -> revision.Revision:
        table = TableName.parse(name, self.catalog)
        view = str(table) in self._warehouse.store.jobs()
        return revision.Revision(table, to_barrier, self._kept(sql) if sql and view else sql, mode)

    def _sweep_once(self) -> None:
        """The first work of a process removes what dead ones left staged for plain tables."""
        with self._lock:
            if not self._swept:
                staged.sweep(self._warehouse)
                self._swept = True

    @contextmanager
    def _in_epoch(self, leave_out: Collection[str] = ()) -> Iterator[Epoch]:
        """The open epoch, or one that ends with the block: published, or undone on an error."""
        with self._lock:
            own = self._epoch is None
            self.begin()
            epoch = self._epoch
        assert epoch is not None
        try:
            yield epoch
        except BaseException:
            if own:
                self.abort()
            raise
        if own:
            self._publish(leave_out)


__all__ = ["Engine", "Garbage", "Report", "TableReport"]
