"""The tables that an engine maintains: views, wide tables, streaming tables; defined, redefined,
dropped. Also plain tables, which are built once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.compiler.plan_file import check_fit, document_of
from dbt_streamsql.compiler.wide.branches import Branch, wide_of
from dbt_streamsql.compiler.wide.statement_set import branches_of
from dbt_streamsql.compiler.wide.wide_query import wide_query
from dbt_streamsql.durations import event_times
from dbt_streamsql.engine.definitions import Definitions, configuration_of
from dbt_streamsql.engine.epochs import EpochControl
from dbt_streamsql.engine.options import (
    EventTime,
    StreamSource,
    TableOptions,
    Upsert,
    ViewOptions,
    WideOptions,
)
from dbt_streamsql.engine.reads.current import CurrentEpoch
from dbt_streamsql.engine.reads.spark_catalog import SparkCatalog
from dbt_streamsql.engine.reads.user_sql import expanded_to_store
from dbt_streamsql.engine.state_tables import StateTables
from dbt_streamsql.errors import Place
from dbt_streamsql.meta.model.stored_definition import StoredDefinition, definition_of
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.stored_part import State, state_of
from dbt_streamsql.plan.definition.table_key import keys_of
from dbt_streamsql.plan.document import PlanDocument
from dbt_streamsql.plan.state import StateTtl
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.changelog import changelog_table
from dbt_streamsql.runtime.core import definition_property
from dbt_streamsql.runtime.core.epoch_state import Warehouse, registered
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.core.storage_errors import translate_storage_errors
from dbt_streamsql.runtime.ingest.stream_definition import Stream, forget, side_tables
from dbt_streamsql.runtime.publish import plain_tables, publish
from dbt_streamsql.runtime.publish.plain_tables import Build
from dbt_streamsql.runtime.report import TableReport, reports_of
from dbt_streamsql.state_ttl import state_ttl_of
from dbt_streamsql.storage.iceberg import staging


class TableDefiner:
    """Defines the tables of a warehouse. A definition joins the open epoch, otherwise it is its
    own epoch."""

    def __init__(
        self,
        warehouse: Warehouse,
        known: SparkCatalog,
        current: CurrentEpoch,
        definitions: Definitions,
        epochs: EpochControl,
        states: StateTables,
    ) -> None:
        self._warehouse = warehouse
        self.known = known
        self._current = current
        self.definitions = definitions
        self._epochs = epochs
        self._states = states

    @property
    def _spark(self) -> SparkSession:
        return self._warehouse.sessions.main

    def compile(
        self,
        sql: str,
        view: ViewOptions = ViewOptions(),
        *,
        into: str = "",
    ) -> CompiledPlan:
        """How a query would be maintained, as the table `into`; see `CompiledPlan`. Its `to_json`
        is the plan file.

        With a `plan` file, returns its plan. Error: PLAN_MISMATCH when it does not fit.
        """
        place, mode = Place(into), view.refresh_mode
        ttl, state = _ttl(view, sql, place), _state(view, place)
        keys = keys_of(view.keys, self._warehouse.catalog)
        sql = self._stored(sql)
        current = self._current.jobs().get(into)
        made = self.definitions.known(
            current, sql, mode, ttl, state, keys, anew=True
        ) or compile_view(
            *(sql, self.known),
            table=into,
            refresh_mode=mode,
            state_ttl=ttl,
            place=self._states.known(state),
            keys=keys,
        )
        document = document_of(made, self.known, self._states.chosen(made, state, keys))
        if view.plan is not None:
            check_fit(view.plan, document, place)
        return replace(made, document=document)

    def validate_plan(self, plan: PlanDocument) -> None:
        """Check a plan file: it must be the plan of its query over the current tables.

        Errors: PLAN_MISMATCH, and those of `compile`.
        """
        mode = "full" if plan.mode == "full" else "auto"
        self.compile(plan.sql, ViewOptions(mode, plan=plan), into=plan.table)

    def execute(self, plan: PlanDocument | str, *, into: str = "") -> TableReport:
        """Run a plan file (FLIP-292, EXECUTE PLAN): the view is redefined by the file, and is
        brought up to date.

        `plan`: the file, or its text. `into`: a different table than the file's. An existing view
        keeps its other options. Joins the open epoch (see `begin`), otherwise it is its own epoch.

        Error: PLAN_MISMATCH, with the differences, when the plan is not that of its query over
        the current tables, or was written by an unknown version.
        """
        document = PlanDocument.from_json(plan) if isinstance(plan, str) else plan
        name = str(TableName.parse(into or document.table, self._warehouse.catalog))
        job = self._current.jobs().get(name)
        known = configuration_of(job) if job is not None else {}
        mode = known.pop("refresh_mode", "auto")
        if (mode == "full") != (document.mode == "full"):
            mode = "full" if document.mode == "full" else "auto"
        table = TableOptions(properties=known.pop("properties", {}))
        keys = definition_of(job).keys if job is not None else ()
        view = ViewOptions(mode, plan=document, keys=keys, **known)
        return self.create_materialized_view(name, document.sql, view, table)

    @translate_storage_errors
    def create_materialized_view(
        self,
        name: str,
        sql: str,
        view: ViewOptions = ViewOptions(),
        options: TableOptions = TableOptions(),
    ) -> TableReport:
        """Define a view, or redefine it, and bring it up to date.

        `name`: `schema.table`, or with a catalog. `sql`: one SELECT over tables by name, whose
        columns, with their names and Spark types, are those of the view. The view then equals its
        query over its inputs at each barrier: R[t] = q(A[t]) (seed 004). A new definition keeps
        the rows that it can. Joins the open epoch, otherwise it is its own epoch.
        Errors: SQL_INVALID, INCREMENTAL_IMPOSSIBLE (`refresh_mode: incremental_strict`),
        TABLE_MISSING, CYCLE, RESERVED_NAME, CONFIG_INVALID, STATE_TTL_INVALID, TABLE_EXISTS,
        DUPLICATE_WRITER.
        """
        table = self._named(name).checked()
        place = Place(options.unique_id or str(table))
        ttl, state = _ttl(view, sql, place), _state(view, place)
        keys = keys_of(view.keys, self._warehouse.catalog)
        sql = self._stored(sql)
        # Inside: what happens to the rows depends on the definition that made them, and another
        # run may end only now.
        with self._epochs.joined() as epoch:
            current = epoch.state.jobs.get(str(table))
            job, made, change = self.definitions.define(
                *(current, str(table), sql, view.refresh_mode),
                options.unique_id,
                StoredDefinition(
                    options.properties, changelog=view.changelog, state=state, keys=keys
                ),
                state_ttl=ttl,
                anew=options.full_refresh,
                place=self._states.defined(table, state, keys, epoch),
            )
            if view.plan is not None:
                stored = self._states.chosen(made, state, keys)
                check_fit(view.plan, document_of(made, self.known, stored), place)
            self._set_properties(table, definition_of(job).properties)
            asked = "full refresh requested" if options.full_refresh else ""
            version = epoch.define(job, made, change, asked)
        return reports_of([version], version.barrier)[job.table]

    @translate_storage_errors
    def create_partial_update(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        branches: Sequence[Branch | Sequence[Any]] | str,
        wide: WideOptions = WideOptions(),
        view: ViewOptions = ViewOptions(),
        options: TableOptions = TableOptions(),
    ) -> TableReport:
        """Define or redefine a wide table that several branches write, each its own columns, and
        bring it up to date.

        `branches`: (query, columns[, name]), where the query gives the `key` first and then the
        columns; or a text of `INSERT INTO … (columns) SELECT …` statements. `b.c` is the field c
        of the column b.
        Errors: PARTIAL_UPDATE_INVALID, PARTIAL_UPDATE_KEY, and those of a materialized view.
        """
        table = self._named(name).checked()
        place = Place(options.unique_id or str(table))
        given = branches_of(branches, table, place) if isinstance(branches, str) else branches
        found = wide_of(key, given, place=place, **vars(wide))
        stored = tuple(replace(each, sql=self._stored(each.sql)) for each in found.branches)
        sql = wide_query(replace(found, branches=stored), self.known, place)
        return self.create_materialized_view(name, sql, view, options)

    @translate_storage_errors
    def create_streaming_table(
        self,
        name: str,
        sql: str,
        source: StreamSource,
        upsert: Upsert = Upsert(),
        times: EventTime = EventTime(),
        options: TableOptions = TableOptions(),
    ) -> TableReport:
        """Define a table that ingests a stream's records, each once, and ingest those available.

        Errors: CONFIG_INVALID, SQL_UNSUPPORTED, BAD_RECORD, STREAM_LOST.
        """
        table = self._named(name).checked()
        wanted = Stream(
            name=str(self._named(source.stream)),
            spec=dict(source.source),
            connection=source.connection,
            key=tuple(upsert.key),
            sequence_by=upsert.sequence_by,
            delete_when=upsert.delete_when,
            truncate_when=upsert.truncate_when,
            leave_out=tuple(upsert.leave_out),
            on_error=source.on_error,
            on_schema_change=source.on_schema_change,
            **event_times(times.event_time, times.lateness, times.late_data, times.idle_after),
        )
        sql = self._stored(sql)
        with self._epochs.joined() as epoch:
            current = epoch.state.jobs.get(str(table))
            job, plan, change = self.definitions.define_stream(
                None if options.full_refresh else current,
                *(str(table), sql, wanted, self._warehouse.connections, options.unique_id),
                options.properties,
            )
            self._set_properties(table, definition_of(job).properties)
            again = options.full_refresh and current is not None
            version = epoch.define(job, plan, change, "full refresh requested" if again else "")
        return reports_of([version], version.barrier)[job.table]

    @translate_storage_errors
    def create_table_as(
        self, build: Build, *, spark: SparkSession | None = None, atomic: bool = True
    ) -> bool:
        """Build a plain table: staged, checked, and published in one step, or not at all.

        `spark` is the session that has the query's temporary views. False when the table already
        exists and the purpose is CREATE_TABLE_AS_IF_NOT_EXISTS. `atomic=False`: the table is
        created first and stays when its build fails.
        Errors: ATOMIC_UNSUPPORTED, CONSTRAINT_VIOLATED, TABLE_EXISTS.
        """
        session = spark or self._spark
        if not atomic:
            return plain_tables.run_plainly(session, build)
        self._epochs.sweep_once()
        return plain_tables.run(self._warehouse, session, build)

    @translate_storage_errors
    def drop(self, name: str, *, keep_table: bool = False) -> None:
        """Remove a view and drop its table; DEFINITION_MISSING when it is not a view.

        `keep_table`: the table's data stays, as a plain table.
        """
        table, store, spark = str(self._named(name)), self._warehouse.store, self._spark
        registered(store.jobs(), table)
        with self._epochs.lock:
            opened = self._epochs.opened
            fence = opened.state.fence if opened is not None else store.acquire(wait=True)
            try:
                if opened is None:
                    publish.recover(self._warehouse, fence)
                else:
                    opened.settle()
                job = store.jobs()[table]
                beside = [other.table for other in side_tables(job)]
                if keep_table:
                    for each in (table, *beside):
                        definition_property.forget(spark, TableName.parse(each))
                else:
                    # A runner that has lost its lock unnoticed must not drop it.
                    store.newest_barrier(fence)
                    with failpoint("view.drop"):
                        for each in (table, *beside):
                            staging.drop_table(spark, TableName.parse(each))
                with failpoint("view.forget"):
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

    # -- inside ------------------------------------------------------------------------------

    def _named(self, name: str) -> TableName:
        return TableName.parse(name, self._warehouse.catalog)

    def _stored(self, sql: str) -> str:
        return expanded_to_store(self._spark, sql)

    def _set_properties(self, table: TableName, wanted: Mapping[str, str]) -> None:
        """Update the properties of an existing view to its new definition."""
        job = self._current.jobs().get(str(table))
        if job is None:
            return
        known = definition_of(job).properties
        if known != wanted:
            gone = [key for key in known if key not in wanted]
            staging.set_properties(self._spark, table, wanted, gone)


def _state(view: ViewOptions, place: Place) -> State:
    """Which parts are stored: a plan file that says so takes precedence."""
    stored = view.plan.stored if view.plan is not None else None
    return state_of(view.state, place) if stored is None else stored


def _ttl(view: ViewOptions, sql: str, place: Place) -> StateTtl | None:
    """How long state is kept: a plan file with TTLs takes precedence."""
    ids = view.plan.ttls if view.plan is not None else None
    return state_ttl_of(view.state_ttl, sql, place) if ids is None else StateTtl.of_ids(ids)
