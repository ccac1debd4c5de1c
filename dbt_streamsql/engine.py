"""The public Python API: open a warehouse, define views, bring them up to date, check them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, Row, SparkSession

from dbt_streamsql.compiler.calls import refuse_calls
from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.compiler.parse import statements, without_qualify
from dbt_streamsql.compiler.udf import Function, Parameter, expand
from dbt_streamsql.definitions import Definitions, check_config, configuration_of
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Job, MetaStore
from dbt_streamsql.meta.waiting import wait_for
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.quoting import TableName
from dbt_streamsql.reading import Reader, Reading
from dbt_streamsql.revising import Revising
from dbt_streamsql.runtime import (
    changelog,
    changelog_table,
    publish,
    revision,
    staged,
    verification,
)
from dbt_streamsql.runtime.context import Version, Warehouse
from dbt_streamsql.runtime.epoch import Epoch
from dbt_streamsql.runtime.job import plan_of
from dbt_streamsql.runtime.report import Report, TableReport, reports_of
from dbt_streamsql.runtime.session import embedded
from dbt_streamsql.runtime.sessions import Sessions
from dbt_streamsql.runtime.spark_catalog import SparkCatalog
from dbt_streamsql.runtime.staged import Build
from dbt_streamsql.storage import functions
from dbt_streamsql.storage.iceberg import staging
from dbt_streamsql.storage.iceberg.metadata import Metadata


class Engine:
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
    ) -> None:
        self.spark = spark
        self.catalog = catalog
        self._owns_spark = owns_spark
        sessions = Sessions(spark, query_timeout)
        self._warehouse = Warehouse(sessions, MetaStore.open(meta, token=meta_token), catalog)
        self._known = SparkCatalog(spark, catalog, self._at, self.rewrite, self._pinned)
        self._reading = Reading(self._warehouse, self._known, consistency, self.expanded)
        self._definitions = Definitions(self._known)
        self._epoch: Epoch | None = None
        self._swept = False
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls,
        warehouse: str | Path | None = None,
        *,
        spark: SparkSession | None = None,
        catalog: str = "lake",
        meta: str | None = None,
        meta_token: str = "",
        query_timeout: float | None = None,
        consistency: str = "read_committed",
    ) -> Engine:
        """Open a warehouse folder, or the one that `spark`'s catalog has.

        `meta` is the SQLAlchemy URL of MetaService's store (default: SQLite in the warehouse), or
        where a MetaService serves one, `http://127.0.0.1:<port>` or `https://…`; `meta_token` is
        for a service ('': the token that a service on this host keeps in its file).
        `query_timeout`: seconds that the refresh of one view may take (None: any time).
        `consistency`: of queries that do not name one.
        Errors: JAVA_MISSING, JAR_UNAVAILABLE, CONNECTION, META_UNREACHABLE, META_VERSION,
        META_DENIED.
        """
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
            meta = f"sqlite:///{path / 'streamsql.db'}"
        return cls(
            session,
            catalog,
            meta,
            owns_spark=owns,
            query_timeout=query_timeout,
            consistency=consistency,
            meta_token=meta_token,
        )

    # -- definitions -------------------------------------------------------------------------

    def compile(
        self, sql: str, *, refresh_mode: str = "auto", into: str = "", **config: Any
    ) -> CompiledPlan:
        """How a query would be maintained; see `CompiledPlan`."""
        check_config(config)
        sql = self._kept(sql)
        return compile_view(sql, self._known, table=into, refresh_mode=refresh_mode)

    def create_materialized_view(
        self,
        name: str,
        sql: str,
        *,
        refresh_mode: str = "auto",
        unique_id: str = "",
        full_refresh: bool = False,
        properties: Mapping[str, str] | None = None,
        changelog: bool = False,
        **config: Any,
    ) -> TableReport:
        """Define a view, or define it anew, and bring it up to date.

        `full_refresh` recomputes it this once, whatever changed. `properties` are the table's own,
        beside those that the engine needs. `changelog`: keep its changes in `<name>__changelog`.

        Joins the open epoch (see `begin`), else it is an epoch of its own.
        """
        check_config(config)
        table = TableName.parse(name, self.catalog).checked()
        sql = self._kept(sql)
        # Inside: what becomes of the rows depends on the definition that made them, and another
        # run may end only now.
        with self._in_epoch() as epoch:
            current = epoch.open.jobs.get(str(table))
            job, plan, change = self._definitions.define(
                *(current, str(table), sql, refresh_mode, unique_id, properties or {}),
                changelog=changelog,
            )
            self._set_properties(table, job.config["properties"])
            asked = "a full refresh was asked for" if full_refresh else ""
            version = epoch.define(job, plan, change, asked)
        return reports_of([version], version.barrier)[job.table]

    def configuration(self, name: str) -> dict[str, Any] | None:
        """The `refresh_mode`, `properties` and `changelog` of a registered view; else None."""
        job = self._jobs().get(str(TableName.parse(name, self.catalog)))
        return configuration_of(job) if job is not None else None

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
                store.drop_job(fence, table)
                changelog_table.drop_of(self._warehouse, fence, table)
                if opened is not None:
                    opened.forget(table)
                if not keep_table:
                    staging.drop_table(self.spark, TableName.parse(table))
                if opened is None:
                    publish.sweep(self._warehouse, fence)
            finally:
                if opened is None:
                    store.release(fence)

    def knows(self, name: str) -> bool:
        """Whether this is a registered materialized view."""
        return str(TableName.parse(name, self.catalog)) in self._warehouse.store.jobs()

    # -- epochs ------------------------------------------------------------------------------

    @property
    def epoch_open(self) -> bool:
        return self._epoch is not None

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

    def publish(self) -> Report:
        """Publish what the open epoch staged as one barrier; without one, an empty report."""
        with self._lock:
            epoch, self._epoch = self._epoch, None
            if epoch is None:
                return Report(self._warehouse.store.last_committed(), {})
            versions = epoch.publish()
        barrier = self._warehouse.store.last_committed()
        return Report(barrier, reports_of(versions, barrier))

    def hold(self) -> int:
        """Close the open epoch and leave what it staged where only read_uncommitted looks.

        The next epoch, or `sweep`, undoes it. Its barrier; 0 when nothing was staged.
        """
        with self._lock:
            epoch, self._epoch = self._epoch, None
            return epoch.leave() if epoch is not None else 0

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

    def abort(self) -> None:
        """Undo everything that the open epoch staged."""
        with self._lock:
            epoch, self._epoch = self._epoch, None
            if epoch is not None:
                epoch.abort()

    def flush(self) -> None:
        """Publish what is staged so far and go on in a next epoch that reads the same inputs."""
        with self._lock:
            if self._epoch is None:
                return
            before = self._epoch.open
            self.publish()
            self.begin()
            self._epoch.keep_pins(before)

    def advance(self) -> Report:
        """One epoch over every view whose inputs changed, in dependency order."""
        with self._in_epoch() as epoch:
            epoch.advance()
            versions = list(epoch.open.done.values())
        barrier = self._warehouse.store.last_committed()
        return Report(barrier, reports_of(versions, barrier))

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

    def sweep(self) -> int:
        """Remove what dead processes left; how many things."""
        with self._lock:
            fence = self._warehouse.store.acquire(wait=True)
            try:
                publish.recover(self._warehouse, fence)
                return publish.sweep(self._warehouse, fence) + staged.sweep(self._warehouse)
            finally:
                self._warehouse.store.release(fence)

    def touch(self, name: str) -> None:
        """Tell the open epoch that this run has written a table by other means."""
        if self._epoch is not None:
            self._epoch.touch(str(TableName.parse(name, self.catalog)))

    def staged(self, name: str) -> bool:
        """Whether the open epoch has an unpublished version of the table."""
        return self._staged(TableName.parse(name, self.catalog)) is not None

    # -- reading -----------------------------------------------------------------------------

    def rewrite(
        self,
        sql: str,
        consistency: str | None = None,
        max_staleness: float | None = None,
        beside: Collection[str] = (),
    ) -> str:
        """The query as `sql` would run it; without a consistency, in an open epoch, over what that
        has staged. `beside`: tables that other queries read at the same barrier.

        The engine's own columns of a view are left out, so that `SELECT *` means the query's.
        Calls of `streamsql_changelog` are written out.
        """
        epoch = self._epoch
        if epoch is not None and consistency is None:
            return self._reading.in_run(sql, epoch.open)
        return self._reading.at(sql, consistency, max_staleness=max_staleness, beside=beside)

    def visible(self, sql: str) -> str:
        """The query without the engine's own columns, over no version in particular: for DDL."""
        return self._reading.visible(self._kept(sql), self._jobs())

    def function(
        self,
        name: str,
        body: str,
        *,
        parameters: Iterable[Mapping[str, Any]],
        returns: str,
        kind: str = "scalar",
        volatility: str = "",
    ) -> functions.FunctionView:
        """How a SQL function is kept, checked but not stored. Error: FUNCTION_INVALID."""
        at = TableName.parse(name, self.catalog).checked()
        known = tuple(Parameter(**parameter) for parameter in parameters)
        function = Function(str(at), kind, known, returns, body, volatility).checked()
        whole = replace(function, body=self.expanded(body))
        view = functions.view_of(at).sql
        return functions.FunctionView(view, functions.PROPERTY, function.to_json(), whole.sample)

    def expanded(self, sql: str) -> str:
        """The query with stored functions and QUALIFY written out: what Spark itself can read.

        Errors: FUNCTION_INVALID, CYCLE.
        """

        def find(name: TableName) -> Function | None:
            text = functions.stored(self.spark, name)
            return Function.from_json(text) if text is not None else None

        return without_qualify(expand(sql, find))

    def statements(self, text: str) -> list[str]:
        """The statements of a text, without the semicolons between them."""
        return statements(text)

    def sql(
        self,
        text: str,
        consistency: str | None = None,
        barrier: int | None = None,
        max_staleness: float | None = None,
    ) -> DataFrame:
        """A query over one consistent cut of the views and of the tables that they read.

        `consistency` (default: the engine's): read_uncommitted, read_committed, repeatable_read;
        `barrier`: none newer than that one; `max_staleness`: seconds that the oldest change which
        the cut does not hold may be old. What repeatable_read reads is held until `close`.
        Errors: CONFIG_INVALID, CONSISTENCY_UNAVAILABLE, META_CONFLICT.
        """
        return self.spark.sql(self._reading.at(text, consistency, barrier, max_staleness))

    def reader(self, consistency: str = "repeatable_read", barrier: int | None = None) -> Reader:
        """A reader whose queries all see one committed barrier until it is closed.

        `barrier`: that one instead of the newest. Errors: CONFIG_INVALID, META_CONFLICT.
        """
        return self._reading.reader(consistency, barrier)

    def wait_for(self, barrier: int, seconds: float | None = None) -> int:
        """Wait until that barrier, or a later one, is committed; its number.

        Error: CONSISTENCY_UNAVAILABLE when it is not within `seconds` (None: for ever).
        """
        return wait_for(self._warehouse.store, barrier, seconds)

    def changelog(
        self, name: str, from_barrier: int, to_barrier: int | None = None, mode: str = "retract"
    ) -> DataFrame:
        """The changes of a view after one committed barrier (0: before the first) up to another.

        Columns: the view's, `_barrier` and `_op`. `mode`: retract (`-` old rows, `+` new ones),
        upsert (by key: `+` new, `*` changed, `-` gone, with its key alone), append (`+` only).
        Errors: DEFINITION_MISSING, CONFIG_INVALID, CHANGELOG_UNAVAILABLE, CHANGELOG_MODE.
        """
        view = TableName.parse(name, self.catalog)
        text = changelog.query(self._warehouse, view, from_barrier, to_barrier, mode)
        return self.spark.sql(text)

    def verify(self, name: str) -> list[Row]:
        """The rows where a view differs from its query at the same barrier: [] when it is right.

        Each row has a column `_side`: `missing` from the view or `surplus` in it. Floating point
        columns may differ in their last bits, as they do when the query itself is asked twice.
        """
        table = TableName.parse(name, self.catalog)
        return verification.differing(self._warehouse, table, self._reading.rewritten)

    def plan(self, name: str) -> CompiledPlan:
        """The plan of a registered view."""
        table = str(TableName.parse(name, self.catalog))
        job = self._jobs().get(table)
        if job is None:
            raise StreamSqlError("DEFINITION_MISSING", f"{table} is not a materialized view")
        return plan_of(job)

    def explain(self, name: str) -> str:
        """How a registered view is maintained, with its program."""
        return self.plan(name).explain()

    def kept(self, name: str) -> str:
        """How a registered view is kept up to date, in one line ('' when it is not a view)."""
        job = self._jobs().get(str(TableName.parse(name, self.catalog)))
        return plan_of(job).summary if job is not None else ""

    def close(self) -> None:
        """Abort an open epoch and let go of the store (and of Spark, when it was opened here)."""
        self.abort()
        self._reading.close()
        self._warehouse.store.close()
        if self._owns_spark:
            self.spark.stop()

    # -- inside ------------------------------------------------------------------------------

    def _kept(self, sql: str) -> str:
        """`expanded`, for a query that is kept. Error: FUNCTION_INVALID."""
        refuse_calls(sql, "a view")
        return self.expanded(sql)

    def _new_epoch(self) -> Epoch:
        return Epoch(self._warehouse, self._reading.rewritten, self._definitions.refreshed)

    def _revising(self) -> Revising:
        if self._epoch is not None:
            raise StreamSqlError(
                "REVISION_IMPOSSIBLE",
                "an epoch is open, and a revision is one of its own",
                hint="publish it or abort it first",
            )
        return Revising(self._warehouse, self._definitions, self._new_epoch)

    def _revision(
        self, name: str, to_barrier: int | None, sql: str, mode: revision.Mode
    ) -> revision.Revision:
        table = TableName.parse(name, self.catalog)
        view = str(table) in self._warehouse.store.jobs()
        return revision.Revision(table, to_barrier, self._kept(sql) if sql and view else sql, mode)

    def _staged(self, name: TableName) -> Version | None:
        epoch = self._epoch
        return epoch.staged(str(name)) if epoch is not None else None

    def _pinned(self, name: TableName) -> Metadata | None:
        epoch = self._epoch
        return epoch.known(str(name)) if epoch is not None else None

    def _at(self, name: TableName) -> TableName:
        version = self._staged(name)
        return version.at if version is not None else name

    def _sweep_once(self) -> None:
        """The first work of a process removes what dead ones left staged for plain tables."""
        with self._lock:
            if not self._swept:
                staged.sweep(self._warehouse)
                self._swept = True

    def _jobs(self) -> Mapping[str, Job]:
        """The definitions as the open epoch has them, else the current ones."""
        epoch = self._epoch
        return epoch.open.jobs if epoch is not None else self._warehouse.store.jobs()

    @contextmanager
    def _in_epoch(self) -> Iterator[Epoch]:
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
            self.publish()

    def _set_properties(self, table: TableName, wanted: Mapping[str, str]) -> None:
        """Bring the properties of a view that exists to what its new definition says."""
        known = self.configuration(str(table))
        if known is None or known["properties"] == wanted:
            return
        gone = [key for key in known["properties"] if key not in wanted]
        staging.set_properties(self.spark, table, wanted, gone)


__all__ = ["Engine", "Report", "TableReport"]
