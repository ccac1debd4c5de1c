"""Definitions of views: compiled, stored with everything that the plan depends on, and compiled
again only when some of that has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

from dbt_streamsql.compiler.binding.bind import open_views
from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.compiler.compiler_version import identity
from dbt_streamsql.compiler.redefinition.redefine import redefinition
from dbt_streamsql.compiler.sink_query import compile_sink
from dbt_streamsql.compiler.stream_query import Upserts, compile_stream, timed_columns
from dbt_streamsql.compiler.unsent_values import OPERATION, carrying_of
from dbt_streamsql.connectors.sources.source import Omitting, Source
from dbt_streamsql.engine.spark_catalog import SparkCatalog
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import Job, Sink
from dbt_streamsql.plan import drift
from dbt_streamsql.plan.catalog import TableInfo
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.meaning import differing, meaning
from dbt_streamsql.plan.redefinition import METADATA, SHADOW, Redefinition
from dbt_streamsql.plan.schema import Column
from dbt_streamsql.plan.state import KEPT, StateTtl
from dbt_streamsql.plan.unsent import Carrying
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.core.epoch_state import plan_of
from dbt_streamsql.runtime.deliver import deliver
from dbt_streamsql.runtime.ingest.sequenced import extended
from dbt_streamsql.runtime.ingest.stream_definition import (
    CARRIES,
    MAKES,
    READS,
    STREAM,
    WAITING,
    Stream,
    check_stream,
    is_side_table,
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
        properties: Mapping[str, str],
        *,
        changelog: bool = False,
        state_ttl: StateTtl | None = None,
        anew: bool = False,
    ) -> tuple[Job, CompiledPlan, Redefinition | None]:
        """The definition of a view, its plan (that of `current`, if still valid), and what happens
        to its rows if the definition is not that of `current`; `anew`: they are recomputed in any
        case.

        Errors: those of `compile_view`.
        """
        kept = as_data(state_ttl)
        options = _options(properties, changelog=changelog, state_ttl=kept)
        before = current.plan["plan"]["tree"] if current is not None else None
        known = self.known(current, sql, refresh_mode, state_ttl, anew=anew)
        if current is not None and known is not None:
            config = {"hidden": current.config["hidden"], **options}
            unique_id = unique_id or current.unique_id
            return replace(current, unique_id=unique_id, config=config), known, None
        plan = compile_view(
            *(sql, self._known),
            table=table,
            refresh_mode=refresh_mode,
            model=unique_id,
            state_ttl=state_ttl,
            before=None if anew else before,
        )
        unique_id = unique_id or (current.unique_id if current is not None else "")
        job = self._job(plan, refresh_mode, unique_id, options)
        return job, plan, self._change(current, job, plan) if current is not None else None

    def known(
        self,
        job: Job | None,
        sql: str,
        refresh_mode: str,
        state_ttl: StateTtl | None,
        *,
        anew: bool,
    ) -> CompiledPlan | None:
        """The plan of `job`, if compiling this view would produce it again; `anew`: without
        stored rows, which may have expired under an earlier definition."""
        wanted = (sql, refresh_mode, as_data(state_ttl))
        if job is None or (job.sql, job.refresh_mode, _ttl(job)) != wanted:
            return None
        plan = plan_of(job)
        if anew and any(ttl == KEPT for _, ttl in plan.reads):
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
            old = [Column(column["name"], column["type"]) for column in current.columns]
            columns_now = drift.settled(stream.on_schema_change, old, made, stream.key, place)
            plan = replace(plan, columns=columns_now)
            if reason := drift.describe_drift(old, columns_now):
                change = Redefinition(SHADOW, f"columns changed: {reason}")
        waiting = {}
        if stream.by_event_time:
            timed = timed_columns(sql, stream.event_time, info, self._known, table=table)
            waiting[WAITING] = [{"name": c.name, "type": c.type} for c in timed]
        omitted = self._carrying(plan, stream, source, info, text)
        job = Job(
            table=table,
            unique_id=unique_id or (current.unique_id if current is not None else ""),
            sql=sql,
            config={
                "hidden": [column.name for column in plan.hidden],
                **({"sequence": plan.hidden[0].type} if plan.hidden else {}),
                **_options(properties, changelog=False),
                **waiting,
                **({CARRIES: omitted.to_json()} if omitted is not None else {}),
                STREAM: asdict(stream),
                READS: [[column.name, column.type] for column in columns],
                MAKES: [[column.name, column.type] for column in made],
            },
            fingerprint=plan.fingerprint,
            plan={"plan": json.loads(plan.to_stored()), "stamps": {}, "compiler": self._compiler},
            columns=[{"name": c.name, "type": c.type} for c in plan.columns],
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
        columns = tuple(Column(column["name"], column["type"]) for column in job.columns)
        info = TableInfo(TableName.parse(job.table), columns, versioned=True)
        key = sink.config["key"]
        found = compile_sink(sink.sql, info, self._known, name=sink.name, key=key)
        sink = replace(
            sink,
            config={**sink.config, "plain": dict(found.plain)},
            columns=[{"name": c.name, "type": c.type} for c in found.columns],
        )
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
        self, job: Job, connections: Mapping[str, Mapping[str, str]]
    ) -> tuple[Job, CompiledPlan, Redefinition | None]:
        """The definition to run now, in the form that `define` returns."""
        stream = stream_of(job)
        if stream is not None:
            place = Place(job.unique_id or job.table)
            columns = opened(stream, connections, place, job.table).columns(self._known.spark)
            if [list(column) for column in columns] == job.config.get(READS):
                return job, plan_of(job), None
            known = configuration_of(job)["properties"]
            return self.define_stream(
                job, job.table, job.sql, stream, connections, job.unique_id, known
            )
        if is_side_table(job):
            return job, plan_of(job), None
        known = configuration_of(job)
        return self.define(
            job,
            job.table,
            job.sql,
            job.refresh_mode,
            job.unique_id,
            known["properties"],
            changelog=known["changelog"],
            state_ttl=state_ttl_of(_ttl(job), "", Place(job.table)),
        )

    def _change(self, current: Job, job: Job, plan: CompiledPlan) -> Redefinition | None:
        """What happens to the rows of `current` when it becomes `job`."""
        before, now = current.plan, job.plan
        # Earlier releases did not record the settings that the rows were made with.
        if other := differing(before.get("meaning", now["meaning"]), now["meaning"]):
            return Redefinition(SHADOW, other)
        if current.fingerprint == job.fingerprint:
            another = Redefinition(METADATA, "different SQL text with the same meaning")
            return another if current.sql != job.sql else None
        if before.get("compiler") != now["compiler"]:
            why = "the plan was made by a different version or with different Spark settings"
            return Redefinition(SHADOW, why)
        stamps = [(before["stamps"].get(name), now["stamps"][name]) for name in plan.sources]
        if any(was not in (None, stamp) for was, stamp in stamps):
            return Redefinition(SHADOW, "an input of the view was redefined")
        return redefinition(plan_of(current), plan, self._known)

    def _holds(self, job: Job) -> bool:
        """Whether compiling again would produce the same plan."""
        stamps: Mapping[str, str] = job.plan["stamps"]
        return (
            job.plan.get("compiler") == self._compiler
            # An input without a stamp may be a different table by now.
            and not job.plan["plan"]["volatile"]
            and not job.plan["plan"].get("unversioned")
            and all(self._known.stamp(TableName.parse(n)) == stamp for n, stamp in stamps.items())
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
        options: Mapping[str, Any],
    ) -> Job:
        stamped = (*plan.sources, *open_views(plan.sql, self._known).views)
        return Job(
            table=plan.table,
            unique_id=unique_id,
            sql=plan.sql,
            refresh_mode=refresh_mode,
            fingerprint=plan.fingerprint,
            config={"hidden": [column.name for column in plan.hidden], **options},
            plan={
                "plan": json.loads(plan.to_stored()),
                "stamps": {name: self._known.stamp(TableName.parse(name)) for name in stamped},
                "compiler": self._compiler,
                "meaning": meaning(self._known.spark.version, settings_of(self._known.spark)),
            },
            columns=[{"name": c.name, "type": c.type} for c in plan.columns],
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
        "type of sequence_by": (current.config.get("sequence", ""), sequence),
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


def configuration_of(job: Job) -> dict[str, Any]:
    """The configuration of a view: `refresh_mode`, `properties`, `changelog` and `state_ttl`."""
    return {
        "refresh_mode": job.refresh_mode,
        "properties": dict(job.config.get("properties", {})),
        "changelog": bool(job.config.get("changelog")),
        "state_ttl": _ttl(job),
    }


def _ttl(job: Job) -> dict[str, Any]:
    known: dict[str, Any] = job.config.get("state_ttl", {})
    return known


def _options(
    properties: Mapping[str, str], *, changelog: bool, state_ttl: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The stored part of a definition's config; unset options are left out."""
    found: dict[str, Any] = {"properties": dict(properties)}
    found |= {"changelog": True} if changelog else {}
    return found | ({"state_ttl": dict(state_ttl)} if state_ttl else {})
