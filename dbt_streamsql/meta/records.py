"""What MetaService remembers: barriers, table versions, jobs, change files and the runner's fence.

Plain frozen records, equal when their fields are. Table names are the plain three-part key
(`str(TableName)`), snapshots are Iceberg snapshot ids, times are seconds since 1970 (UTC).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

BarrierState = Literal["OPEN", "PRECOMMIT", "COMMIT", "ABORT"]
VersionState = Literal["PROCESSED", "WRITTEN"]

NOOP = "noop"
"""The `mode` of a version that only says: at this barrier the table is still what it was."""


@dataclass(frozen=True)
class Fence:
    """The right to write: the newest `token` wins, `owner` is `host:pid:random`."""

    token: int
    owner: str

    def __str__(self) -> str:
        return f"fence {self.token} of {self.owner or 'nobody'}"


@dataclass(frozen=True)
class Barrier:
    """One timestamp barrier. `fence` is the token that began it; `ended_at` is None while open."""

    id: int
    state: BarrierState
    fence: int
    started_at: float
    ended_at: float | None = None


@dataclass(frozen=True)
class Pin:
    """The version of a root table that a barrier reads; `committed_at` is None if not known."""

    snapshot: int | None
    committed_at: float | None = None


@dataclass(frozen=True)
class TableVersion:
    """The version of one table at one barrier, and how it came to be.

    `snapshot` is None for a table that has none yet. `staged_at` is '' when the version waits on
    `branch` of the table itself, else the full name of the staging table that becomes `table` by
    rename. `inputs` are the snapshots this version was computed from; `seconds` is wall time from
    `started_at` on, `written_at` when it became visible (None: not yet, or not known).
    `stats` are figures for people and for the next choice of how to refresh.
    """

    barrier: int
    table: str
    state: VersionState = "PROCESSED"
    snapshot: int | None = None
    staged_at: str = ""
    branch: str = ""
    created: bool = False
    mode: str = "full"
    reason: str = ""
    rows_inserted: int = 0
    rows_deleted: int = 0
    jobs: int = 0
    seconds: float = 0.0
    started_at: float | None = None
    written_at: float | None = None
    inputs: Mapping[str, int | None] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def to_publish(self) -> bool:
        """Is there still something to make visible after PRECOMMIT?"""
        return self.state == "PROCESSED" and self.mode != NOOP


@dataclass(frozen=True)
class Job:
    """The definition of one maintained table: its query, its compiled plan and what it reads.

    `unique_id` is the dbt node (or '' outside dbt); two different ones may not write one table.
    `columns` are `{"name": …, "type": …}` in table order. `fingerprint` changes when the stored
    result no longer answers the query. `created_barrier` is the barrier that built the table.
    """

    table: str
    unique_id: str
    sql: str
    refresh_mode: str = "auto"
    config: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    columns: list[dict[str, Any]] = field(default_factory=list)
    sources: tuple[str, ...] = ()
    created_barrier: int = 0
    table_uuid: str = ""


@dataclass(frozen=True)
class Lease:
    """A committed barrier that `owner` (`host:pid:random`) goes on reading until `expires_at`."""

    id: str
    owner: str
    barrier: int
    taken_at: float
    expires_at: float


@dataclass(frozen=True)
class Entry:
    """One line of the audit log: who did what to the ledger, and when."""

    id: int
    at: float
    who: str
    action: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChangeFile:
    """Where the signed change of `table` at `barrier` is written, for the jobs that read it."""

    table: str
    barrier: int
    path: str
    rows: int
