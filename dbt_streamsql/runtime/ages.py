"""Which rows of an input have expired at a barrier: how old they are is told by their commits.

A row of a table of Iceberg's format v3 has the sequence number of the commit that wrote it last,
and compaction keeps it. A TTL is therefore a sequence number: that of the newest commit before the
barrier's time less the TTL. The clock is the barrier's; what has expired once stays so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.storage.iceberg.metadata import Metadata

EXPIRED = "expired"
"""Key of a version's stats: `table ttl` -> the sequence number up to which rows have expired."""
APPROXIMATE = "approximate_since"
"""Key of a version's stats: the barrier since which the view has forgotten some of its state."""


@dataclass(frozen=True)
class Ages:
    """What has expired at a barrier.

    `known`: the sequence number up to which rows have, by table and TTL. `clock` is the barrier's
    time, `written` the time of what it writes, both in microseconds since 1970.
    """

    known: Mapping[tuple[str, int], int] = field(default_factory=dict)
    clock: int = 0
    written: int = 0

    def expired(self, table: str, ttl: int) -> int:
        """The sequence number up to which rows have expired (0: none have)."""
        return self.known[table, ttl]

    def of_groups(self, ttl: int) -> tuple[int, int]:
        """Groups written before the first have expired, others are written at the second."""
        return self.clock - ttl * 1000, self.written

    def stats(self) -> dict[str, Any]:
        """What the next epoch has to know of this one."""
        known = {f"{table} {ttl}": number for (table, ttl), number in self.known.items()}
        return {EXPIRED: known} if known else {}


def ages(
    wanted: Iterable[tuple[str, int]],
    versions: Mapping[str, tuple[Metadata, int | None]],
    clock: int,
    before: Mapping[str, int],
) -> Ages:
    """The ages of a view's inputs at the time `clock` (microseconds).

    `wanted` are (table, TTL in milliseconds), `versions` the metadata and the snapshot of each
    table, `before` what `Ages.stats` said of the epoch before. Error: STATE_TTL_INVALID when a
    table does not know when its rows were written.
    """
    known = {}
    for table, ttl in wanted:
        meta, snapshot = versions[table]
        if snapshot is not None and not meta.snapshots[snapshot].has_lineage:
            raise StreamSqlError(
                "STATE_TTL_INVALID",
                f"{table} does not know when its rows were written",
                given=f"a table of {meta.format}, format version {meta.format_version}",
                allowed="Iceberg tables of format version 3",
                hint=f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')",
                place=Place(table),
            )
        oldest = clock // 1000 - ttl
        numbers = [s.sequence for s in _path(meta, snapshot) if s.committed < oldest]
        known[table, ttl] = max([*numbers, before.get(f"{table} {ttl}", 0)])
    commits = [
        meta.snapshots[at].committed * 1000 for meta, at in versions.values() if at is not None
    ]
    # Rows of commits that came after the clock was read must not outlive their groups.
    return Ages(known, clock, max([clock, *commits]))


def _path(meta: Metadata, newest: int | None) -> Iterable[Any]:
    at = newest
    while at is not None and (snapshot := meta.snapshots.get(at)) is not None:
        yield snapshot
        at = snapshot.parent
