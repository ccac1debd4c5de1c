"""The event-time progress of barriers: the time of the records, not of the clock. Pure.

All times are seconds, moments are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable

from dbt_streamsql.meta.inspect.history import EVENT_TIME, History
from dbt_streamsql.meta.model.records import TableVersion


def of_version(version: TableVersion) -> float | None:
    """The event time of a streaming table's version: it holds the records up to there."""
    told = version.stats.get(EVENT_TIME) or {}
    upto = told.get("upto")
    return None if upto is None else upto / 1e6


def of_barrier(versions: Iterable[TableVersion]) -> float | None:
    """The event time of the barrier with these versions; None when no stream has one."""
    told = [of_version(version) for version in versions]
    return max((at for at in told if at is not None), default=None)


def of_table(history: History, table: str) -> tuple[float, float | None] | None:
    """The newest event time of a streaming table, and how late it was published."""
    for version in reversed(history.committed(table)):
        at = of_version(version)
        if at is not None:
            barrier = history.at(version.barrier)
            ended = barrier.ended_at if barrier is not None else version.written_at
            return at, ended - at if ended is not None else None
    return None
