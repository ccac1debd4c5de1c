"""What a job keeps of its definition, typed: the one place that knows the keys of its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.records import Job, Sink
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.stored_part import State
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.plan.definition.unsent import Carrying


@dataclass(frozen=True)
class StoredDefinition:
    """The options of a maintained table, and how its plan came about.

    `properties`: of the table; `hidden`: the engine's own columns; `changelog`: whether it has
    one; `state_ttl`: as `state_ttl.as_data` gives it; `state`: which parts of its query are
    stored; `keys`: what is declared of its inputs; `part`: the id of the part that it stores
    itself ('': it is no state table); `declined`: the parts that `auto` has stored and dropped.

    Of a streaming table: `stream`, its declaration (see `stream_definition.Stream`); `reads`, the
    columns of the stream; `makes`, those of the query that are stored; `sequence`, the type of the
    hidden column with each row's sequence ('': it has none); `waits`, the columns of records that
    may have to wait; `carries`, how values that a record lacks are handled (None: every record has
    all). `side_of`: the streaming table that writes this one ('': it writes itself).

    `stamps`: input -> what its definition was; `compiler`: what made the plan; `meaning`: the
    settings that the rows were made with (None: an earlier release did not record them).
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    changelog: bool = False
    state_ttl: Mapping[str, Any] = field(default_factory=dict)
    state: State = "auto"
    keys: tuple[TableKey, ...] = ()
    part: str = ""
    declined: tuple[str, ...] = ()
    stream: Mapping[str, Any] | None = None
    reads: tuple[Column, ...] = ()
    makes: tuple[Column, ...] = ()
    sequence: str = ""
    waits: tuple[Column, ...] = ()
    carries: Carrying | None = None
    side_of: str = ""
    stamps: Mapping[str, str] = field(default_factory=dict)
    compiler: str = ""
    meaning: Mapping[str, Any] | None = None

    def as_config(self) -> dict[str, Any]:
        """`Job.config`; what is not set is left out."""
        found: dict[str, Any] = {
            "hidden": list(self.hidden),
            "sequence": self.sequence,
            "properties": dict(self.properties),
            "changelog": self.changelog,
            "state_ttl": dict(self.state_ttl),
            "state": self.state if self.state != "auto" else None,
            "keys": [key.as_data() for key in self.keys],
            "part": self.part,
            "declined": list(self.declined),
            "early": named(self.waits),
            "carries": self.carries.to_json() if self.carries is not None else None,
            "stream": self.stream,
            "beside": self.side_of,
        }
        found = {key: value for key, value in found.items() if value or key in _ALWAYS}
        if self.stream is None:
            return found
        return found | {"reads": _pairs(self.reads), "makes": _pairs(self.makes)}

    def as_plan(self, plan: CompiledPlan) -> dict[str, Any]:
        """`Job.plan` around a plan."""
        found = {
            "plan": json.loads(plan.to_stored()),
            "stamps": dict(self.stamps),
            "compiler": self.compiler,
        }
        return found if self.meaning is None else {**found, "meaning": self.meaning}


_ALWAYS = ("hidden", "properties")


def _state(told: Any) -> State:
    return tuple(told) if isinstance(told, list) else told


_READ = "_stored_definition"
_PLAN = "_compiled_plan"
"""Where a job, which does not change, keeps what was read from it: an epoch asks several times."""


def definition_of(job: Job) -> StoredDefinition:
    """The definition in a job."""
    known = vars(job).get(_READ)
    if known is None:
        known = vars(job)[_READ] = _read(job)
    found: StoredDefinition = known
    return found


def _read(job: Job) -> StoredDefinition:
    config, plan = job.config, job.plan
    carries = config.get("carries")
    return StoredDefinition(
        properties=dict(config.get("properties", {})),
        hidden=tuple(config.get("hidden", ())),
        changelog=bool(config.get("changelog")),
        state_ttl=config.get("state_ttl", {}),
        state=_state(config.get("state", "auto")),
        keys=tuple(TableKey(**key) for key in config.get("keys", ())),
        part=str(config.get("part", "")),
        declined=tuple(config.get("declined", ())),
        stream=config.get("stream") or None,
        reads=tuple(Column(*each) for each in config.get("reads", ())),
        makes=tuple(Column(*each) for each in config.get("makes", ())),
        sequence=config.get("sequence", ""),
        waits=columns_of(config.get("early", ())),
        carries=Carrying.of(carries) if carries else None,
        side_of=str(config.get("beside", "")),
        stamps=plan.get("stamps", {}),
        compiler=plan.get("compiler", ""),
        meaning=plan.get("meaning"),
    )


def plan_of(job: Job) -> CompiledPlan:
    """The plan that was stored with a definition."""
    known = vars(job).get(_PLAN)
    if known is None:
        known = vars(job)[_PLAN] = _plan(json.dumps(job.plan["plan"]))
    found: CompiledPlan = known
    return found


def known_plan(job: Job) -> CompiledPlan | None:
    """The same; None when there is none, or only one of another version."""
    try:
        return plan_of(job) if job.plan.get("plan") else None
    except StreamSqlError:
        return None


def tree_of(job: Job) -> Mapping[str, Any]:
    """The tree of the stored plan, also of one of another version."""
    tree: Mapping[str, Any] = job.plan["plan"]["tree"]
    return tree


@lru_cache(maxsize=1024)
def _plan(text: str) -> CompiledPlan:
    """A store may read the same job again."""
    return CompiledPlan.from_stored(text)


def columns_of(known: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Columns as `Job.columns` has them."""
    return tuple(Column(each["name"], each["type"]) for each in known)


def named(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """`Job.columns` of columns."""
    return [{"name": column.name, "type": column.type} for column in columns]


def _pairs(columns: Iterable[Column]) -> list[list[str]]:
    return [[column.name, column.type] for column in columns]


@dataclass(frozen=True)
class StoredSink:
    """Where a sink delivers to, and how: `Sink.config`.

    `target`: its declaration (see `connectors/sinks`), without secrets; `connection` names more
    options in the profile; `key`: the columns by which rows are upserted there; `mode`: changelog
    or append ('': the connector's own); `plain`: its columns that the table has, and their names.
    """

    target: Mapping[str, Any]
    connection: str = ""
    key: tuple[str, ...] = ()
    mode: str = ""
    plain: Mapping[str, str] = field(default_factory=dict)

    def as_config(self) -> dict[str, Any]:
        found = {
            "target": dict(self.target),
            "connection": self.connection,
            "key": list(self.key),
            "mode": self.mode,
        }
        return {**found, "plain": dict(self.plain)} if self.plain else found


def stored_sink(sink: Sink) -> StoredSink:
    """The options in a sink."""
    return StoredSink(**{**sink.config, "key": tuple(sink.config["key"])})
