"""What a query reads: the versions that its own run has staged, or one consistent cut."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from dbt_streamsql.compiler.parsing.names import replace_tables
from dbt_streamsql.compiler.parsing.parse import parse, writes
from dbt_streamsql.engine.reads.current import CurrentEpoch
from dbt_streamsql.engine.reads.spark_catalog import SparkCatalog
from dbt_streamsql.engine.reads.user_sql import has_own_tables, written_out
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import (
    Consistency,
    Cut,
    Job,
    Lease,
    Seen,
    check_level,
)
from dbt_streamsql.meta.inspect.consistent_cut import cut
from dbt_streamsql.meta.model.stored_definition import definition_of
from dbt_streamsql.plan.algebra.catalog import TableInfo
from dbt_streamsql.plan.algebra.schema import Column, visible
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.core.epoch_state import EpochState, Warehouse, readable
from dbt_streamsql.runtime.reads import staleness
from dbt_streamsql.runtime.reads.lease_keeper import LeaseKeeper
from dbt_streamsql.runtime.reads.published_views import CURRENT
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.iceberg import metadata, staging
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.inputs import delta_log, inputs

if TYPE_CHECKING:
    from typing_extensions import Self

Replacement = Callable[[TableName], str | None]
Earlier = Callable[[int, Collection[str]], object]
"""Called with a barrier, and the tables that a query reads as of it but have changed since."""
Hold = Callable[[int], object]
"""Leases one more barrier that a query reads, until its reader is closed."""


def _not_held(barrier: int) -> None:
    """Levels other than repeatable_read hold nothing."""


class ConsistentReads:
    """Rewrites the queries of one engine to read specific versions."""

    def __init__(
        self,
        warehouse: Warehouse,
        known: SparkCatalog,
        consistency: str,
        expanded: Callable[[str], str],
    ) -> None:
        """`consistency` is the default level of queries, `expanded` expands the syntax that only
        the engine understands. Error: CONFIG_INVALID."""
        self.consistency = check_level(consistency)
        self._warehouse = warehouse
        self._known = known
        self._expanded = expanded
        self._leasing = LeaseKeeper(warehouse.store)
        self._leased: dict[int, Lease] = {}

    def close(self) -> None:
        """Release the leases."""
        self._leasing.close()

    # -- what a query reads --------------------------------------------------------------------

    def at(
        self,
        asked: str,
        consistency: str | None = None,
        barrier: int | None = None,
        max_staleness: float | None = None,
        beside: Collection[str] = (),
        earlier: Earlier | None = None,
    ) -> str:
        """A query over one cut.

        `max_staleness`: maximum age in seconds of the oldest change that is not in the cut.
        `beside`: tables that other queries read at the same barrier.
        Errors: CONFIG_INVALID, CONSISTENCY_UNAVAILABLE, META_CONFLICT.
        """
        level = check_level(consistency or self.consistency)
        hold: Hold = _not_held
        if level == "repeatable_read":
            barrier, hold = self._held(barrier), self._held
        return self._over(asked, level, barrier, max_staleness, beside, hold, earlier)

    def at_barrier(self, asked: str, barrier: int, hold: Hold) -> str:
        """A query over the versions of a barrier that is leased; `hold` leases further ones."""
        return self._over(asked, "repeatable_read", barrier, hold=hold)

    def run(self, text: str) -> DataFrame:
        """The result of a rewritten query."""
        return self._warehouse.sessions.main.sql(text)

    def reader(self, consistency: str, barrier: int | None) -> Reader:
        """A reader that sees the same barrier until it is closed."""
        if check_level(consistency) != "repeatable_read":
            raise StreamSqlError(
                "CONFIG_INVALID",
                "a reader supports only one consistency level",
                given=consistency,
                allowed="repeatable_read",
                hint="use Engine.sql for the other levels",
            )
        leasing = self._leasing
        return Reader(self, leasing, leasing.take(barrier) if barrier else leasing.newest())

    def in_run(self, asked: str, epoch: EpochState) -> str:
        """A query over what the open epoch has staged, and the roots as it has pinned them.

        A root by itself is read in its current version.
        """
        sql = self._expanded(asked)
        views = {*epoch.staged, *epoch.jobs}
        if self._left_to_spark(sql, views):
            return sql
        named = self._named(sql, {*views, *epoch.pins})
        beside_views = any(table in epoch.jobs for table in named)

        def current(name: TableName) -> str | None:
            table, job = str(name), epoch.jobs.get(str(name))
            staged = epoch.staged.get(table)
            if staged is not None:
                return readable(job, inputs.version(staged.at, staged.snapshot))
            if job is not None:
                return _visible(job, name)
            pinned = epoch.pins.get(table) if beside_views else None
            if pinned is None:
                return self._of_others(name)
            text = inputs.version(name, pinned.snapshot, pinned.meta)
            return readable(None, text, pinned.meta)

        return written_out(self._warehouse, asked, self.rewritten(sql, current), epoch)

    def visible(self, sql: str, jobs: Mapping[str, Job]) -> str:
        """The query without the engine's own columns, pinned to no version: for DDL."""

        def current(name: TableName) -> str | None:
            return _visible(jobs.get(str(name)), name)

        if not _can_name(sql, jobs):
            return sql
        return replace_tables(sql, current, self._warehouse.catalog)

    def typed(self, asked: str, epoch: CurrentEpoch) -> str:
        """A query with the columns and types of `at`'s, or in an open epoch of `in_run`'s.

        Without one, pinned to no version: MetaService is not asked, and SQL views
        are left to Spark."""
        if epoch.epoch is not None:
            return self.in_run(asked, epoch.epoch.state)
        sql, jobs = self._expanded(asked), self._warehouse.store.jobs()
        if not jobs:
            return sql

        @cache
        def current(name: TableName) -> str | None:
            job = jobs.get(str(name))
            return _visible(job, name) if job is not None else self._of_others(name)

        return written_out(
            self._warehouse, asked, replace_tables(sql, current, self._warehouse.catalog)
        )

    def rewritten(self, sql: str, replacement: Replacement) -> str:
        """The query's own text with tables replaced, including those that its SQL views read."""

        def inlined(name: TableName) -> str | None:
            direct = replacement(name)
            if direct is not None:
                return direct
            view = self._view(name)
            if view is None:
                return None
            read: list[str] = []

            def noted(inner: TableName) -> str:
                found = inlined(inner)
                read.extend([found] if found is not None else [])
                # Inside another text, a short name would resolve to another table.
                return found or inner.sql

            text = replace_tables(view.view_sql, noted, view.view_catalog, view.view_schema)
            columns = ", ".join(quote(column.name) for column in view.columns)
            return f"(SELECT * FROM ({text}) AS _v({columns}))" if read else None

        return replace_tables(sql, inlined, self._warehouse.catalog)

    # -- inside --------------------------------------------------------------------------------

    def _over(
        self,
        asked: str,
        level: Consistency,
        barrier: int | None,
        max_staleness: float | None = None,
        beside: Collection[str] = (),
        hold: Hold = _not_held,
        earlier: Earlier | None = None,
    ) -> str:
        sql, store = self._expanded(asked), self._warehouse.store
        jobs = {*store.jobs(), *store.provisional_jobs()}
        if not jobs:
            return written_out(self._warehouse, asked, sql)
        views = {*jobs, *store.latest_all()}
        if self._left_to_spark(sql, views):
            return sql
        known = {*views, *store.outside_tables()}
        named = self._named(sql, known)
        if not named & jobs and writes(sql):
            # Its other inputs may be what the statement before it has written.
            return written_out(self._warehouse, asked, sql)
        found = cut(store, level, named.union(beside), barrier)
        if max_staleness is not None:
            self._demand_fresh(found, max_staleness)
        if earlier is not None and (changed := self._changed_since(found)):
            earlier(found.barrier, changed)
        # Where a table lags behind, a barrier before the held one is read.
        for other in found.barriers:
            if other != barrier:
                hold(other)

        def chosen(name: TableName) -> str | None:
            seen = found.tables.get(str(name))
            if seen is None:
                return self._of_others(name)
            meta = self._demand_there(name, seen, found.barrier)
            return self.shown(inputs.version(self._where(name, seen), seen.snapshot, meta))

        return written_out(self._warehouse, asked, self.rewritten(sql, chosen))

    @staticmethod
    def _left_to_spark(sql: str, views: Collection[str]) -> bool:
        """Whether a query is outside our grammar and names none of our views."""
        if _can_name(sql, views) or has_own_tables(sql):
            return False
        try:
            parse(sql)
        except StreamSqlError:
            return True
        return False

    def shown(self, text: str) -> str:
        """A version without the engine's own columns: it may have another definition."""
        fields = self._warehouse.sessions.main.sql(f"SELECT * FROM {text}").schema
        columns = tuple(Column(f.name, type_text(f.dataType), f.nullable) for f in fields)
        shown = visible(columns)
        names = ", ".join(quote(column.name) for column in shown)
        return text if shown == columns else f"(SELECT {names} FROM {text})"

    def _of_others(self, name: TableName) -> str | None:
        """A table of another boundary without the engine's own columns; None for any other."""
        if name.catalog != self._warehouse.catalog:
            return None
        try:
            # An Iceberg table, as all of ours are: other formats need no lookup.
            meta = metadata.load(self._warehouse.sessions.main, name)
        except (StreamSqlError, PySparkException):
            return None  # Spark gives a better error when it runs the query
        shown = readable(None, name.sql, meta)
        return None if shown == name.sql else shown

    def _demand_there(self, name: TableName, seen: Seen, barrier: int) -> Metadata | None:
        """The versions of a table that must still contain this one, if a lookup is needed."""
        if str(name) != seen.table or seen.snapshot is None:
            return None
        meta = inputs.find(self._warehouse.sessions.main, name)
        listed = meta is not None and meta.format != delta_log.FORMAT
        if meta is not None and listed and seen.snapshot not in meta.snapshots:
            raise StreamSqlError(
                "CONSISTENCY_UNAVAILABLE",
                f"the version of {name} at barrier {barrier} is gone",
                given="the table was replaced, its snapshots were expired, or files were removed",
                hint="run the views that read it (`dbt run`, or Engine.advance()), "
                "or read with consistency read_uncommitted",
            )
        return meta

    def _where(self, name: TableName, seen: Seen) -> TableName:
        """The location of a version: a staged table may just have been published by a rename."""
        at = TableName.parse(seen.table)
        here = at == name or staging.exists(self._warehouse.sessions.main, at)
        return at if here else name

    def _named(self, sql: str, of: Collection[str]) -> set[str]:
        """The tables in `of` that the query names, directly or through SQL views."""
        found: set[str] = set()

        def noted(name: TableName) -> str | None:
            if str(name) not in of:
                return None
            found.add(str(name))
            return name.sql

        self.rewritten(sql, noted)
        return found

    def _view(self, name: TableName) -> TableInfo | None:
        try:
            found = self._known.table(name)
        except StreamSqlError:
            return None  # Spark gives a better error when it runs the query
        # A published view names its own versions.
        return found if found.view_sql and CURRENT not in found.view_sql else None

    def _held(self, barrier: int | None) -> int | None:
        """The barrier for repeated reads, leased until this engine closes; None if none."""
        if barrier is None and self._warehouse.store.last_committed() == 0:
            return None
        if barrier not in self._leased:
            lease = self._leasing.take(barrier) if barrier else self._leasing.newest()
            self._leased.setdefault(lease.barrier, lease)
            return lease.barrier
        self._leasing.check(self._leased[barrier])
        return barrier

    def lag(self, name: TableName) -> float:
        """The age in seconds of the oldest change not in the table; 0: it is up to date."""
        found = cut(self._warehouse.store, "repeatable_read", {str(name)})
        return max(self._ages(found).values(), default=0.0)

    def _ages(self, found: Cut) -> dict[str, float]:
        return {
            **staleness.of_roots(self._warehouse, found.roots),
            **staleness.of_streams(self._warehouse, found.tables, found.barrier),
        }

    def _changed_since(self, found: Cut) -> set[str]:
        """The tables of a cut that have newer rows than the cut."""
        latest = self._warehouse.store.latest_all()
        outside = {name: at.snapshot for name, at in found.tables.items() if name not in latest}
        newer = {
            name
            for name, at in found.tables.items()
            if name in latest
            and latest[name].barrier > found.barrier
            and latest[name].snapshot != at.snapshot
        }
        return newer.union(staleness.of_roots(self._warehouse, outside))

    def _demand_fresh(self, found: Cut, seconds: float) -> None:
        late = {root: age for root, age in self._ages(found).items() if age > seconds}
        if late:
            told = ", ".join(f"{root} ({age:.0f} s)" for root, age in sorted(late.items()))
            raise StreamSqlError(
                "CONSISTENCY_UNAVAILABLE",
                "the tables are staler than the query allows",
                given=f"changes that are not yet applied at barrier {found.barrier}: {told}",
                allowed=f"a staleness of at most {seconds:g} s",
                hint="bring the views up to date (`dbt run`, or Engine.advance()), "
                "or raise max_staleness",
            )


class Reader:
    """Queries that all see the same committed barrier, for any length of time; `close` it.

    Errors: LEASE_LOST when the process was suspended for longer than a lease lasts.
    """

    def __init__(self, reads: ConsistentReads, leasing: LeaseKeeper, lease: Lease) -> None:
        self._reads, self._leasing = reads, leasing
        self.barrier = lease.barrier
        self._leases = {lease.barrier: lease}

    def sql(self, text: str) -> DataFrame:
        """A query over the versions of the reader's barrier."""
        return self._reads.run(self.rewrite(text))

    def rewrite(self, text: str) -> str:
        """The query as `sql` would run it."""
        for lease in list(self._leases.values()):
            self._leasing.check(lease)
        return self._reads.at_barrier(text, self.barrier, self._hold)

    def close(self) -> None:
        """Release the versions, which may then be removed."""
        while self._leases:
            _, lease = self._leases.popitem()
            self._leasing.give_back(lease)

    def _hold(self, barrier: int) -> None:
        if barrier not in self._leases:
            self._leases[barrier] = self._leasing.take(barrier)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _visible(job: Job | None, name: TableName) -> str | None:
    return readable(job, name.sql) if job is not None and definition_of(job).hidden else None


def _can_name(sql: str, tables: Iterable[str]) -> bool:
    """Whether a text can name one of the tables; if not, it need not be parsed."""
    text = sql.lower()
    return any(table.rpartition(".")[2].lower() in text for table in tables)
