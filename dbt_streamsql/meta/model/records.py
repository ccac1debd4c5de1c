"""What MetaService remembers: barriers, table versions, jobs, change files and the runner's fence.

Plain frozen records, equal when their fields are. Table names are the plain three-part key
(`str(TableName)`), snapshots are Iceberg snapshot ids, times are seconds since 1970 (UTC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

# JSON Schema's limits are floats, which cannot represent the last one.
Int64 = Annotated[
    int,
    Field(strict=True, ge=-(1 << 63), le=(1 << 63) - 1),
    WithJsonSchema({"type": "integer", "format": "int64"}),
]
Int32 = Annotated[int, Field(strict=True, ge=-(1 << 31), le=(1 << 31) - 1)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
"""What a store can keep; these limits are checked where records arrive from other processes."""

Name = Annotated[str, Field(pattern=r"^[^\x00]*$", min_length=1, max_length=1000)]

BarrierState = Literal["OPEN", "PRECOMMIT", "COMMIT", "ABORT"]
VersionState = Literal["PROCESSED", "WRITTEN"]

NOOP = "noop"
"""The `mode` of a version that only records: at this barrier the table is unchanged."""


ROLLBACK = "rollback"
"""The `mode` of a version that is an earlier one of the table."""

ROLLED_BACK = "rolled_back_to"
"""In the stats of a version: the barrier whose rows it continues from, instead of the newest."""


@dataclass(frozen=True)
class Fence:
    """The right to write: the newest `token` wins, `owner` is `host:pid:random`."""

    token: Int64
    owner: Text

    def __str__(self) -> str:
        return f"fence {self.token} of {self.owner or 'no owner'}"


@dataclass(frozen=True)
class Barrier:
    """One timestamp barrier. `fence` is the token that began it; `ended_at` is None while open."""

    id: Int64
    state: BarrierState
    fence: Int64
    started_at: Real
    ended_at: Real | None = None


@dataclass(frozen=True)
class Pin:
    """The version of a root table that a barrier reads; `committed_at` is None if not known."""

    snapshot: Int64 | None
    committed_at: Real | None = None


@dataclass(frozen=True)
class Span:
    """What a streaming table reads of its stream: after one position (None: from the beginning)
    up to another. What a position means, only its connector knows; it is a JSON object."""

    after: Mapping[str, Any] | None
    upto: Mapping[str, Any]


@dataclass(frozen=True)
class TableVersion:
    """The version of one table at one barrier, and how it came to be.

    `snapshot` is None for a table that has none yet. `staged_at` is '' when the version waits on
    `branch` of the table itself, else the full name of the staging table that becomes `table` by
    rename. `inputs` are the snapshots this version was computed from; `seconds` is wall time from
    `started_at` on, `written_at` when it became visible (None: not yet, or not known).
    `stats` are figures for people and for the next choice of how to refresh.
    """

    barrier: Int64
    table: Name
    state: VersionState = "PROCESSED"
    snapshot: Int64 | None = None
    staged_at: Text = ""
    branch: Text = ""
    created: bool = False
    mode: Text = "full"
    reason: Text = ""
    rows_inserted: Int64 = 0
    rows_deleted: Int64 = 0
    jobs: Int32 = 0
    seconds: Real = 0.0
    started_at: Real | None = None
    written_at: Real | None = None
    inputs: Mapping[Name, Int64 | None] = field(default_factory=dict)
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

    table: Name
    unique_id: Text
    sql: Text
    refresh_mode: Text = "auto"
    config: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: Text = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    columns: list[dict[str, Any]] = field(default_factory=list)
    sources: tuple[Name, ...] = ()
    created_barrier: Int64 = 0
    table_uuid: Text = ""


@dataclass(frozen=True)
class Published:
    """A schema of SQL views that show the maintained ones; `with_schema`: as `<schema>_<name>`."""

    schema: Name
    with_schema: bool = False


@dataclass(frozen=True)
class Sink:
    """What is delivered of a maintained table to a system outside, and how far that has come.

    `name` is the model's, three parts as a table's; `table` is what its query reads. `config` says
    where to and how (see `runtime/deliver`), without secrets. `fingerprint` changes when the
    records would be other ones. `delivered`: the barrier up to which the target has the changes
    (0: it has nothing); `under_way`: the barrier of a delivery that may have been made in part
    (0: there is none). `replaces`: what the target has may be replaced by the whole table.
    `failing_since`: since when no delivery has succeeded (None: the last one has), `problem` why.
    """

    name: Name
    table: Name
    unique_id: Text
    sql: Text
    config: Mapping[str, Any] = field(default_factory=dict)
    columns: list[dict[str, Any]] = field(default_factory=list)
    fingerprint: Text = ""
    delivered: Int64 = 0
    under_way: Int64 = 0
    replaces: bool = False
    delivered_at: Real | None = None
    failing_since: Real | None = None
    problem: Text = ""


@dataclass(frozen=True)
class Lease:
    """A committed barrier that `owner` (`host:pid:random`) goes on reading until `expires_at`."""

    id: Text
    owner: Text
    barrier: Int64
    taken_at: Real
    expires_at: Real


@dataclass(frozen=True)
class Leader:
    """The runner `owner` (`host:pid:random`) goes to work until `expires_at`; others stand by."""

    owner: Text
    expires_at: Real


@dataclass(frozen=True)
class Entry:
    """One line of the audit log: who did what to the ledger, and when."""

    id: Int64
    at: Real
    who: Text
    action: Text
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChangeFile:
    """Where the signed change of `table` at `barrier` is written, for the jobs that read it."""

    table: Name
    barrier: Int64
    path: Text
    rows: Int64
