"""The part of an engine's API for dbt and the command line only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from dbt_streamsql.compiler.parsing.parse import statements
from dbt_streamsql.compiler.parsing.sql_functions import Function, Parameter
from dbt_streamsql.engine.definitions import configuration_of
from dbt_streamsql.engine.reads.consistent_reads import ConsistentReads, Earlier
from dbt_streamsql.engine.reads.current import CurrentEpoch
from dbt_streamsql.engine.reads.user_sql import expanded, expanded_to_store
from dbt_streamsql.engine.state_tables import StateTables
from dbt_streamsql.meta import Job
from dbt_streamsql.meta.model.stored_definition import plan_of
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Warehouse
from dbt_streamsql.runtime.core.row_expiry import APPROXIMATE
from dbt_streamsql.storage.iceberg.commits import comments
from dbt_streamsql.storage.tables import sql_functions


class AdapterApi:
    """Query texts ready to run, and facts about a table by its name."""

    def __init__(
        self,
        warehouse: Warehouse,
        current: CurrentEpoch,
        reads: ConsistentReads,
        states: StateTables,
    ) -> None:
        self._warehouse = warehouse
        self._current = current
        self._reads = reads
        self._states = states

    # -- texts ---------------------------------------------------------------------------------

    def rewrite(
        self,
        sql: str,
        consistency: str | None = None,
        max_staleness: float | None = None,
        beside: Collection[str] = (),
        earlier: Earlier | None = None,
    ) -> str:
        """The query as `Queries.sql` would run it; without a consistency, in an open epoch, over
        what that epoch has staged.

        `beside`: tables that other queries read at the same barrier. `earlier` is called with a
        barrier, and the tables that are read as of that barrier but have changed since. The
        engine's own columns of a view are hidden, so that `SELECT *` means the query's columns.
        Calls of `streamsql_changelog` are expanded.
        """
        epoch = self._current.epoch
        if epoch is not None and consistency is None:
            return self._reads.in_run(sql, epoch.state)
        return self._reads.at(
            sql, consistency, max_staleness=max_staleness, beside=beside, earlier=earlier
        )

    def visible(self, sql: str) -> str:
        """The query without the engine's own columns, pinned to no version: for DDL."""
        stored = expanded_to_store(self._warehouse.sessions.main, sql)
        return self._reads.visible(stored, self._current.jobs())

    def statements(self, text: str) -> list[str]:
        """The statements of a text, without the semicolons between them."""
        return statements(text)

    def function(
        self,
        name: str,
        body: str,
        *,
        parameters: Iterable[Mapping[str, Any]],
        returns: str,
        kind: str = "scalar",
        volatility: str = "",
    ) -> sql_functions.FunctionView:
        """The stored form of a SQL function, checked, not stored yet. Error: FUNCTION_INVALID."""
        at = self._named(name).checked()
        known = tuple(Parameter(**parameter) for parameter in parameters)
        function = Function(str(at), kind, known, returns, body, volatility).checked()
        whole = replace(function, body=expanded(self._warehouse.sessions.main, body))
        view = sql_functions.view_of(at).sql
        return sql_functions.FunctionView(
            view, sql_functions.PROPERTY, function.to_json(), whole.sample
        )

    # -- tables --------------------------------------------------------------------------------

    def staged(self, name: str) -> bool:
        """Whether the open epoch has an unpublished version of the table."""
        return self._current.staged(self._named(name)) is not None

    def configuration(self, name: str) -> dict[str, Any] | None:
        """The `refresh_mode`, `properties` and `changelog` of a registered view; else None."""
        job = self._job(name)
        return configuration_of(job) if job is not None else None

    def tables_of(self, unique_ids: Collection[str]) -> frozenset[str]:
        """The registered tables that the models with these dbt ids maintain."""
        jobs = self._current.jobs().items()
        return frozenset(table for table, job in jobs if job.unique_id in unique_ids)

    def maintenance_summary(self, name: str) -> str:
        """How a registered view is kept up to date, in one line ('' when it is not a view)."""
        job = self._job(name)
        return plan_of(job).summary if job is not None else ""

    def state_summary(self, name: str) -> str:
        """The state tables that a registered view reads, with their sizes ('': none)."""
        job = self._job(name)
        return self._states.summary(job) if job is not None else ""

    def retention_summary(self, name: str) -> str:
        """How long a registered view keeps state, and since which barrier it differs from its
        query because of that ('' when no state expires)."""
        job = self._job(name)
        plan = plan_of(job) if job is not None else None
        if job is None or plan is None or not plan.ttls:
            return ""
        version = self._warehouse.store.latest(job.table)
        since = version.stats.get(APPROXIMATE) if version is not None else None
        approximate = f"approximate since barrier {since}" if since is not None else ""
        return "; ".join(filter(None, [plan.remembers, approximate]))

    def keep_comments(
        self, name: str, comment: str | None, columns: Mapping[str, str]
    ) -> list[str]:
        """Set the comments of a published Iceberg table and its columns, where they differ.

        `comment` None keeps the table's own. Returns the columns that the table does not have.
        """
        return comments.keep(self._warehouse.sessions.main, self._named(name), comment, columns)

    def _named(self, name: str) -> TableName:
        return TableName.parse(name, self._warehouse.catalog)

    def _job(self, name: str) -> Job | None:
        return self._current.jobs().get(str(self._named(name)))
