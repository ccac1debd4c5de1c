"""What can be asked of a warehouse: queries, plans, changes, and whether views are right."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from dbt_streamsql.compiler import ttl_oracle
from dbt_streamsql.compiler.calls import refuse_calls
from dbt_streamsql.compiler.document import document_of
from dbt_streamsql.compiler.hints import without_ttl_hints
from dbt_streamsql.compiler.parse import statements, without_qualify
from dbt_streamsql.compiler.udf import Function, Parameter, expand
from dbt_streamsql.definitions import configuration_of
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Job, MetaStore
from dbt_streamsql.meta.leaders import Leaders
from dbt_streamsql.meta.waiting import wait_for
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.document import PlanDocument
from dbt_streamsql.quoting import TableName
from dbt_streamsql.reading import Earlier, Reader, Reading
from dbt_streamsql.runtime import changelog, cost, verification
from dbt_streamsql.runtime.ages import APPROXIMATE
from dbt_streamsql.runtime.context import Version, Warehouse, plan_of
from dbt_streamsql.runtime.epoch import Epoch
from dbt_streamsql.runtime.spark_catalog import SparkCatalog
from dbt_streamsql.storage import functions
from dbt_streamsql.storage.iceberg.metadata import Metadata


class Queries:
    """The half of an engine that changes nothing; an open epoch shows what it has staged."""

    def __init__(
        self, spark: SparkSession, catalog: str, warehouse: Warehouse, consistency: str
    ) -> None:
        """`consistency`: of queries that do not name one. Error: CONFIG_INVALID."""
        self.spark = spark
        self.catalog = catalog
        self._warehouse = warehouse
        self._known = SparkCatalog(spark, catalog, self._at, self._typed, self._pinned)
        self._reading = Reading(warehouse, self._known, consistency, self.expanded)
        self._epoch: Epoch | None = None

    @property
    def store(self) -> MetaStore:
        """What MetaService knows of this warehouse: definitions, barriers, versions, leases."""
        return self._warehouse.store

    @property
    def warehouse(self) -> Warehouse:
        """What all parts of this engine share. For tools and tests that look inside: it may be
        another in the next release."""
        return self._warehouse

    # -- reading -----------------------------------------------------------------------------

    def rewrite(
        self,
        sql: str,
        consistency: str | None = None,
        max_staleness: float | None = None,
        beside: Collection[str] = (),
        earlier: Earlier | None = None,
    ) -> str:
        """The query as `sql` would run it; without a consistency, in an open epoch, over what that
        has staged. `beside`: tables that other queries read at the same barrier. `earlier` is told
        a barrier, and the tables that are read as they were there but have changed.

        The engine's own columns of a view are left out, so that `SELECT *` means the query's.
        Calls of `streamsql_changelog` are written out.
        """
        epoch = self._epoch
        if epoch is not None and consistency is None:
            return self._reading.in_run(sql, epoch.open)
        return self._reading.at(
            sql, consistency, max_staleness=max_staleness, beside=beside, earlier=earlier
        )

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
        """The query with stored functions and QUALIFY written out, and without STATE_TTL hints:
        what Spark itself can read.

        Errors: FUNCTION_INVALID, CYCLE.
        """

        def find(name: TableName) -> Function | None:
            text = functions.stored(self.spark, name)
            return Function.from_json(text) if text is not None else None

        return without_qualify(expand(without_ttl_hints(sql), find))

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

    def lag(self, name: str) -> float:
        """The age in seconds of the oldest change that a table does not hold: of the tables and
        streams that it comes from. 0 when it has them all.

        Errors: DEFINITION_MISSING, STREAM_LOST, STREAM_UNREACHABLE.
        """
        table = TableName.parse(name, self.catalog)
        if not self.knows(str(table)):
            raise StreamSqlError("DEFINITION_MISSING", f"{table} is not a materialized view")
        return self._reading.lag(table)

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
        A view that has forgotten something (`state_ttl`) is compared with what its last barrier
        should have made of the rows that it remembers.
        Errors: DEFINITION_MISSING, NOT_A_VIEW, STATE_FORGOTTEN (that is not known any more).
        """
        table = TableName.parse(name, self.catalog)
        return verification.differing(
            self._warehouse, table, self._reading.rewritten, ttl_oracle.difference
        )

    def knows(self, name: str) -> bool:
        """Whether this is a registered materialized view."""
        return str(TableName.parse(name, self.catalog)) in self._warehouse.store.jobs()

    def views(self) -> frozenset[str]:
        """The names of all registered views and streaming tables."""
        return frozenset(self._warehouse.store.jobs())

    def readers(self, name: str) -> list[str]:
        """The views and sinks that read a table directly, by name."""
        table, store = str(TableName.parse(name, self.catalog)), self._warehouse.store
        sinks = [sink.name for sink in store.sinks() if sink.table == table]
        return sorted([*store.readers(table), *sinks])

    def tables_of(self, unique_ids: Collection[str]) -> frozenset[str]:
        """The tables that the models of these dbt ids maintain, of those that are registered."""
        jobs = self._jobs().items()
        return frozenset(table for table, job in jobs if job.unique_id in unique_ids)

    @property
    def leaders(self) -> Leaders:
        """Which of several runners of this warehouse goes to work."""
        return self._warehouse.store.leaders

    def configuration(self, name: str) -> dict[str, Any] | None:
        """The `refresh_mode`, `properties` and `changelog` of a registered view; else None."""
        job = self._jobs().get(str(TableName.parse(name, self.catalog)))
        return configuration_of(job) if job is not None else None

    def staged(self, name: str) -> bool:
        """Whether the open epoch has an unpublished version of the table."""
        return self._staged(TableName.parse(name, self.catalog)) is not None

    def plan(self, name: str) -> CompiledPlan:
        """The plan of a registered view."""
        table = str(TableName.parse(name, self.catalog))
        job = self._jobs().get(table)
        if job is None:
            raise StreamSqlError("DEFINITION_MISSING", f"{table} is not a materialized view")
        return plan_of(job)

    def explain(self, name: str) -> str:
        """How a registered view is maintained, with its program, and what its last run took."""
        return "\n".join(filter(None, [self.plan(name).explain(), self.last_run(name)]))

    def last_run(self, name: str) -> str:
        """The seconds that the last published run of a view took, and those that each way was
        expected to take ('' before the first)."""
        version = self._warehouse.store.latest(str(TableName.parse(name, self.catalog)))
        return cost.last_run(version) if version is not None else ""

    def plan_file(self, plan: CompiledPlan) -> PlanDocument:
        """The plan file of a plan (FLIP-292): its operators, and how long each remembers."""
        return document_of(plan, self._known)

    def kept(self, name: str) -> str:
        """How a registered view is kept up to date, in one line ('' when it is not a view)."""
        job = self._jobs().get(str(TableName.parse(name, self.catalog)))
        return plan_of(job).summary if job is not None else ""

    def remembers(self, name: str) -> str:
        """How long a registered view remembers what, and since which barrier it is no longer what
        its query says ('' when it forgets nothing)."""
        table = str(TableName.parse(name, self.catalog))
        job = self._jobs().get(table)
        plan = plan_of(job) if job is not None else None
        if plan is None or not plan.ttls:
            return ""
        version = self._warehouse.store.latest(table)
        since = version.stats.get(APPROXIMATE) if version is not None else None
        approximate = f"approximate since barrier {since}" if since is not None else ""
        return "; ".join(filter(None, [plan.remembers, approximate]))

    # -- inside ------------------------------------------------------------------------------

    def _kept(self, sql: str) -> str:
        """`expanded`, for a query that is kept. Error: FUNCTION_INVALID."""
        refuse_calls(sql, "a view")
        return self.expanded(sql)

    def _typed(self, sql: str) -> str:
        """A query that has the columns and types of `rewrite`'s, over no version in particular."""
        epoch = self._epoch
        if epoch is not None:
            return self._reading.in_run(sql, epoch.open)
        return self._reading.typed(sql, self._warehouse.store.jobs())

    def _jobs(self) -> Mapping[str, Job]:
        """The definitions as the open epoch has them, else the current ones."""
        epoch = self._epoch
        return epoch.open.jobs if epoch is not None else self._warehouse.store.jobs()

    def _staged(self, name: TableName) -> Version | None:
        epoch = self._epoch
        return epoch.staged(str(name)) if epoch is not None else None

    def _pinned(self, name: TableName) -> Metadata | None:
        epoch = self._epoch
        return epoch.known(str(name)) if epoch is not None else None

    def _at(self, name: TableName) -> TableName:
        version = self._staged(name)
        return version.at if version is not None else name
