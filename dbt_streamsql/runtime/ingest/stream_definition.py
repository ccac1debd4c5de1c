"""The definition of a streaming table in a job, and its side tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors import PySparkException

from dbt_streamsql.connectors.sources.registry import open_source
from dbt_streamsql.connectors.sources.source import Keeping, Source
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.meta.inspect.history import EVENT_TIME
from dbt_streamsql.meta.model.stored_definition import StoredDefinition, definition_of, named
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition import drift
from dbt_streamsql.quoting import TableName, expression
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log
from dbt_streamsql.runtime.core.event_time import IDLE_AFTER, LATE_DATA, TIME
from dbt_streamsql.runtime.core.failpoints import failpoint

POSITION = "position"
"""The key of `TableVersion.stats`: how far the stream was read for it."""

QUARANTINE, TOMBSTONES, EARLY = "__quarantine", "__tombstones", "__early"
"""Suffixes of the side tables: quarantined records, deleted keys, and records that wait."""

LOST = "__lost"
"""The suffix of one more: keys of quarantined records, whose stored rows give later records no
values."""

SEQUENCE = "__streamsql_sequence"
"""The hidden column of a table with a key: the sequence of the record that a row comes from."""

BESIDE = CompiledPlan(
    sql="",
    mode="beside",
    strategy="",
    reasons=(),
    tables=(),
    columns=(),
    hidden=(),
    key=(),
    full_sql="",
    steps=(),
    tree={},
    fingerprint="",
)
"""The plan of a table that another one writes."""

ON_ERROR = ("fail", "quarantine")

BAD = "STREAMSQL_BAD_RECORD "
"""The beginning of an error text that one record causes."""

_QUARANTINED = (
    ("raw", "string"),
    ("at", "string"),
    ("reason", "string"),
    ("barrier", "bigint"),
)


@dataclass(frozen=True)
class Stream:
    """What a streaming table reads, and how.

    `name` is the stream's name in the query, `spec` its declaration (see
    `connectors/sources/registry.py`), `connection` names options of the profile. With a `key`, the
    newest record of a key, by the expression `sequence_by`, determines its row, or deletes it
    where `delete_when` is true; a record without a key for which `truncate_when` is true deletes
    all keys. `leave_out` are columns of the query that are not stored. `on_error`: `fail`, or
    `quarantine`. `whole`: each barrier reads all existing rows. `on_schema_change`: what happens
    to the table when the query returns other columns.

    With a `lateness`, in seconds, barriers are of event time (see `event_time.py`): the time of a
    record is the expression `event_time`. `late_data` says where late records go, and `idle_after`
    after how many seconds a stream without records is no longer waited for (None: it always is).
    """

    name: str
    spec: Mapping[str, Any]
    connection: str = ""
    key: tuple[str, ...] = ()
    sequence_by: str = ""
    delete_when: str = ""
    leave_out: tuple[str, ...] = field(default=())
    on_error: str = "fail"
    truncate_when: str = ""
    whole: bool = False
    on_schema_change: str = drift.FAIL
    event_time: str = ""
    lateness: float | None = None
    late_data: str = LATE_DATA[0]
    idle_after: float | None = IDLE_AFTER

    @property
    def forgives(self) -> bool:
        """Whether a record that cannot be read is quarantined."""
        return self.on_error == "quarantine"

    @property
    def quarantines(self) -> bool:
        """Whether any record is quarantined."""
        return "quarantine" in (self.on_error, self.late_data)

    @property
    def by_event_time(self) -> bool:
        return self.lateness is not None


def check_stream(stream: Stream, place: Place) -> None:
    """Refuse options that cannot be combined. Error: CONFIG_INVALID, listing everything wrong."""
    problems = _problems_of_whole(stream) if stream.whole else []
    if stream.key and not stream.sequence_by and not stream.whole:
        problems.append(
            "`key` needs `sequence_by`, which decides which of two records with one key is newer"
        )
    problems += [
        f"`{name}` needs a `key`"
        for name in ("sequence_by", "delete_when", "truncate_when", "leave_out")
        if getattr(stream, name) and not stream.key
    ]
    problems += _problems_of_time(stream)
    if stream.on_error not in ON_ERROR:
        problems.append(f"`on_error` is {stream.on_error!r}, not one of {', '.join(ON_ERROR)}")
    if stream.on_schema_change not in drift.ON_SCHEMA_CHANGE:
        problems.append(
            f"`on_schema_change` is {stream.on_schema_change!r}, not one of "
            f"{', '.join(drift.ON_SCHEMA_CHANGE)}"
        )
    for name in ("sequence_by", "delete_when", "truncate_when", "event_time"):
        if text := getattr(stream, name):
            try:
                expression(text, name)
            except StreamSqlError as error:
                problems.append(f"{error.message}: {error.given}")
    if problems:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "invalid streaming_table config",
            given="; ".join(problems),
            allowed="docs/streaming_table.md lists the keys",
            place=place,
        )


def _problems_of_whole(stream: Stream) -> list[str]:
    problems = [
        f"`{name}` does not apply when every barrier reads all rows: missing rows are deleted"
        for name in ("sequence_by", "delete_when", "truncate_when")
        if getattr(stream, name)
    ]
    if not stream.key:
        problems.append(
            "reading all rows at every barrier needs a `key`: the columns that identify a row"
        )
    if stream.forgives:
        problems.append(
            "`on_error: quarantine` would delete the row of a record that cannot be read; use "
            "casts in the source's `query` instead"
        )
    return problems


def _problems_of_time(stream: Stream) -> list[str]:
    problems = []
    if stream.late_data not in LATE_DATA:
        allowed = ", ".join(LATE_DATA)
        problems.append(f"`late_data` is {stream.late_data!r}, not one of {allowed}")
    if not stream.by_event_time:
        if stream.late_data == "quarantine":
            problems.append("`late_data` needs a `lateness`")
        if stream.event_time:
            problems.append("`event_time` needs a `lateness`: how late a record may arrive")
        return problems
    if not stream.event_time:
        problems.append("`lateness` needs `event_time`: the time of a record")
    if stream.whole:
        problems.append("`lateness` does not apply when every barrier reads all rows")
    if stream.on_schema_change != drift.FAIL:
        problems.append(
            f"`lateness` requires `on_schema_change: {drift.FAIL}`: waiting records keep the "
            "columns they arrived with"
        )
    return problems


def stream_of(job: Job) -> Stream | None:
    """The stream of a streaming table; None for a view."""
    known = definition_of(job).stream
    return from_json(known) if known is not None else None


def from_json(known: Mapping[str, Any]) -> Stream:
    """A stream as it was stored."""
    lists = {name: tuple(known[name]) for name in ("key", "leave_out")}
    return Stream(**{**known, **lists})


def is_side_table(job: Job) -> bool:
    """Whether another job writes this one's table."""
    return bool(definition_of(job).side_of)


def beside(job: Job, suffix: str) -> Job:
    """The job of a side table of a streaming table."""
    name = TableName.parse(job.table)
    table = str(replace(name, table=name.table + suffix))
    columns, key = [{"name": name, "type": kind} for name, kind in _QUARANTINED], tuple[str, ...]()
    if suffix == EARLY:
        columns = [*named(definition_of(job).waits), {"name": TIME, "type": "timestamp"}]
    if suffix in (TOMBSTONES, LOST):
        stream = stream_of(job)
        assert stream is not None
        types = {column["name"]: column["type"] for column in job.columns}
        key = stream.key
        kept = [(name, types[name]) for name in key]
        columns = [
            {"name": name, "type": kind}
            for name, kind in (*kept, (SEQUENCE, definition_of(job).sequence))
        ]
    return Job(
        table=table,
        unique_id=f"{job.unique_id}{suffix}" if job.unique_id else "",
        sql="",
        config=StoredDefinition(side_of=job.table).as_config(),
        fingerprint=job.fingerprint,
        plan={"plan": json.loads(replace(BESIDE, key=key, table=table).to_stored())},
        columns=columns,
    )


def side_tables(job: Job) -> list[Job]:
    """The jobs of all side tables of a job; none for a view."""
    stream = stream_of(job)
    if stream is None:
        return []
    suffixes = [TOMBSTONES] if stream.key and not stream.whole else []
    suffixes += [QUARANTINE] if stream.quarantines else []
    suffixes += [EARLY] if stream.by_event_time else []
    carries = definition_of(job).carries
    suffixes += [LOST] if stream.forgives and carries is not None and not carries.reason else []
    return [beside(job, suffix) for suffix in suffixes]


def timed(stream: Stream, select: str) -> str:
    """The query with each record's time; one without fails, unless it can be quarantined."""
    text = f"SELECT *, CAST(({stream.event_time}) AS TIMESTAMP) AS {TIME} FROM ({select})"
    if stream.forgives:
        return text
    told = f"concat('{BAD}a record has NULL as its event time: ', to_json(struct(q.*)))"
    checked = f"coalesce({TIME}, CAST(raise_error({told}) AS TIMESTAMP))"
    return f"SELECT q.* EXCEPT ({TIME}), {checked} AS {TIME} FROM ({text}) q"


def moved(version: TableVersion, before: TableVersion) -> bool:
    """Whether a stream was read further, or event time advanced, though the table is unchanged."""
    told = (POSITION, EVENT_TIME)
    return any(
        key in version.stats and version.stats[key] != before.stats.get(key) for key in told
    )


def opened(
    stream: Stream, connections: Mapping[str, Mapping[str, str]], place: Place, table: str
) -> Source:
    """The stream as `table` reads it, with the options of its connection.

    Error: CONFIG_INVALID.
    """
    if stream.connection and stream.connection not in connections:
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"the profile has no connection {stream.connection!r}",
            given=f"connection: {stream.connection}",
            allowed=", ".join(sorted(connections)) or "`connections` is empty",
            place=place,
        )
    known = connections.get(stream.connection, {})
    options = {**known, **stream.spec.get("options", {})}
    return open_source({**stream.spec, "options": options}, place, table)


def release(warehouse: Warehouse, jobs: Mapping[str, Job], barrier: int) -> None:
    """Let the streams release what a published barrier has read.

    Nothing is lost when a process dies before: the next barrier continues from there, and releases
    more.
    """
    streams = {table: stream_of(job) for table, job in jobs.items()}
    if not any(streams.values()):
        return
    for table, span in warehouse.store.spans(barrier).items():
        stream = streams.get(table)
        if stream is None:
            continue
        try:
            source = opened(stream, warehouse.connections, Place(table), table)
            with failpoint("stream.release"):
                source.release(warehouse.sessions.main, span.upto)
        except (StreamSqlError, PySparkException, OSError) as error:
            log.warning("%s: its stream could not be released yet: %s", table, error)


def forget(warehouse: Warehouse, job: Job) -> None:
    """Let a stream release what it keeps for a table that was dropped, and log what stays."""
    stream = stream_of(job)
    if stream is None:
        return
    try:
        source = opened(stream, warehouse.connections, Place(job.table), job.table)
        if isinstance(source, Keeping):
            log.warning("%s: %s", job.table, source.forget())
    except StreamSqlError as error:
        log.warning("%s: its stream may still hold resources for it: %s", job.table, error)
