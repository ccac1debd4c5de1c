"""How each table did over the newest barriers, and what its changes have saved. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from dbt_streamsql.meta.inspect import delay as delays
from dbt_streamsql.meta.inspect.history import LAST_FULL, History
from dbt_streamsql.meta.model.records import NOOP


@dataclass(frozen=True)
class Point:
    """One version that changed a table. `at`: when its barrier was committed (seconds since
    1970); `delay` in seconds, None when it took up no change of a root."""

    barrier: int
    at: float | None
    mode: str
    seconds: float
    rows_inserted: int
    rows_deleted: int
    delay: float | None


@dataclass(frozen=True)
class Trend:
    """One table. `points` are oldest first. `epochs` are those that were applied from changes,
    `seconds` what they took together, and `in_full` what as many refreshes in full would have
    taken, each as long as the newest one (None: that is not known)."""

    table: str
    points: tuple[Point, ...]
    epochs: int
    seconds: float
    in_full: float | None


def trends(history: History) -> tuple[Trend, ...]:
    """The tables that changed, by their names."""
    ended = {barrier.id: barrier.ended_at for barrier in history.barriers}
    found = []
    for table in sorted(history.maintained):
        changed = [version for version in history.committed(table) if version.mode != NOOP]
        changed = [version for version in changed if version.barrier in ended]
        if not changed:
            continue
        late = delays.delays(history, changed)
        points = tuple(
            Point(
                version.barrier,
                ended[version.barrier],
                version.mode,
                version.seconds,
                version.rows_inserted,
                version.rows_deleted,
                told.seconds if (told := late.get((version.barrier, table))) else None,
            )
            for version in changed
        )
        epochs = [point for point in points if point.mode != "full"]
        full = changed[-1].stats.get(LAST_FULL)
        in_full = None if full is None else full * len(epochs)
        seconds = sum(point.seconds for point in epochs)
        found.append(Trend(table, points, len(epochs), seconds, in_full))
    return tuple(found)
