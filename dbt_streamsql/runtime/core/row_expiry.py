"""Which rows of an input have expired at a barrier: their commits give their age.

A row in a table of Iceberg's format v3 has the sequence number of the commit that wrote it last,
and compaction keeps it. A TTL is therefore a sequence number: that of the newest commit before the
barrier's time minus the TTL. The clock is the barrier's; expired rows stay expired, whatever the
clock and the TTL are later, until a full refresh: their removal was not seen, and what they would
have produced with other rows was never produced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import TableVersion
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.scans.changes import Change

EXPIRED = "expired"
"""Key of a version's stats: `place table`, the place being one of `CompiledPlan.reads`, -> the
sequence number up to which rows have expired there. It does not record the TTL, which may change.
"""
CLOCKED = "clock"
"""Key of a version's stats: the barrier's time, by which groups have expired, in microseconds."""
APPROXIMATE = "approximate_since"
"""Key of a version's stats: the barrier since which the view has forgotten some of its state."""


@dataclass(frozen=True)
class Expiry:
    """What has expired at a barrier.

    `known`: the sequence number up to which rows have expired, by table and TTL, at the places
    `reads`. `clock` is the barrier's time, `written` the time of what it writes, both in
    microseconds since 1970.
    """

    known: Mapping[tuple[str, int], int] = field(default_factory=dict)
    reads: tuple[tuple[str, int], ...] = ()
    clock: int = 0
    written: int = 0

    def expired(self, table: str, ttl: int) -> int:
        """The sequence number up to which rows have expired (0: none have)."""
        return self.known[table, ttl]

    def of_groups(self, ttl: int) -> tuple[int, int]:
        """Groups written before the first time have expired, others are written at the second."""
        return self.clock - ttl * 1000, self.written

    def stats(self, version: TableVersion, before: TableVersion | None) -> dict[str, Any]:
        """What the next epoch must know of a version that continues from `before`: what has
        expired, and the barrier since which the view deviates from its query."""
        if version.mode == "full":
            # All existing rows have been seen, and tables may be new ones, with new numbers.
            return {}
        known = {
            _place(at, table): self.known[table, ttl]
            for at, (table, ttl) in enumerate(self.reads)
            if ttl
        }
        since = before.stats.get(APPROXIMATE) if before is not None else None
        if since is None and before is not None and any(known.values()):
            # Where nothing is written the barrier has no number yet.
            since = version.barrier or before.barrier + 1
        return ({EXPIRED: known, CLOCKED: self.clock} if known else {}) | (
            {APPROXIMATE: since} if since is not None else {}
        )


def expired_at(version: TableVersion, at: int, table: str) -> int:
    """The sequence number up to which rows had expired at a place, for that version."""
    return int(version.stats.get(EXPIRED, {}).get(_place(at, table), 0))


def _place(at: int, table: str) -> str:
    return f"{at} {table}"


def expiry_of(
    reads: Sequence[tuple[str, int]],
    versions: Mapping[str, tuple[Metadata, int | None]],
    clock: int,
    before: TableVersion | None,
    committed: Callable[[int], int],
) -> Expiry:
    """The ages of a view's inputs at the time `clock` (microseconds).

    `reads` are (table, TTL in milliseconds), `versions` the metadata and the snapshot of each
    table, `before` the version that the view continues from, `committed` when a commit was made by
    the clock (see `Clock.committed`). Places that read one table with one TTL have one age. Error:
    STATE_TTL_INVALID when a table does not record when its rows were written.
    """
    known: dict[tuple[str, int], int] = {}
    expired: Mapping[str, int] = before.stats.get(EXPIRED, {}) if before is not None else {}
    for at, (table, ttl) in enumerate(reads):
        if not ttl:
            continue
        meta, snapshot = versions[table]
        if snapshot is not None and not meta.snapshots[snapshot].has_lineage:
            raise StreamSqlError(
                "STATE_TTL_INVALID",
                f"{table} does not record when its rows were written",
                given=f"a table of {meta.format}, format version {meta.format_version}",
                allowed="Iceberg tables of format version 3",
                hint=_otherwise(table, meta.format),
                place=Place(table),
            )
        oldest = clock // 1000 - ttl
        numbers = [s.sequence for s in _path(meta, snapshot) if committed(s.committed) < oldest]
        numbers += [expired.get(_place(at, table), 0), known.get((table, ttl), 0)]
        known[table, ttl] = max(numbers)
    commits = [
        committed(meta.snapshots[at].committed) * 1000
        for meta, at in versions.values()
        if at is not None
    ]
    # Rows of commits that came after the clock was read must not outlive their groups.
    return Expiry(known, tuple(reads), clock, max([clock, *commits]))


def _otherwise(table: str, form: str) -> str:
    view = (
        f"read it through a materialized view, `select * from {table}`: its rows have the ages of "
        "their barriers"
    )
    if form != "iceberg":
        return view
    upgrade = f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')"
    return f"{view}; or, if all writers of the table know version 3, {upgrade}"


def has_unknown_age(meta: Metadata, change: Change) -> bool:
    """Whether the commits of rows do not determine a change: the table was set back to another
    version, or had no row lineage before."""
    if change.kind == "none" or change.old is None:
        return False
    return change.kind == "difference" or not meta.snapshots[change.old].has_lineage


def _path(meta: Metadata, newest: int | None) -> Iterable[Any]:
    at = newest
    while at is not None and (snapshot := meta.snapshots.get(at)) is not None:
        yield snapshot
        at = snapshot.parent
