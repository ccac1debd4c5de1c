"""Definitions of views: compiled, stored with everything that the plan depends on, and compiled
again only when some of that has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

from dbt_streamsql.compiler.binding.bind import open_views
from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.compiler.compiler_version import identity
from dbt_streamsql.compiler.redefinition.redefine import redefinition
from dbt_streamsql.compiler.sink_query import compile_sink
from dbt_streamsql.compiler.state.stored_parts import parts_in
from dbt_streamsql.compiler.stream_query import Upserts, compile_stream, timed_columns
from dbt_streamsql.compiler.unsent_values import OPERATION, carrying_of
from dbt_streamsql.connectors.sources.source import Omitting, Source
from dbt_streamsql.engine.reads.spark_catalog import SparkCatalog
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import Job, Sink
from dbt_streamsql.meta.model.stored_definition import (
    StoredDefinition,
    columns_of,
    definition_of,
    known_plan,
    named,
    plan_of,
    stored_sink,
    tree_of,
)
from dbt_streamsql.plan.algebra.catalog import TableInfo
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition import drift
from dbt_streamsql.plan.definition.meaning import differing, meaning
from dbt_streamsql.plan.definition.redefinition import METADATA, SHADOW, Redefinition
from dbt_streamsql.plan.definition.stored_part import PlaceParts, State, nowhere
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.plan.definition.unsent import Carrying
from dbt_streamsql.plan.state import KEPT, StateTtl
from dbt_streamsql.plan.tree_json import node_of
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.deliver import deliver
from dbt_streamsql.runtime.ingest.sequenced import extended
from dbt_streamsql.runtime.ingest.stream_definition import (
    BESIDE,
    Stream,
    check_stream,
    opened,
    stream_of,
)
from dbt_streamsql.state_ttl import as_data, state_ttl_of
from dbt_streamsql.storage.conf import settings_of

_NOT_OF_QUERIES = ("spark.sql.catalog.", "spark.sql.iceberg.", "spark.sql.warehouse.")


class Definitions:
    """Compiles for one Spark session. It stores nothing: definitions are passed as `Job`s."""

    def __init__(self, known: SparkCatalog) -> None:
        self._known = known
        self._identity = ""

    def define(
        self,
        current: Job | None,
        table: str,
        sql: str,
        refresh_mode: str,
        unique_id: str,
        stored: StoredDefinition,
        *,
        state_ttl: StateTtl | None = None,
        anew: bool = False,
        again: bool = False,
        place: PlaceParts = nowhere,
    ) -> tuple[Job, CompiledPlan, Redefinition | None]:
        """The definition of a view, its plan (that of `current`, if still valid), and what happens
        to its rows if the definition is not that of `current`; `anew`: they are recomputed in any
        case.

        `stored` are its options, `place` says where parts of its query are stored; `again`:
        otherwise than `current` has them.
        Errors: those of `compile_view`.
        """
        stored = replace(stored, state_ttl=as_data(state_ttl))
        keys = stored.keys
        before = tree_of(current) if current is not None else None
        known = None
        if not again:
            options = (sql, refresh_mode, state_ttl, stored.state, keys)
            known = self.known(current, *options, anew=anew)
        if current is not None and known is not None:
            ours = definition_of(current)
            stored = replace(stored, hidden=ours.hidden, declined=ours.declined)
            unique_id = unique_id or current.unique_id
            return replace(current, unique_id=unique_id, config=stored.as_config()), known, None
        plan = compile_view(
            *(sql, self._known),
            table=table,
            refresh_mode=refresh_mode,
            model=unique_id,
            state_ttl=state_ttl,
            before=None if anew else before,
            place=place,
            keys=keys,
        )
        unique_id = unique_id or (current.unique_id if current is not None else "")
        job = self._job(plan, refresh_mode, unique_id, stored)
        return job, plan, self._change(current, job, plan) if current is not None else None

    def known(
        self,
        job: Job | None,
        sql: str,
        refresh_mode: str,
        state_ttl: StateTtl | None,
        state: State,
        keys: tuple[TableKey, ...],
        *,
        anew: bool,
    ) -> CompiledPlan | None:
        """The plan of `job`, if compiling this view would produce it again; `anew`: without
        stored rows, which may have expired under an earlier definition."""
        if job is None:
            return None
        options = definition_of(job)
        known = (job.sql, job.refresh_mode, options.state_ttl, options.state, options.keys)
        if known != (sql, refresh_mode, as_data(state_ttl), state, keys):
            return None
        plan = known_plan(job)
        if plan is None or (anew and any(ttl == KEPT for _, ttl in plan.reads)):
            return None
        if anew and state == "auto" and parts_in(plan):
            # What pays is decided again.
            return None
        return plan if self._holds(job) else None

    def define_stream(
        self,
        current: Job | None,
        table: str,
        sql: str,
        stream: Stream,
        connections: Mapping[str, Mapping[str, str]],
        unique_id: str,
        properties: Mapping[str, str],
    ) -> tuple[Job, CompiledPlan, Redefinition | None]:
        """The definition of a streaming table, its plan, and what happens to its columns if they
        change.

        Errors: those of `compile_stream`; CONFIG_INVALID when the stream's declaration is invalid,
        or the table would have other rows, or columns that `on_schema_change` does not allow.
        """
        place = Place(unique_id or table)
        source = opened(stream, connections, place, table)
        stream = replace(stream, whole=getattr(source, "whole", False))
        check_stream(stream, place)
        columns = tuple(Column(*column) for column in source.columns(self._known.spark))
        info = TableInfo(TableName.parse(stream.name), columns, versioned=True)
        text = extended(stream, sql) if stream.key else ""
        upsert = Upserts(stream.key, stream.leave_out, text, stream.whole) if stream.key else None
        plan = compile_stream(sql, info, self._known, table=table, upsert=upsert)
        made, change = plan.columns, None
        if current is not None:
            _refuse_other_rows(stream, stream_of(current), plan, current, place)
            old = columns_of(current.columns)
            columns_now = drift.settled(stream.on_schema_change, old, made, stream.key, place)
            plan = replace(plan, columns=columns_now)
            if reason := drift.describe_drift(old, columns_now):
                change = Redefinition(SHADOW, f"columns changed: {reason}")
        waits: Sequence[Column] = ()
        if stream.by_event_time:
            waits = timed_columns(sql, stream.event_time, info, self._known, table=table)
        stored = StoredDefinition(
            properties,
            hidden=tuple(column.name for column in plan.hidden),
            stream=asdict(stream),
            reads=columns,
            makes=made,
            sequence=plan.hidden[0].type if plan.hidden else "",
            waits=tuple(waits),
            carries=self._carrying(plan, stream, source, info, text),
            compiler=self._compiler,
        )
        job = Job(
            table=table,
            unique_id=unique_id or (current.unique_id if current is not None else ""),
            sql=sql,
            config=stored.as_config(),
            fingerprint=plan.fingerprint,
            plan=stored.as_plan(plan),
            columns=named(plan.columns),
        )
        if current is not None:
            kept = (current.created_barrier, current.table_uuid)
            job = replace(job, created_barrier=kept[0], table_uuid=kept[1])
        return job, plan, change

    def _carrying(
        self, plan: CompiledPlan, stream: Stream, source: Source, info: TableInfo, text: str
    ) -> Carrying | None:
        """How a keyed table handles values that its stream may omit; None for any other
        table."""
        if not stream.key or not isinstance(source, Omitting):
            return None
        found = source.omissions(self._known.spark)
        if found is None:
            return None
        if stream.by_event_time:
            return Carrying(reason="the table has a `lateness`, by which records wait")
        carrying, conditions = carrying_of(
            plan, text, info, self._known, omitted=found.columns, identity=found.identity
        )
        operation = quote(OPERATION)
        for condition in conditions:
            every = "VALUES ('c'), ('r'), ('u')"
            passed = f"SELECT 1 FROM {every} AS s({operation}) WHERE {condition}"
            if len(self._known.spark.sql(passed).collect()) < 3:
                return Carrying(reason=f"the WHERE of the query leaves changes out: {condition}")
        return carrying

    def define_sink(
        self,
        current: Sink | None,
        job: Job,
        sink: Sink,
        connections: Mapping[str, Mapping[str, str]],
        *,
        full_refresh: bool,
    ) -> Sink:
        """The definition of a sink over the table of `job`, with its columns and its fingerprint,
        and the delivery progress of `current`.

        Errors: those of `compile_sink`; CONFIG_INVALID when the target's declaration is invalid,
        or its records would differ from those that it has.
        """
        place = Place(sink.unique_id or sink.name)
        target = deliver.opened(sink, connections)
        info = TableInfo(TableName.parse(job.table), columns_of(job.columns), versioned=True)
        options = stored_sink(sink)
        found = compile_sink(sink.sql, info, self._known, name=sink.name, key=options.key)
        options = replace(options, plain=found.plain)
        sink = replace(sink, config=options.as_config(), columns=named(found.columns))
        sink = replace(sink, fingerprint=deliver.fingerprint(sink, target))
        if current is None:
            return replace(sink, replaces=full_refresh)
        if full_refresh:
            return replace(sink, replaces=True)
        same = current.fingerprint == sink.fingerprint
        if not same and (target.compares or not (current.delivered or current.under_way)):
            return replace(sink, replaces=current.replaces)
        if not same:
            raise StreamSqlError(
                "CONFIG_INVALID",
                f"changing this sink would change the records in {target.name}",
                given="a different query, key, mode, format or location than before",
                hint="`dbt run --full-refresh` of the sink delivers the whole table again; start "
                "with an empty target, since obsolete records are not deleted from this one",
                place=place,
            )
        progress = ("delivered", "under_way", "replaces", "delivered_at", "failing_since")
        known = {name: getattr(current, name) for name in progress}
        return replace(sink, problem=current.problem, **known)

    def refreshed(
        self,
        job: Job,
        connections: Mapping[str, Mapping[str, str]],
        place: PlaceParts,
        declined: tuple[str, ...] | None = None,
    ) -> tuple[Job, CompiledPlan, Redefinition | None]:
        """The definition to run now, in the form that `define` returns. `place` says where parts
        of its query are stored: where they were, or, with `declined`, in other places; those parts
        are not stored by themselves any more."""
        stream, known = stream_of(job), definition_of(job)
        if stream is not None:
            at = Place(job.unique_id or job.table)
            columns = opened(stream, connections, at, job.table).columns(self._known.spark)
            plan = known_plan(job)
            if plan is not None and tuple(Column(*each) for each in columns) == known.reads:
                return job, plan, None
            return self.define_stream(
                job, job.table, job.sql, stream, connections, job.unique_id, known.properties
            )
        if known.side_of:
            # Its streaming table defines it, again where its plan is one of another version.
            return job, known_plan(job) or BESIDE, None
        options = options_of(job)
        if declined is not None:
            options = replace(options, declined=declined)
        return self.define(
            *(job, job.table, job.sql, job.refresh_mode, job.unique_id, options),
            state_ttl=state_ttl_of(known.state_ttl, "", Place(job.table)),
            again=declined is not None,
            place=place,
        )

    def _change(self, current: Job, job: Job, plan: CompiledPlan) -> Redefinition | None:
        """What happens to the rows of `current` when it becomes `job`."""
        before, now = definition_of(current), definition_of(job)
        known = known_plan(current)
        was = {part.stored for part in known.parts} if known is not None else set()
        stored = {part.stored for part in plan.parts}
        # Earlier releases did not record the settings that the rows were made with.
        if before.meaning and (other := differing(before.meaning, now.meaning or {})):
            return Redefinition(SHADOW, other)
        if was != stored:
            why = _restored(was, stored)
            if known is not None and self._is_continued(current, known, plan):
                return Redefinition(METADATA, why, earlier=known)
            return Redefinition(SHADOW, why)
        if current.fingerprint == job.fingerprint:
            another = Redefinition(METADATA, "different SQL text with the same meaning")
            return another if current.sql != job.sql else None
        if before.compiler != now.compiler:
            why = "the plan was made by a different version or with different Spark settings"
            return Redefinition(SHADOW, why)
        stamps = [(before.stamps.get(name), now.stamps[name]) for name in plan.sources]
        if any(was not in (None, stamp) for was, stamp in stamps):
            return Redefinition(SHADOW, "an input of the view was redefined")
        if stored:
            return Redefinition(SHADOW, "the definition changed, and parts of it are stored")
        return redefinition(plan_of(current), plan, self._known)

    def _is_continued(self, current: Job, known: CompiledPlan, plan: CompiledPlan) -> bool:
        """Whether two plans keep the same rows, though other parts of them are stored apart."""
        ours, theirs = (
            (each.strategy, each.key, each.columns, each.hidden, node_of(each.tree))
            for each in (known, plan)
        )
        return known.mode == plan.mode == "incremental" and ours == theirs and self._holds(current)

    def _holds(self, job: Job) -> bool:
        """Whether compiling again would produce the same plan."""
        known, plan = definition_of(job), plan_of(job)
        return (
            known.compiler == self._compiler
            # An input without a stamp may be a different table by now.
            and not plan.volatile
            and not plan.unversioned
            and all(self._known.stamp(TableName.parse(n)) == s for n, s in known.stamps.items())
        )

    def follow_settings(self) -> None:
        """Compile with the current settings of the session."""
        self._identity = ""

    @property
    def _compiler(self) -> str:
        """The compiler, the Spark that types its queries, and the settings that affect types."""
        if self._identity:
            return self._identity
        spark = self._known.spark
        settings = {
            key: value
            for key, value in settings_of(spark).items()
            if key.startswith("spark.sql.") and not key.startswith(_NOT_OF_QUERIES)
        }
        parts = [identity(), str(spark.version), settings]
        self._identity = sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return self._identity

    def _job(
        self,
        plan: CompiledPlan,
        refresh_mode: str,
        unique_id: str,
        stored: StoredDefinition,
    ) -> Job:
        opened = open_views(plan.sql, self._known)
        # The tables below a state table too: its readers are compiled from their columns.
        below = tuple(opened.tables) if plan.parts else ()
        stamped = (*plan.sources, *opened.views, *below)
        stored = replace(
            stored,
            hidden=tuple(column.name for column in plan.hidden),
            stamps={name: self._known.stamp(TableName.parse(name)) for name in stamped},
            compiler=self._compiler,
            meaning=meaning(self._known.spark.version, settings_of(self._known.spark)),
        )
        return Job(
            table=plan.table,
            unique_id=unique_id,
            sql=plan.sql,
            refresh_mode=refresh_mode,
            fingerprint=plan.fingerprint,
            config=stored.as_config(),
            plan=stored.as_plan(plan),
            columns=named(plan.columns),
            sources=plan.sources,
        )


def _refuse_other_rows(
    stream: Stream, before: Stream | None, plan: CompiledPlan, current: Job, place: Place
) -> None:
    """Refuse a change that would give the existing rows another meaning."""
    if before is None:
        return
    sequence = plan.hidden[0].type if plan.hidden else ""
    parts = {
        "key": (before.key, stream.key),
        "sequence_by": (before.sequence_by, stream.sequence_by),
        "type of sequence_by": (definition_of(current).sequence, sequence),
        "event_time": tuple(s.event_time if s.by_event_time else "" for s in (before, stream)),
        "mode": tuple("snapshot" * s.whole or "incremental" for s in (before, stream)),
        "connector": (before.spec.get("connector"), stream.spec.get("connector")),
    }
    other = {name: pair for name, pair in parts.items() if pair[0] != pair[1]}
    if other:
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"changing {', '.join(other)} would change the meaning of the table's rows",
            given="; ".join(f"{name}: {new!r}" for name, (_, new) in other.items()),
            allowed="; ".join(f"{name}: {old!r}" for name, (old, _) in other.items()),
            hint="`dbt run --full-refresh` of this model rereads its stream",
            place=place,
        )


def _restored(was: set[str], now: set[str]) -> str:
    """How the state tables of a view changed, in words."""
    counts = {"more": len(now - was), "fewer": len(was - now)}
    return "stored parts: " + ", ".join(f"{n} {how}" for how, n in counts.items() if n)


def options_of(job: Job) -> StoredDefinition:
    """The options of a view, without what came of them."""
    known = definition_of(job)
    return StoredDefinition(
        known.properties,
        changelog=known.changelog,
        state=known.state,
        keys=known.keys,
        part=known.part,
        declined=known.declined,
    )


def configuration_of(job: Job) -> dict[str, Any]:
    """The configuration of a view: `refresh_mode`, `properties`, `changelog`, `state_ttl` and
    `state`."""
    known = definition_of(job)
    return {
        "refresh_mode": job.refresh_mode,
        "properties": dict(known.properties),
        "changelog": known.changelog,
        "state_ttl": dict(known.state_ttl),
        "state": known.state,
    }
