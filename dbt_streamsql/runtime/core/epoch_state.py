"""What every part of an epoch shares: sessions, MetaService, and the pinned inputs."""

from __future__ import annotations

import logging
import posixpath
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Fence, Job, MetaStore, Retention, Sink, TableVersion
from dbt_streamsql.meta.inspect.history import LAST_FULL
from dbt_streamsql.meta.model.stored_definition import definition_of, known_plan
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.plan.program.steps import Changes
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.core.clock import (
    Clock,
    SystemClock,
    Workers,
    drawn,
    threads,
)
from dbt_streamsql.runtime.core.event_time import Watermark
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.core.row_expiry import APPROXIMATE, EXPIRED
from dbt_streamsql.runtime.core.stored_rows import KnownRows
from dbt_streamsql.runtime.core.ways import Costs
from dbt_streamsql.runtime.spark.session_pool import SessionPool
from dbt_streamsql.runtime.spark.shared_relations import SharedRelations
from dbt_streamsql.storage.conf import warehouse_of
from dbt_streamsql.storage.iceberg import staging
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.inputs import inputs
from dbt_streamsql.tuning import Tuning

if TYPE_CHECKING:
    from dbt_streamsql.runtime.refresh.spark_program import Programs

log = logging.getLogger("dbt_streamsql")

LISTINGS = "listings"
"""The key of a version's stats with the files of its inputs without versions, as digests."""

ONE_MOMENT = "one_moment"
"""The key of a version's stats: the tables of declared keys were read as they were at one moment,
see `core/key_moment.py`."""

OWN_KEYS = "own_keys"
"""The key of a version's stats: the keys of maintained tables, by themselves, that held for the
rows that were read, see `core/own_keys.py`."""

_KEPT = (EXPIRED, APPROXIMATE, LAST_FULL, LISTINGS, ONE_MOMENT, OWN_KEYS)


@dataclass(frozen=True)
class Version:
    """One version of an input: `at` is where it is read (a staging table before publishing).

    `barrier` is set when a job of this warehouse wrote it.
    """

    at: TableName
    meta: Metadata
    snapshot: int | None
    barrier: int = 0


@dataclass
class Warehouse:
    """One warehouse: its Spark sessions, its catalog, its MetaService store, and what is kept.

    `connections`: options of streams by name, with what must not be kept in a definition.
    `tuning`: the limits by which ways are chosen. `clock`, `new_name` and `workers`: the time,
    unique names, and threads.
    `programs`: what runs the programs of views (`refresh/spark_program.Programs`). `costs`: what
    that has taken so far, `known_rows`: the rows of small views.
    `unswept`: an epoch was published and could not remove what it had staged. `untagged`: tables
    of other owners that refused a tag; they are not tried again. `refusals`: how often in a row
    the catalog has refused a transaction over several tables.
    """

    sessions: SessionPool
    store: MetaStore
    catalog: str
    retention: Retention = field(default_factory=Retention)
    connections: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    tuning: Tuning = field(default_factory=Tuning)
    clock: Clock = field(default_factory=SystemClock)
    new_name: Callable[[], str] = drawn
    workers: Workers = threads
    programs: Programs = field(kw_only=True)
    costs: Costs = field(default_factory=Costs)
    known_rows: KnownRows = field(init=False)
    unswept: bool = field(default=False, init=False)
    untagged: set[str] = field(default_factory=set, init=False)
    refusals: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.known_rows = KnownRows(self.tuning.held_bytes)

    @property
    def store_id(self) -> str:
        """Eight characters that distinguish this store's tags from another's."""
        return self.store.id

    @property
    def location(self) -> str:
        """The folder or URI of the catalog's warehouse ('' when the catalog decides itself)."""
        return self.location_of(self.catalog)

    def location_of(self, catalog: str) -> str:
        """The same for any catalog of the session."""
        return warehouse_of(self.sessions.main, catalog)

    def place_of(self, name: TableName) -> str:
        """The folder of a new table, next to the others of its schema ('': the catalog decides).

        With a suffix: a name may be used again later.
        """
        folder = f"{name.table}-{self.new_name()[:8]}"
        return posixpath.join(self.location, name.schema, folder) if self.location else ""


@dataclass(frozen=True)
class Replay:
    """How some views are recomputed from an earlier barrier while all others stay as they are.

    `starts`: the versions that their rows go back to before the changes since then are applied;
    `anew`: why the other views are computed in full; `since`: the barrier that they all go back to
    (0: none does). `roots`: the snapshots of outside tables to read.
    """

    views: tuple[str, ...]
    starts: Mapping[str, TableVersion]
    anew: Mapping[str, str]
    roots: Mapping[str, int | None]
    since: int = 0


@dataclass
class EpochState:
    """The state of one open epoch. `lock` guards everything that jobs in threads share.

    `sinks` are definitions that take effect when it is published. `clock` is what `now()` means in
    it, in microseconds since 1970, `watermark` how far event time comes; `replay` is set while
    views are revised. `changes` and `versions` are those of inputs that several views read.
    `together`: inputs that were pinned as they were at one moment; `torn`: those whose versions
    may break a declared key. `taken` are tables of other writers that views of this epoch replace.
    """

    warehouse: Warehouse
    fence: Fence
    jobs: dict[str, Job]
    latest: dict[str, TableVersion]
    number: int = 0
    pins: dict[str, Version] = field(default_factory=dict)
    together: set[str] = field(default_factory=set)
    torn: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    done: dict[str, TableVersion] = field(default_factory=dict)
    staged: dict[str, Version] = field(default_factory=dict)
    definitions: dict[str, Job] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)
    staging_count: int = 0
    clock: int = field(init=False)
    changes: SharedRelations = field(default_factory=SharedRelations)
    versions: SharedRelations = field(default_factory=SharedRelations)
    replay: Replay | None = None
    watermark: Watermark = field(default_factory=Watermark)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.clock = int(self.warehouse.clock.time() * 1_000_000)

    def readers(self, table: str) -> bool:
        """Whether another view reads this one."""
        return any(table in job.sources for job in self.jobs.values())

    def ages(self, table: str) -> bool:
        """Whether a view that forgets reads this one, so that its rows must keep their ages."""
        return reads_ages(self.jobs, table)

    def before(self, table: str) -> TableVersion | None:
        """The version that a job continues from; None for a table that has none yet."""
        return self.start(table) or self.latest.get(table)

    def start(self, table: str) -> TableVersion | None:
        """The earlier version that the table goes back to in this epoch, if it does."""
        return self.replay.starts.get(table) if self.replay is not None else None

    def barrier(self) -> int:
        """The barrier's number; it begins with the first thing to stage."""
        with self.lock:
            if not self.number:
                with failpoint("barrier.begin"):
                    begun = self.warehouse.store.begin(self.fence, *self.pinned())
                    self.number = begun.id
            return self.number

    def pinned(self) -> tuple[dict[str, int | None], dict[str, float]]:
        """The inputs from outside: the snapshots that this epoch reads, and when each was made."""
        with self.lock:
            outside = {t: p for t, p in self.pins.items() if t not in self.jobs}
        made = {
            table: at.meta.snapshots[at.snapshot].committed / 1000
            for table, at in outside.items()
            if at.snapshot is not None and at.snapshot in at.meta.snapshots
        }
        return {table: at.snapshot for table, at in outside.items()}, made

    def shared_columns(self, table: str, seen: int | None) -> tuple[str, ...]:
        """The columns of an input's change that the views which last saw `seen` use.

        () when fewer than two of them do: then there is nothing to share.
        """
        users = [
            found
            for name, job in self.jobs.items()
            if table in job.sources
            and (last := self.before(name)) is not None
            and last.inputs.get(table) == seen
            and (found := _changes_of(job, table))
        ]
        columns = dict.fromkeys(
            column for steps in users for step in steps for column in step.columns
        )
        return tuple(columns) if len(users) > 1 else ()

    def staging_place(self, table: TableName) -> TableName:
        """Where the next new table of this barrier is built."""
        with self.lock:
            self.staging_count += 1
            number = self.staging_count
        return staging.staging_name(table, self.barrier(), number, self.warehouse.store_id)


def reads_ages(jobs: Mapping[str, Job], table: str) -> bool:
    """Whether a view forgets rows of a table, whose age it derives from their commits."""
    return any(
        table in dict(plan.ttls)
        for job in jobs.values()
        if table in job.sources and (plan := known_plan(job)) is not None
    )


def registered(jobs: Mapping[str, Job], table: str) -> Job:
    """The definition of a maintained table. Error: DEFINITION_MISSING."""
    job = jobs.get(table)
    if job is None:
        raise StreamSqlError("DEFINITION_MISSING", f"{table} is not a materialized view")
    return job


def pin(epoch: EpochState, table: str) -> Version:
    """The version of an input that this epoch reads: what a job staged, else what was pinned."""
    with epoch.lock:
        if table in epoch.staged:
            return epoch.staged[table]
        if table not in epoch.pins:
            name = TableName.parse(table)
            found = inputs.load(epoch.warehouse.sessions.main, name)
            if found is not None:
                found = inputs.as_read(found, int(epoch.warehouse.clock.time() * 1000))
            if found is None:
                raise StreamSqlError(
                    "TABLE_MISSING",
                    f"{table} does not exist",
                    hint="create it, or run the model that builds it first",
                )
            previous = epoch.before(table)
            snapshot = found.current
            if previous is not None and table in epoch.jobs:
                snapshot = previous.snapshot
            elif epoch.replay is not None:
                snapshot = epoch.replay.roots.get(table, snapshot)
            if epoch.start(table) is not None:
                found = replace(found, current=snapshot)
            barrier = previous.barrier if previous is not None else 0
            epoch.pins[table] = Version(name, found, snapshot, barrier)
        return epoch.pins[table]


def waiting(owner: str) -> None:
    """Say that another process has the right to write."""
    log.warning("waiting for the run of %s on this warehouse to end (Ctrl-C to stop)", owner)


def readable(job: Job | None, text: str, meta: Metadata | None = None) -> str:
    """The SQL that reads a version of a table without the engine's own columns.

    Without a `job` it may be a view of another boundary, as `meta` shows.
    """
    if job is not None:
        hidden = definition_of(job).hidden
        names = [column["name"] for column in job.columns] if hidden else []
    else:
        names = _visible(meta) if meta is not None else []
    return f"(SELECT {', '.join(map(quote, names))} FROM {text})" if names else text


def _visible(meta: Metadata) -> list[str]:
    """The visible columns of a table that also has columns of an engine; none for other tables."""
    names = [field["name"] for field in meta.schemas.get(meta.schema_id, ())]
    shown = [name for name in names if not name.startswith(HIDDEN_PREFIX)]
    return shown if shown != names else []


def repin(epoch: EpochState, table: str) -> None:
    """Forget the pin of a table that the same run has just written."""
    with epoch.lock:
        epoch.pins.pop(table, None)


def unchanged(version: TableVersion, inputs: dict[str, int | None]) -> TableVersion:
    """The record of an unchanged table; its barrier is filled in when there is one."""
    stats = {key: version.stats[key] for key in _KEPT if key in version.stats}
    if inputs != version.inputs:
        stats.pop(ONE_MOMENT, None)
        stats.pop(OWN_KEYS, None)
    return replace(
        version,
        barrier=0,
        state="PROCESSED",
        staged_at="",
        branch="",
        created=False,
        mode="noop",
        reason="",
        rows_inserted=0,
        rows_deleted=0,
        jobs=0,
        seconds=0.0,
        inputs=inputs,
        stats=stats,
    )


def _changes_of(job: Job, table: str) -> list[Changes]:
    """The steps of a view's program that read all that changed in a table.

    Where old rows expire, each view reads the unexpired ones for itself.
    """
    plan = known_plan(job)
    return [
        step
        for step in (plan.steps if plan is not None else ())
        if isinstance(step, Changes) and step.table == table and not step.ttl
    ]
