"""`Engine`, the facade of the public Python API."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, Row, SparkSession

from dbt_streamsql.compiler.wide.branches import Branch
from dbt_streamsql.engine.build import EngineParts, parts_of
from dbt_streamsql.engine.options import (
    EngineOptions,
    EventTime,
    StreamSource,
    TableOptions,
    Upsert,
    ViewOptions,
    WideOptions,
    values_of,
)
from dbt_streamsql.engine.reads.consistent_reads import Reader
from dbt_streamsql.engine.store_recovery import RecoveryReport
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore
from dbt_streamsql.meta.model.addresses import STORE_FILE, in_file
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.document import PlanDocument
from dbt_streamsql.runtime.core.epoch_state import Warehouse
from dbt_streamsql.runtime.deliver.deliver import Delivered
from dbt_streamsql.runtime.publish.plain_tables import Build
from dbt_streamsql.runtime.report import Report, TableReport
from dbt_streamsql.runtime.revise.revision_plan import Mode, RevisionPlan
from dbt_streamsql.runtime.spark.session import embedded
from dbt_streamsql.runtime.upkeep.garbage_collection import Garbage
from dbt_streamsql.storage.conf import warehouse_of


class Engine:
    """A warehouse of maintained tables. Thread-safe; `close` it when done.

    Its parts do the work: `epochs`, `tables`, `sinks`, `queries`, `maintenance`, `revisions`.
    The methods here are shorthands for theirs; they keep no state.
    """

    def __init__(self, parts: EngineParts, *, owns_spark: bool = False) -> None:
        """`owns_spark`: Spark ends with this engine."""
        self._parts = parts
        self._owns_spark = owns_spark
        self.epochs = parts.epochs
        self.tables = parts.tables
        self.sinks = parts.sinks
        self.queries = parts.queries
        self.maintenance = parts.maintenance
        self.revisions = parts.revisions
        self.adapter_api = parts.adapter_api

    @classmethod
    def open(
        cls,
        warehouse: str | Path | None = None,
        *,
        spark: SparkSession | None = None,
        catalog: str = "lake",
        meta: str | None = None,
        options: EngineOptions = EngineOptions(),
        **overrides: Any,
    ) -> Engine:
        """Open a warehouse folder, or the one of the catalog of `spark`.

        `meta` is the SQLAlchemy URL of MetaService's store (default: SQLite in the warehouse), or
        the address of a MetaService, `http://127.0.0.1:<port>` or `https://…`. `overrides` are
        fields of `EngineOptions` by name.
        Errors: CONFIG_INVALID, JAVA_MISSING, JAR_UNAVAILABLE, CONNECTION, META_UNREACHABLE,
        META_VERSION, META_DENIED.
        """
        options = replace(options, **overrides)
        folder = str(Path(warehouse).resolve()) if warehouse is not None else ""
        owns = spark is None and SparkContext._active_spark_context is None  # noqa: SLF001
        session = spark or embedded(folder or str(Path("warehouse").resolve()), catalog)
        if not folder:
            folder = warehouse_of(session, catalog)
        return cls(parts_of(session, catalog, meta or _store_in(folder), options), owns_spark=owns)

    @property
    def spark(self) -> SparkSession:
        """The session of the engine."""
        return self._parts.warehouse.sessions.main

    @property
    def catalog(self) -> str:
        """The catalog of the maintained tables."""
        return self._parts.warehouse.catalog

    @property
    def store(self) -> MetaStore:
        """What MetaService knows of this warehouse: definitions, barriers, versions, leases."""
        return self._parts.warehouse.store

    @property
    def warehouse(self) -> Warehouse:
        """What all parts of this engine share. For tools and tests that inspect it: it may
        change in the next release."""
        return self._parts.warehouse

    def close(self) -> None:
        """Abort an open epoch and disconnect from the store; stop Spark if it was started here."""
        self.epochs.abort()
        self._parts.reads.close()
        self.store.close()
        if self._owns_spark:
            self.spark.stop()

    # -- tables --------------------------------------------------------------------------------

    def create_materialized_view(self, name: str, sql: str, **config: Any) -> TableReport:
        """`TableDefiner.create_materialized_view`; `config`: the fields of `ViewOptions` and
        `TableOptions`."""
        values = values_of(config, ViewOptions, TableOptions)
        return self.tables.create_materialized_view(name, sql, *values)

    def create_partial_update(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        branches: Sequence[Branch | Sequence[Any]] | str,
        **config: Any,
    ) -> TableReport:
        """`TableDefiner.create_partial_update`; `config`: the fields of `WideOptions`,
        `ViewOptions` and `TableOptions`."""
        wide, view, options = values_of(config, WideOptions, ViewOptions, TableOptions)
        return self.tables.create_partial_update(
            name, key=key, branches=branches, wide=wide, view=view, options=options
        )

    def create_streaming_table(
        self, name: str, sql: str, *, stream: str, source: Mapping[str, Any], **config: Any
    ) -> TableReport:
        """`TableDefiner.create_streaming_table`; `config`: the other fields of `StreamSource`, and
        those of `Upsert`, `EventTime` and `TableOptions`."""
        config |= {"stream": stream, "source": source}
        values = values_of(config, StreamSource, Upsert, EventTime, TableOptions)
        return self.tables.create_streaming_table(name, sql, *values)

    def create_table_as(
        self, build: Build, *, spark: SparkSession | None = None, atomic: bool = True
    ) -> bool:
        """`TableDefiner.create_table_as`."""
        return self.tables.create_table_as(build, spark=spark, atomic=atomic)

    def compile(self, sql: str, *, into: str = "", **config: Any) -> CompiledPlan:
        """`TableDefiner.compile`; `config`: the fields of `ViewOptions`."""
        return self.tables.compile(sql, *values_of(config, ViewOptions), into=into)

    def execute(self, plan: PlanDocument | str, *, into: str = "") -> TableReport:
        """`TableDefiner.execute`."""
        return self.tables.execute(plan, into=into)

    def drop(self, name: str, *, keep_table: bool = False) -> None:
        """`TableDefiner.drop`."""
        self.tables.drop(name, keep_table=keep_table)

    def create_sink(self, name: str, sql: str, **config: Any) -> Delivered:
        """`SinkManager.create`."""
        return self.sinks.create(name, sql, **config)

    def drop_sink(self, name: str) -> None:
        """`SinkManager.drop`."""
        self.sinks.drop(name)

    # -- epochs --------------------------------------------------------------------------------

    def begin(self) -> int:
        """`EpochControl.begin`."""
        return self.epochs.begin()

    def publish(self) -> Report:
        """`EpochControl.publish`."""
        return self.epochs.publish()

    def abort(self) -> None:
        """`EpochControl.abort`."""
        self.epochs.abort()

    def advance(
        self,
        tables: Collection[str] | None = None,
        *,
        keep_going: bool = False,
        leave_out: Collection[str] = (),
        overlap: bool = False,
    ) -> Report:
        """`EpochControl.advance`."""
        return self.epochs.advance(
            tables, keep_going=keep_going, leave_out=leave_out, overlap=overlap
        )

    def revise(
        self, name: str, *, to_barrier: int | None = None, sql: str = "", mode: Mode = "auto"
    ) -> Report:
        """`Revisions.revise`."""
        return self.revisions.revise(name, to_barrier=to_barrier, sql=sql, mode=mode)

    def plan_revision(
        self, name: str, *, to_barrier: int | None = None, sql: str = "", mode: Mode = "auto"
    ) -> RevisionPlan:
        """`Revisions.plan`."""
        return self.revisions.plan(name, to_barrier=to_barrier, sql=sql, mode=mode)

    # -- queries -------------------------------------------------------------------------------

    def sql(
        self,
        text: str,
        consistency: str | None = None,
        barrier: int | None = None,
        max_staleness: float | None = None,
    ) -> DataFrame:
        """`Queries.sql`."""
        return self.queries.sql(text, consistency, barrier, max_staleness)

    def reader(self, consistency: str = "repeatable_read", barrier: int | None = None) -> Reader:
        """`Queries.reader`."""
        return self.queries.reader(consistency, barrier)

    def wait_for(self, barrier: int, seconds: float | None = None) -> int:
        """`Queries.wait_for`."""
        return self.queries.wait_for(barrier, seconds)

    def changelog(
        self, name: str, from_barrier: int, to_barrier: int | None = None, mode: str = "retract"
    ) -> DataFrame:
        """`Queries.changelog`."""
        return self.queries.changelog(name, from_barrier, to_barrier, mode)

    def verify(self, name: str) -> list[Row]:
        """`Queries.verify`."""
        return self.queries.verify(name)

    def lag(self, name: str) -> float:
        """`Queries.lag`."""
        return self.queries.lag(name)

    def views(self) -> frozenset[str]:
        """`Queries.views`."""
        return self.queries.views()

    def knows(self, name: str) -> bool:
        """`Queries.knows`."""
        return self.queries.knows(name)

    def plan(self, name: str) -> CompiledPlan:
        """`Queries.plan`."""
        return self.queries.plan(name)

    def explain(self, name: str) -> str:
        """`Queries.explain`."""
        return self.queries.explain(name)

    # -- maintenance ---------------------------------------------------------------------------

    def sweep(self) -> int:
        """`Maintenance.sweep`."""
        return self.maintenance.sweep()

    def gc(
        self, *, dry_run: bool = False, orphans_older_than: float | str | None = "3 days"
    ) -> Garbage:
        """`Maintenance.gc`."""
        return self.maintenance.gc(dry_run=dry_run, orphans_older_than=orphans_older_than)

    def publish_views(self, schema: str, *, with_schema: bool = False) -> list[str]:
        """`Maintenance.publish_views`."""
        return self.maintenance.publish_views(schema, with_schema=with_schema)

    def stop_views(self, schema: str) -> list[str]:
        """`Maintenance.stop_views`."""
        return self.maintenance.stop_views(schema)

    def rebuild(self, store: str = "", *, dry_run: bool = False) -> RecoveryReport:
        """`Maintenance.rebuild`."""
        return self.maintenance.rebuild(store, dry_run=dry_run)


def _store_in(folder: str) -> str:
    """The address of a store in a warehouse folder, which is created."""
    if not folder or "://" in folder.removeprefix("file://"):
        raise StreamSqlError(
            "CONFIG_INVALID",
            "a warehouse that is not a local folder needs `meta`",
            allowed="an SQLAlchemy URL, such as postgresql+psycopg://host/db",
        )
    path = Path(folder.removeprefix("file:"))
    path.mkdir(parents=True, exist_ok=True)
    return in_file(path / STORE_FILE)
