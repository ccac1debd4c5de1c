"""MetaService's data as tables for SQL: those of FLIP-276, and barriers and leases.

Its own query names them `__META_JOB_SOURCE` and `__META_JOB_SINK`: these names work too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dbt_streamsql.meta.inspect import event_time
from dbt_streamsql.meta.model import stream_nodes
from dbt_streamsql.meta.model.records import TableVersion

if TYPE_CHECKING:
    from dbt_streamsql.meta.store.api import MetaStore

PREFIX = "__META_"

NEWEST = 1000
"""The number of newest barriers in the tables of barriers."""

_TIME = "timestamp"


@dataclass(frozen=True)
class MetaTable:
    """One of the tables: its name, its columns (name, Spark type), and how its rows are found.

    Times are seconds since 1970 (UTC) or None.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    rows: Callable[[MetaStore], Iterable[tuple[Any, ...]]]


def find(name: str) -> MetaTable | None:
    """The table of that name, case-insensitive."""
    known = name.upper()
    return TABLES.get(_ALIASES.get(known, known))


def _job_ids(store: MetaStore) -> dict[str, str]:
    return {table: job.unique_id or table for table, job in store.jobs().items()}


def _sources(store: MetaStore) -> Iterable[tuple[Any, ...]]:
    ids = _job_ids(store)
    out = {(sink.unique_id or sink.name, sink.table) for sink in store.sinks()}
    out |= {(ids[t], node) for t, job in store.jobs().items() if (node := stream_nodes.node(job))}
    return sorted({(ids.get(sink, sink), source) for source, sink in store.topology()} | out)


def _sinks(store: MetaStore) -> Iterable[tuple[Any, ...]]:
    out = [(sink.unique_id or sink.name, sink.name) for sink in store.sinks()]
    return sorted([*((job, table) for table, job in _job_ids(store).items()), *out])


def _versions(store: MetaStore) -> Iterable[tuple[Any, ...]]:
    last = store.last_committed()
    views = {table: version.barrier for table, version in store.latest_all().items()}
    read = {source for source, _ in store.topology()}
    roots = {root: last for root in store.inputs_as_of(last) if root in read}
    return sorted(
        (table, barrier, "Root" if table in roots else "Intermediate")
        for table, barrier in {**views, **roots}.items()
    )


def _barriers(store: MetaStore) -> Iterable[tuple[Any, ...]]:
    versions = groupby(store.newest_versions(NEWEST), key=_barrier_of)
    upto = {barrier: event_time.of_barrier(of) for barrier, of in versions}
    return [
        (barrier.id, barrier.state, barrier.started_at, barrier.ended_at, upto.get(barrier.id))
        for barrier in store.newest_barriers(NEWEST)
    ]


def _barrier_of(version: TableVersion) -> int:
    return version.barrier


def _barrier_tables(store: MetaStore) -> Iterable[tuple[Any, ...]]:
    for version in store.newest_versions(NEWEST):
        started = version.started_at
        yield (
            version.barrier,
            version.table,
            version.state,
            version.snapshot,
            version.mode,
            version.rows_inserted,
            version.rows_deleted,
            started,
            started + version.seconds if started is not None else None,
            version.written_at,
        )


def _leases(store: MetaStore) -> Iterable[tuple[Any, ...]]:
    return [
        (lease.owner, lease.barrier, lease.taken_at, lease.expires_at)
        for lease in store.leases.live()
    ]


_JOB_TABLE = (("job_id", "string"), ("table_name", "string"))

_ALL = (
    MetaTable("__META_ETL_SOURCE", _JOB_TABLE, _sources),
    MetaTable("__META_ETL_SINK", _JOB_TABLE, _sinks),
    MetaTable(
        "__META_TABLE_VERSION",
        (("table_name", "string"), ("version", "int"), ("table_type", "string")),
        _versions,
    ),
    MetaTable(
        "__META_BARRIER",
        (
            ("barrier", "bigint"),
            ("state", "string"),
            ("started_at", _TIME),
            ("ended_at", _TIME),
            ("event_time", _TIME),
        ),
        _barriers,
    ),
    MetaTable(
        "__META_BARRIER_TABLE",
        (
            ("barrier", "bigint"),
            ("table_name", "string"),
            ("state", "string"),
            ("snapshot", "bigint"),
            ("mode", "string"),
            ("rows_inserted", "bigint"),
            ("rows_deleted", "bigint"),
            ("started_at", _TIME),
            ("finished_at", _TIME),
            ("written_at", _TIME),
        ),
        _barrier_tables,
    ),
    MetaTable(
        "__META_LEASE",
        (("owner", "string"), ("barrier", "bigint"), ("taken_at", _TIME), ("expires_at", _TIME)),
        _leases,
    ),
)
TABLES: Mapping[str, MetaTable] = {table.name: table for table in _ALL}
_ALIASES = {"__META_JOB_SOURCE": "__META_ETL_SOURCE", "__META_JOB_SINK": "__META_ETL_SINK"}
