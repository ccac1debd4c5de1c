"""The age of the changes that a barrier does not include: of outside tables, and of streams."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from dbt_streamsql.connectors.sources.source import end_of
from dbt_streamsql.errors import Place
from dbt_streamsql.meta import Job
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Warehouse
from dbt_streamsql.runtime.ingest import stream_definition
from dbt_streamsql.storage.inputs import inputs


def of_roots(warehouse: Warehouse, roots: Mapping[str, int | None]) -> dict[str, float]:
    """The age in seconds of the oldest change after these snapshots, by outside table; only for
    those that have one."""
    clock = warehouse.clock
    now = clock.time()
    found = {}
    for root, snapshot in roots.items():
        meta = inputs.find(warehouse.sessions.main, TableName.parse(root))
        if meta is None:
            continue
        unseen = meta.lineage(meta.current, snapshot)
        if unseen is None:
            # It was replaced, or what was read of it is gone: nothing says when that began.
            found[root] = math.inf
            continue
        made = [clock.committed(at.committed) for at in unseen if at.operation != "replace"]
        ages = [now - at / 1000 for at in made]
        if ages:
            found[root] = max(ages)
    return found


def of_streams(warehouse: Warehouse, tables: Iterable[str], barrier: int) -> dict[str, float]:
    """The age of the oldest record that is not read at the barrier, by streaming table; for those
    among `tables`, and upstream of them, that have one.

    Where a stream does not report it: the time since it was last read, which is no shorter.
    Errors: STREAM_LOST, STREAM_UNREACHABLE.
    """
    jobs = warehouse.store.jobs()
    below = {name: stream for name in _below(jobs, tables) if (stream := _stream(jobs, name))}
    if not below:
        return {}
    versions, spark = warehouse.store.latest_all(barrier), warehouse.sessions.main
    found = {}
    for name, stream in below.items():
        version = versions.get(name)
        after = version.stats.get(stream_definition.POSITION) if version is not None else None
        source = stream_definition.opened(stream, warehouse.connections, Place(name), name)
        with end_of(source, spark, after) as end:
            if end is None:
                continue
            read = version.started_at if version is not None else None
            oldest = end.oldest if end.oldest is not None else read
            found[name] = warehouse.clock.time() - oldest if oldest is not None else math.inf
    return found


def _stream(jobs: Mapping[str, Job], name: str) -> stream_definition.Stream | None:
    return stream_definition.stream_of(jobs[name]) if name in jobs else None


def _below(jobs: Mapping[str, Job], tables: Iterable[str]) -> list[str]:
    """These tables and everything upstream of them."""
    found: dict[str, None] = {}
    waiting = list(tables)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = None
            waiting += jobs[name].sources if name in jobs else ()
    return list(found)
