"""Which version of each table a query reads: one consistent cut through the topology (FLIP-276).

    read_uncommitted   the newest version of each table, staged ones included
    read_committed     one barrier that is staged in all tables (PRECOMMIT) or published
    repeatable_read    one barrier that is published in all tables (COMMIT)

Tables that share no root cannot contradict each other, so each such group has its own barrier. A
table alone is read in its newest version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dbt_streamsql.errors import StreamSqlError

if TYPE_CHECKING:
    from dbt_streamsql.meta.model.records import Barrier, TableVersion
    from dbt_streamsql.meta.store.api import MetaReader

Consistency = Literal["read_uncommitted", "read_committed", "repeatable_read"]
LEVELS: tuple[Consistency, ...] = ("read_uncommitted", "read_committed", "repeatable_read")

LOOKED_BACK = 500
"""Barriers to try, from the newest back, until one holds all tables of a group."""

_SHOWN: Mapping[Consistency, tuple[str, ...]] = {
    "read_uncommitted": ("OPEN", "PRECOMMIT"),
    "read_committed": ("PRECOMMIT",),
    "repeatable_read": (),
}
"""The states of an unfinished barrier that a level reads."""


@dataclass(frozen=True)
class Seen:
    """One version to read: the location of the table (staged ones elsewhere) and its snapshot."""

    table: str
    snapshot: int | None


@dataclass(frozen=True)
class Cut:
    """What a query reads: by table; missing tables are read in their current version.

    `barrier` is the oldest one among the groups, 0 when no table belongs to one; `barriers` are
    those of all groups. The tables contain everything that the roots held at the barrier
    `complete_at`, which is earlier if runs have left a table behind. `roots` are the snapshots of
    the outside tables there.
    """

    barrier: int = 0
    tables: Mapping[str, Seen] = field(default_factory=dict)
    roots: Mapping[str, int | None] = field(default_factory=dict)
    barriers: frozenset[int] = frozenset()
    complete_at: int = 0


@dataclass(frozen=True)
class _State:
    """The whole topology at one barrier: versions of views, snapshots of roots."""

    barrier: int
    versions: Mapping[str, TableVersion]
    roots: Mapping[str, int | None]

    def stale(self, tables: Iterable[str]) -> list[str]:
        """Tables without exactly what their roots, and all between, held at this barrier."""
        known: dict[str, bool] = {}

        def fresh(table: str) -> bool:
            if table not in known:
                version = self.versions.get(table)
                known[table] = (
                    table in self.roots
                    if version is None
                    else all(
                        self._snapshot(source, seen) == seen
                        and (source not in self.versions or fresh(source))
                        for source, seen in version.inputs.items()
                    )
                )
            return known[table]

        return [table for table in tables if not fresh(table)]

    def below(self, table: str) -> set[str]:
        """The outside tables that it comes from; for an outside table, itself."""
        found: set[str] = set()
        seen, waiting = {table}, [table]
        while waiting:
            at = waiting.pop()
            version = self.versions.get(at)
            # A source that is neither a view nor a root is the epoch's clock.
            sources = {
                source
                for source in (version.inputs if version is not None else ())
                if source in self.versions or source in self.roots
            }
            if not sources:
                found.add(at)
            waiting += sources - seen
            seen |= sources
        return found

    def _snapshot(self, table: str, otherwise: int | None) -> int | None:
        version = self.versions.get(table)
        return version.snapshot if version is not None else self.roots.get(table, otherwise)

    def seen(self, table: str) -> Seen:
        version = self.versions.get(table)
        if version is None:
            return Seen(table, self.roots[table])
        waiting = version.staged_at if version.to_publish else ""
        return Seen(waiting or table, version.snapshot)


def cut(
    reader: MetaReader,
    level: Consistency,
    tables: Iterable[str],
    barrier: int | None = None,
) -> Cut:
    """The versions for a query over `tables`; with `barrier`, none newer than that one.

    Errors: CONSISTENCY_UNAVAILABLE when no barrier holds the tables of a group together,
    META_CONFLICT when `barrier` cannot be read.
    """
    newest = _newest(reader, level) if barrier is None else _at(reader, barrier)
    asked = sorted(set(tables) & {*newest.versions, *newest.roots})
    if not asked:
        return Cut()
    found: dict[str, Seen] = {}
    below: dict[str, int | None] = {}
    barriers, complete = [], []
    for roots, group in _groups(asked, newest):
        alone = len(group) == 1 or level == "read_uncommitted"
        state = newest if alone else _together(reader, newest, group)
        # A root that is read alone need not match what views have applied.
        live = alone and barrier is None and level != "repeatable_read"
        held = [table for table in group if table in state.versions or not live]
        if held:
            found |= {table: state.seen(table) for table in held}
            whole = state if not alone else _complete(reader, state, held)
            below |= {root: whole.roots.get(root) for root in roots if root in state.roots}
            barriers.append(state.barrier)
            complete.append(whole.barrier)
    oldest = min(barriers, default=0)
    return Cut(oldest, found, below, frozenset(barriers), min(complete, default=0))


def behind(reader: MetaReader, table: str, barrier: int) -> bool:
    """Whether a table does not hold all that its roots held at a committed barrier."""
    return bool(_at(reader, barrier).stale([table]))


def check_level(level: str) -> Consistency:
    """The level by its name. Error: CONFIG_INVALID."""
    for known in LEVELS:
        if level == known:
            return known
    raise StreamSqlError(
        "CONFIG_INVALID",
        "unknown consistency",
        given=repr(level),
        allowed=", ".join(LEVELS),
    )


def _newest(reader: MetaReader, level: Consistency) -> _State:
    # Read this first: a barrier that is committed later is then in the reads below.
    unfinished = _shown(reader.unfinished(), level)
    last = reader.last_committed()
    versions, roots = reader.latest_all(), reader.inputs_as_of(last)
    for barrier in unfinished:
        if barrier.id > last:
            last = barrier.id
            versions |= {version.table: version for version in reader.versions(last)}
            roots |= reader.inputs(last)
    return _State(last, versions, roots)


def _shown(unfinished: Sequence[Barrier], level: Consistency) -> list[Barrier]:
    return [barrier for barrier in unfinished if barrier.state in _SHOWN[level]]


def _at(reader: MetaReader, barrier: int) -> _State:
    return _State(barrier, reader.latest_all(barrier), reader.inputs_as_of(barrier))


def _together(reader: MetaReader, newest: _State, group: Sequence[str]) -> _State:
    """The newest barrier at which all tables of the group are consistent."""
    stale = newest.stale(group)
    if not stale:
        return newest
    earlier = _fresh_before(reader, newest, group)
    if earlier is not None:
        return earlier
    raise StreamSqlError(
        "CONSISTENCY_UNAVAILABLE",
        "no barrier has these tables in a consistent state",
        given=f"{', '.join(group)}; not up to date at barrier {newest.barrier}: "
        f"{', '.join(stale)}",
        allowed="tables that the same run brought up to date",
        hint="refresh all of them in one run (`dbt run`, or Engine.advance()), "
        "or read with consistency read_uncommitted",
    )


def _fresh_before(reader: MetaReader, newest: _State, tables: Sequence[str]) -> _State | None:
    # Include that one: others may have been committed while its parts were read.
    for barrier in reader.committed_before(newest.barrier + 1, LOOKED_BACK):
        earlier = _at(reader, barrier)
        if not earlier.stale(tables):
            return earlier
    return None


def _complete(reader: MetaReader, state: _State, tables: Sequence[str]) -> _State:
    """The newest barrier whose root data these tables contain in full; the state before all
    barriers if there is none among those tried."""
    if not state.stale(tables):
        return state
    return _fresh_before(reader, state, tables) or _State(0, {}, {})


def _groups(tables: Sequence[str], state: _State) -> list[tuple[set[str], list[str]]]:
    """The tables by connected group, with the roots that the tables of a group share."""
    groups: list[tuple[set[str], list[str]]] = []
    for table in tables:
        near, members = state.below(table), [table]
        apart = []
        for known, others in groups:
            if known & near:
                near |= known
                members = [*others, *members]
            else:
                apart.append((known, others))
        groups = [*apart, (near, members)]
    return groups
