"""The definitions of an engine: views, wide tables, streaming tables, made or made anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dbt_streamsql.compiler.branches import Branch, wide_of
from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.compiler.document import check_fit, document_of
from dbt_streamsql.compiler.statement_set import branches_of
from dbt_streamsql.compiler.wide import wide_query
from dbt_streamsql.definitions import check_config
from dbt_streamsql.durations import event_times
from dbt_streamsql.errors import Place
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.document import PlanDocument
from dbt_streamsql.plan.state import StateTtl
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.refusals import telling
from dbt_streamsql.runtime.report import TableReport, reports_of
from dbt_streamsql.runtime.streams import Stream
from dbt_streamsql.sinking import Sinking
from dbt_streamsql.state_ttl import state_ttl_of
from dbt_streamsql.storage.iceberg import staging


class Defining(Sinking):
    """What `Engine` adds for the tables that it maintains."""

    def compile(
        self,
        sql: str,
        *,
        refresh_mode: str = "auto",
        into: str = "",
        state_ttl: object = None,
        plan: PlanDocument | None = None,
        **config: Any,
    ) -> CompiledPlan:
        """How a query would be maintained; see `CompiledPlan`. Its `to_json` is the plan file.

        With a `plan` file it is the plan of that file. Error: PLAN_MISMATCH when it does not fit.
        """
        check_config(config)
        place = Place(into)
        ttl = _ttl(state_ttl, plan, sql, place)
        sql = self._kept(sql)
        current = self._jobs().get(into)
        made = self._definitions.known(current, sql, refresh_mode, ttl, anew=True) or compile_view(
            sql, self._known, table=into, refresh_mode=refresh_mode, state_ttl=ttl
        )
        document = document_of(made, self._known)
        if plan is not None:
            check_fit(plan, document, place)
        return replace(made, document=document)

    def fits(self, plan: PlanDocument) -> None:
        """Check a plan file: it is the plan of its query over the tables as they are.

        Errors: PLAN_MISMATCH, and those of `compile`.
        """
        mode = "full" if plan.mode == "full" else "auto"
        self.compile(plan.sql, into=plan.table, refresh_mode=mode, plan=plan)

    def execute(self, plan: PlanDocument | str, *, into: str = "") -> TableReport:
        """Run a plan file (FLIP-292, EXECUTE PLAN): the view becomes what the file says, and is
        brought up to date.

        `plan`: the file, or its text. `into`: another table than the file's. A view that is there
        keeps its other options. Joins the open epoch (see `begin`), else it is one of its own.

        Error: PLAN_MISMATCH, with the differences, when the plan is not that of its query over
        the tables as they are, or was written by a version that this one does not know.
        """
        document = PlanDocument.from_json(plan) if isinstance(plan, str) else plan
        name = str(TableName.parse(into or document.table, self.catalog))
        known = self.configuration(name) or {}
        mode = known.get("refresh_mode", "auto")
        if (mode == "full") != (document.mode == "full"):
            mode = "full" if document.mode == "full" else "auto"
        known["refresh_mode"] = mode
        return self.create_materialized_view(name, document.sql, plan=document, **known)

    @telling
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
        state_ttl: object = None,
        plan: PlanDocument | None = None,
        **config: Any,
    ) -> TableReport:
        """Define a view, or define it anew, and bring it up to date.

        `full_refresh` recomputes it this once, whatever changed. `properties` are the table's own,
        beside those that the engine needs. `changelog`: keep its changes in `<name>__changelog`.
        `state_ttl`: how long its operators remember, as docs/state_ttl.md says (FLIP-292); a
        `plan` file says it instead, for each of them.

        Joins the open epoch (see `begin`), else it is an epoch of its own.
        """
        check_config(config)
        table = TableName.parse(name, self.catalog).checked()
        place = Place(unique_id or str(table))
        ttl = _ttl(state_ttl, plan, sql, place)
        sql = self._kept(sql)
        # Inside: what becomes of the rows depends on the definition that made them, and another
        # run may end only now.
        with self._in_epoch() as epoch:
            current = epoch.open.jobs.get(str(table))
            job, made, change = self._definitions.define(
                *(current, str(table), sql, refresh_mode, unique_id, properties or {}),
                changelog=changelog,
                state_ttl=ttl,
                anew=full_refresh,
            )
            if plan is not None:
                check_fit(plan, document_of(made, self._known), place)
            self._set_properties(table, job.config["properties"])
            asked = "full refresh requested" if full_refresh else ""
            version = epoch.define(job, made, change, asked)
        return reports_of([version], version.barrier)[job.table]

    @telling
    def create_partial_update(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        branches: Sequence[Branch | Sequence[Any]] | str,
        merge: Mapping[str, str] | None = None,
        sequence_by: str | Mapping[str, Sequence[str]] | None = None,
        precedence: Sequence[str] = (),
        row_lifetime: str = "any",
        reuse_sink: bool = True,
        refresh_mode: str = "auto",
        unique_id: str = "",
        full_refresh: bool = False,
        properties: Mapping[str, str] | None = None,
        changelog: bool = False,
        **config: Any,
    ) -> TableReport:
        """Define a wide table that several branches write, each its own columns, or define it
        anew, and bring it up to date.

        `branches`: (query, columns[, name]), the query giving the `key` first and then the
        columns; or a text of `INSERT INTO … (columns) SELECT …` statements. `b.c` is the field c
        of the column b. A column that several write needs a `merge` function (last_value,
        last_non_null_value, sum, min, max, count, collect, bool_or, listagg), a column of
        `sequence_by` that tells the last one, or the `precedence` of the branches.
        `row_lifetime`: a row is there while `any` branch has its key, or `anchor:<branch>`.
        `reuse_sink`: all branches are written in one commit (FLIP-506), else each in its own.

        Joins the open epoch (see `begin`), else it is an epoch of its own.
        Errors: PARTIAL_UPDATE_INVALID, PARTIAL_UPDATE_KEY, and those of a materialized view.
        """
        table = TableName.parse(name, self.catalog).checked()
        place = Place(unique_id or str(table))
        given = branches_of(branches, table, place) if isinstance(branches, str) else branches
        wide = wide_of(
            key,
            given,
            merge=merge,
            sequence_by=sequence_by,
            precedence=precedence,
            row_lifetime=row_lifetime,
            reuse_sink=reuse_sink,
            place=place,
        )
        kept = tuple(replace(branch, sql=self._kept(branch.sql)) for branch in wide.branches)
        return self.create_materialized_view(
            name,
            wide_query(replace(wide, branches=kept), self._known, place),
            refresh_mode=refresh_mode,
            unique_id=unique_id,
            full_refresh=full_refresh,
            properties=properties,
            changelog=changelog,
            **config,
        )

    @telling
    def create_streaming_table(
        self,
        name: str,
        sql: str,
        *,
        stream: str,
        source: Mapping[str, Any],
        connection: str = "",
        key: Sequence[str] = (),
        sequence_by: str = "",
        delete_when: str = "",
        truncate_when: str = "",
        leave_out: Sequence[str] = (),
        on_error: str = "fail",
        on_schema_change: str = "fail",
        event_time: str = "",
        lateness: float | str | None = None,
        late_data: str = "include_next",
        idle_after: float | str | None = None,
        unique_id: str = "",
        full_refresh: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> TableReport:
        """Define a table that takes the records of a stream, each once, and take those there are.

        `stream` is the name by which `sql` reads it, `source` how it is declared (`connector`,
        `format`, `columns`, `options`; see docs/sources.md), `connection` the name of options that
        the engine was opened with. With a `key` the record of a key with the greatest
        `sequence_by` says what its row is, and that there is none where `delete_when` is true; one
        without key where `truncate_when` is true says so of all keys: expressions over the
        query's columns, of which `leave_out` are not stored.
        `on_error`: fail, or quarantine, which keeps what cannot be read in `<name>__quarantine`.
        `on_schema_change`: what becomes of the table when the query gives other columns, as dbt
        calls it.
        With a `lateness` a barrier holds the records whose `event_time`, an expression, is not
        after the greatest one that was read less the lateness; `late_data` (include_next,
        quarantine) is for those that come later still, and a stream without records for
        `idle_after` (5 minutes unless told, `never`) is not waited for. Both are seconds or texts.
        `full_refresh` reads the stream from its beginning again.

        Joins the open epoch (see `begin`), else it is an epoch of its own.
        Errors: CONFIG_INVALID, SQL_UNSUPPORTED, BAD_RECORD, STREAM_LOST.
        """
        table = TableName.parse(name, self.catalog).checked()
        read = str(TableName.parse(stream, self.catalog))
        wanted = Stream(
            *(read, dict(source), connection, tuple(key), sequence_by, delete_when),
            *(tuple(leave_out), on_error, truncate_when, False, on_schema_change),
            **event_times(event_time, lateness, late_data, idle_after),
        )
        sql = self._kept(sql)
        with self._in_epoch() as epoch:
            current = epoch.open.jobs.get(str(table))
            job, plan, change = self._definitions.define_stream(
                None if full_refresh else current,
                *(str(table), sql, wanted, self._warehouse.connections, unique_id),
                properties or {},
            )
            self._set_properties(table, job.config["properties"])
            asked = "full refresh requested" if full_refresh and current is not None else ""
            version = epoch.define(job, plan, change, asked)
        return reports_of([version], version.barrier)[job.table]

    def _set_properties(self, table: TableName, wanted: Mapping[str, str]) -> None:
        """Bring the properties of a view that exists to what its new definition says."""
        known = self.configuration(str(table))
        if known is None or known["properties"] == wanted:
            return
        gone = [key for key in known["properties"] if key not in wanted]
        staging.set_properties(self.spark, table, wanted, gone)


def _ttl(state_ttl: object, plan: PlanDocument | None, sql: str, place: Place) -> StateTtl | None:
    """How long state is kept: a plan file that says so has the last word."""
    said = plan.ttls if plan is not None else None
    if said is None:
        return state_ttl_of(state_ttl, sql, place)
    return StateTtl.of_ids(said)
