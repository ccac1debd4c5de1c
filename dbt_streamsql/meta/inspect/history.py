"""The newest barriers with their versions and pins, read at once. Frozen, without a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from dbt_streamsql.meta.model.records import (
    Barrier,
    Job,
    Pin,
    Sink,
    TableVersion,
)

if TYPE_CHECKING:
    from dbt_streamsql.meta.store.api import MetaReader

OLDEST_CHANGE = "oldest_change"
"""The key of `TableVersion.stats`: root table -> commit time of its oldest applied change."""

LAST_FULL = "last_full"
"""The key of `TableVersion.stats`: the seconds of the view's newest refresh in full."""

SIZE = "size"
"""The key of `TableVersion.stats`: the rows of the table, and the bytes of their files."""

CHANGED = "changed"
"""The key of `TableVersion.stats`: input -> the rows that changed in it, where commits say how
many."""

EVENT_TIME = "event_time"
"""The key of `TableVersion.stats`: the event-time progress of a streaming table; `upto`, in
microseconds since 1970, is the event time of its barrier."""

NEWEST = 50
"""The default number of barriers."""


@dataclass(frozen=True)
class History:
    """What happened at some consecutive barriers, and the state before them.

    `barriers` are oldest first, in any state. `versions` are by barrier and table, `pins` by
    barrier and root table. `before` is the newest version of each table from before the first of
    the barriers; `jobs` and `sinks` are the current definitions.
    """

    barriers: tuple[Barrier, ...] = ()
    versions: Mapping[int, Mapping[str, TableVersion]] = field(default_factory=dict)
    pins: Mapping[int, Mapping[str, Pin]] = field(default_factory=dict)
    before: Mapping[str, TableVersion] = field(default_factory=dict)
    jobs: Mapping[str, Job] = field(default_factory=dict)
    sinks: tuple[Sink, ...] = ()

    def at(self, barrier: int) -> Barrier | None:
        """The barrier, None when it is not one of these."""
        return next((found for found in self.barriers if found.id == barrier), None)

    def seen_by(self, sees: Callable[[str], bool]) -> History:
        """The part that a reader may see who has access to only some tables.

        Of other tables, only the names in the definitions of visible ones; of a delay that goes
        through them, what the visible job itself recorded of the tables that it reads.
        """
        versions = {
            barrier: {table: _seen(v, sees) for table, v in at.items() if sees(table)}
            for barrier, at in self.versions.items()
        }
        pins = {
            barrier: {table: pin for table, pin in at.items() if sees(table)}
            for barrier, at in self.pins.items()
        }
        before = {table: _seen(v, sees) for table, v in self.before.items() if sees(table)}
        jobs = {table: job for table, job in self.jobs.items() if sees(table)}
        sinks = tuple(sink for sink in self.sinks if sees(sink.table) and sees(sink.name))
        return History(self.barriers, versions, pins, before, jobs, sinks)

    def versions_of(self, table: str) -> tuple[TableVersion, ...]:
        """The versions of a table that were not aborted, oldest first, with the one before."""
        return self._by_table.get(table, ())

    def committed(self, table: str) -> tuple[TableVersion, ...]:
        """Those of `versions_of` that readers see."""
        closed = {b.id for b in self.barriers if b.state == "COMMIT"}
        first = self.barriers[0].id if self.barriers else 0
        known = self.versions_of(table)
        return tuple(v for v in known if v.barrier in closed or v.barrier < first)

    def previous(self, version: TableVersion) -> TableVersion | None:
        """The table's previous version; None when it is unknown or there was none."""
        earlier = [v for v in self.versions_of(version.table) if v.barrier < version.barrier]
        return earlier[-1] if earlier else None

    @property
    def newest_committed(self) -> Barrier | None:
        """The newest barrier in COMMIT."""
        return next((b for b in reversed(self.barriers) if b.state == "COMMIT"), None)

    @cached_property
    def maintained(self) -> frozenset[str]:
        """The tables that jobs write, their changelogs included; every other one is a root."""
        return frozenset(self._by_table) | frozenset(self.jobs)

    @cached_property
    def _by_table(self) -> Mapping[str, tuple[TableVersion, ...]]:
        found: dict[str, list[TableVersion]] = defaultdict(list)
        for version in self._kept():
            found[version.table].append(version)
        return {table: tuple(versions) for table, versions in found.items()}

    def _kept(self) -> Iterator[TableVersion]:
        yield from self.before.values()
        for barrier in self.barriers:
            if barrier.state != "ABORT":
                yield from self.versions.get(barrier.id, {}).values()


def load(reader: MetaReader, newest: int = NEWEST, upto: int | None = None) -> History:
    """The newest barriers (up to `upto`, if given) of a store, in a handful of queries."""
    # One more than requested: its versions are the state before the other barriers.
    asked = reader.recent(newest + 1, upto)
    kept = reader.kept_from()
    # For an earlier barrier only the versions still in force are left.
    found = [barrier for barrier in asked if barrier.id >= kept]
    before: Mapping[str, TableVersion] = {}
    if len(found) < len(asked):
        in_force = reader.latest_all(kept)
        before = {table: at for table, at in in_force.items() if at.barrier < kept}
    elif len(found) > newest:
        base = next((b for b in found if b.state == "COMMIT"), None)
        if base is not None:
            before = reader.latest_all(base.id)
            found = [barrier for barrier in found if barrier.id > base.id]
    if not found:
        return History(before=before, jobs=reader.jobs(), sinks=tuple(reader.sinks()))
    span = (found[0].id, found[-1].id)
    return History(
        tuple(found),
        _by_barrier(reader.versions_between(*span)),
        reader.pins_between(*span),
        before,
        reader.jobs(),
        tuple(reader.sinks()),
    )


def _seen(version: TableVersion, sees: Callable[[str], bool]) -> TableVersion:
    made, stats = version.stats.get(OLDEST_CHANGE), dict(version.stats)
    if made:
        stats[OLDEST_CHANGE] = {
            root: at for root, at in made.items() if root in version.inputs or sees(root)
        }
    if CHANGED in stats:
        stats[CHANGED] = {table: rows for table, rows in stats[CHANGED].items() if sees(table)}
    return replace(version, stats=stats)


def _by_barrier(versions: Iterable[TableVersion]) -> dict[int, dict[str, TableVersion]]:
    found: dict[int, dict[str, TableVersion]] = {}
    for version in versions:
        found.setdefault(version.barrier, {})[version.table] = version
    return found
