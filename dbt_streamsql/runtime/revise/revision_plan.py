"""Revise a table: it and all tables derived from it go back to one barrier and forward again.

HOW 5 of FLIP-276. Changes after that barrier are not lost: they are read once more, from the
snapshots of the outside tables that the newest barrier recorded. So the revised tables are as of
the same moment as those that are left alone, and all are published as one barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import NOOP, Job, TableVersion
from dbt_streamsql.meta.model import topology
from dbt_streamsql.meta.model.stored_definition import plan_of
from dbt_streamsql.plan.algebra.relational import CLOCK
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.changelog import changelog_table
from dbt_streamsql.runtime.core.epoch_state import Replay, Warehouse
from dbt_streamsql.runtime.core.row_expiry import APPROXIMATE
from dbt_streamsql.runtime.ingest import stream_definition
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.inputs import inputs

Mode = Literal["auto", "incremental", "full"]
MODES: tuple[Mode, ...] = ("auto", "incremental", "full")

_MOST = 0.3
"""Changed rows, as a share of the rows of the inputs, above which a view is recomputed in full."""


@dataclass(frozen=True)
class Revision:
    """A request: the table, the barrier to go back to, a correction (SQL), and the mode.

    For an outside table the correction is INSERT, UPDATE, DELETE and MERGE statements, which run
    after going back; for a view it is its new query.
    """

    table: TableName
    to_barrier: int | None = None
    sql: str = ""
    mode: Mode = "auto"


@dataclass(frozen=True)
class Step:
    """What happens to one table: `mode` is incremental, full, or for an outside table `root`.

    `undone` bounds the changed rows that are undone, `replayed` those of outside tables that are
    read again (for `full`: all their rows). `reason` says why it is full.
    """

    table: str
    mode: str
    undone: int = 0
    replayed: int = 0
    reason: str = ""


@dataclass(frozen=True)
class RevisionPlan:
    """What a revision will do, in order.

    `barrier`: the barrier to go back to (0: none); `upto`: the last one, whose inputs are read
    again. `root`: the snapshot that an outside table goes back to (None: it stays where it is).
    `left_alone`: the views that are not derived from the table.
    """

    revision: Revision
    barrier: int
    upto: int
    steps: tuple[Step, ...]
    left_alone: tuple[str, ...]
    replay: Replay
    root: int | None = None


def plan(warehouse: Warehouse, revision: Revision) -> RevisionPlan:
    """Plan a revision; nothing is changed.

    Errors: DEFINITION_MISSING, REVISION_IMPOSSIBLE, CONFIG_INVALID, META_CONFLICT when the barrier
    is not committed or no longer kept.
    """
    return _Planner(warehouse, revision).plan()


class _Planner:
    def __init__(self, warehouse: Warehouse, revision: Revision) -> None:
        self._revision = revision
        self._guarded = warehouse.tuning.guarded_rows
        self._spark = warehouse.sessions.main
        self._store = store = warehouse.store
        self._table = str(revision.table)
        self._since = revision.to_barrier or 0
        self._jobs: Mapping[str, Job] = store.jobs()
        self._check()
        self._upto = store.last_committed()
        self._latest = store.latest_all()
        self._then = store.latest_all(self._since) if self._since else {}
        self._roots = store.inputs_as_of(self._upto)
        self._roots_then = store.inputs_as_of(self._since) if self._since else {}
        self._metas: dict[str, Metadata | None] = {}

    def plan(self) -> RevisionPlan:
        views = self._cone()
        starts: dict[str, TableVersion] = {}
        anew: dict[str, str] = {}
        steps, root = [], None
        if self._table not in self._jobs:
            meta = self._root_meta()
            root = self._root_then(meta) if self._since else None
            undone = _rows(meta, root, meta.current) if self._since else 0
            steps.append(Step(self._table, "root", undone))
        for view in views:
            job = self._jobs[view]
            why = self._why_full(job)
            if why:
                anew[view] = why
                read = sum(self._live(source) for source in job.sources)
                undone = self._live(view)
                steps.append(Step(view, "full", undone, read, why))
                continue
            if self._since:
                starts[view] = self._then[view]
            steps.append(Step(view, "incremental", self._undone(view), self._replayed(job)))
        if self._revision.mode == "incremental" and anew:
            told = "; ".join(f"{view}: {why}" for view, why in anew.items())
            raise _impossible(
                "not every table can be revised from changes",
                given=told,
                hint="use --mode auto, or an earlier or later barrier",
            )
        roots = {name: snapshot for name, snapshot in self._roots.items() if name != self._table}
        replay = Replay(tuple(views), starts, anew, roots, self._since)
        left = tuple(view for view in sorted(self._jobs) if view not in views)
        return RevisionPlan(
            self._revision, self._since, self._upto, tuple(steps), left, replay, root
        )

    # -- the request -------------------------------------------------------------------------

    def _check(self) -> None:
        asked = self._revision
        if asked.mode not in MODES:
            raise StreamSqlError(
                "CONFIG_INVALID",
                "unknown revision mode",
                given=repr(asked.mode),
                allowed=", ".join(MODES),
            )
        view = self._table in self._jobs
        sources = {source for job in self._jobs.values() for source in job.sources}
        if not view and self._table not in sources:
            raise StreamSqlError(
                "DEFINITION_MISSING",
                f"{self._table} is not a materialized view, and no view reads it",
                allowed=", ".join(sorted({*self._jobs, *sources}))
                or "nothing: there are no views",
            )
        if not view and changelog_table.wanted(self._jobs, changelog_table.view_of(self._table)):
            raise _impossible(
                f"{self._table} is a changelog, which only records the changes of its view",
                hint=f"revise {changelog_table.view_of(self._table)}",
            )
        job = self._jobs.get(self._table)
        if job is not None and (
            stream_definition.stream_of(job) or stream_definition.is_side_table(job)
        ):
            raise _impossible(
                f"{self._table} holds records of a stream, which may not send them again",
                hint="`dbt run --full-refresh` of its model reads the stream from its beginning; "
                "views that read the table can be revised",
            )
        if not asked.to_barrier and not asked.sql:
            raise _impossible(
                "a revision needs a barrier to go back to, or a correction",
                hint="give --to-barrier, or --sql with a file",
            )
        if view and asked.sql and asked.to_barrier:
            raise _impossible(
                "a new query of a view applies to all of its rows",
                hint="give either --to-barrier or --sql",
            )

    def _cone(self) -> list[str]:
        """The views derived from the table, itself included, in the order of their levels."""
        found = {self._table}
        order = []
        reads = changelog_table.in_order(self._jobs)
        for level in topology.order_of(reads):
            for view in level:
                if view == self._table or found.intersection(reads[view].sources):
                    found.add(view)
                    order.append(view)
        return order

    # -- the steps ---------------------------------------------------------------------------

    def _root_meta(self) -> Metadata:
        meta = self._meta(self._table)
        if meta is None or meta.format != "iceberg":
            raise _impossible(
                f"{self._table} cannot be revised here",
                given="not an Iceberg table" if meta is None else f"a table of {meta.format}",
                allowed="Iceberg tables",
                hint="correct the table directly, then run `dbt run`",
            )
        return meta

    def _root_then(self, meta: Metadata) -> int:
        snapshot = self._roots_then.get(self._table)
        if snapshot is None or snapshot not in meta.snapshots:
            raise _impossible(
                f"{self._table} cannot go back to barrier {self._since}",
                given="its version at that barrier is gone"
                if snapshot is not None
                else "it had no version at that barrier",
                hint="choose a later barrier, or correct it with --sql",
            )
        return snapshot

    def _why_full(self, job: Job) -> str:
        """Why a view cannot be computed from an earlier version and changes; '' when it can."""
        compiled = plan_of(job)
        if self._revision.mode == "full":
            return "a full revision was requested"
        if compiled.mode == "full":
            return "; ".join(compiled.reasons) or "it is always refreshed in full"
        if not self._since:
            return ""
        gone = self._why_gone(job.table, compiled.fingerprint)
        if gone or self._revision.mode == "incremental":
            return gone
        total = sum(self._live(s) for s in job.sources)
        replayed = self._replayed(job)
        if total <= self._guarded or replayed <= _MOST * total:
            return ""
        return f"{replayed:,} changed rows of {total:,}: recomputing is cheaper"

    def _why_gone(self, view: str, fingerprint: str) -> str:
        """Why a view cannot continue from its version at the barrier; '' when it can."""
        version, meta = self._then.get(view), self._meta(view)
        if version is None or meta is None:
            return f"it was built after barrier {self._since}"
        if self._made_by(view) != fingerprint:
            return f"a different definition made its rows at barrier {self._since}"
        if version.snapshot not in meta.snapshots:
            return f"its version at barrier {self._since} is gone"
        for known in (version, self._latest.get(view)):
            # When state was forgotten, and what it had met before, cannot be replayed.
            if known is not None and (since := known.stats.get(APPROXIMATE)) is not None:
                return f"it has forgotten state since barrier {since} because of its `state_ttl`"
        if meta.lags(version.snapshot):
            return f"its columns have changed since barrier {self._since}"
        for source, snapshot in version.inputs.items():
            of = self._meta(source) if source != CLOCK else None
            if of is None:
                continue
            if inputs.classify(of, snapshot, of.current).kind == "lost":
                return f"the version of {source} that it had read is gone"
            if of.lags(snapshot):
                return f"the columns of {source} have changed since barrier {self._since}"
        return ""

    def _made_by(self, view: str) -> str:
        """The fingerprint of the plan that made the rows of a view at the barrier."""
        for version in self._store.history(view):
            if version.barrier <= self._since and version.mode != NOOP:
                return str(version.stats.get("plan", ""))
        return ""

    # -- how many rows -----------------------------------------------------------------------

    def _undone(self, view: str) -> int:
        meta = self._meta(view)
        if not self._since or meta is None:
            return 0
        return _rows(meta, self._then[view].snapshot, meta.current)

    def _replayed(self, job: Job) -> int:
        """The changed rows of its outside tables since the version that it continues from."""
        version = (self._then if self._since else self._latest).get(job.table)
        if version is None:
            return 0
        rows = 0
        for source in job.sources:
            meta = self._meta(source)
            if meta is not None and source in self._roots and source != self._table:
                now = self._roots[source]
                rows += _rows(meta, version.inputs.get(source), now)
        return rows

    def _live(self, table: str) -> int:
        meta = self._meta(table)
        return meta.live_rows(meta.current) if meta is not None else 0

    def _meta(self, table: str) -> Metadata | None:
        if table not in self._metas:
            self._metas[table] = inputs.find(self._spark, TableName.parse(table))
        return self._metas[table]


def _rows(meta: Metadata, old: int | None, new: int | None) -> int:
    """The changed rows between two versions, as far as their commits count them."""
    change = inputs.classify(meta, old, new)
    return change.rows if change.counted else 0


def check(found: RevisionPlan, versions: Iterable[TableVersion]) -> None:
    """REVISION_IMPOSSIBLE when a table was computed in full although only changes were allowed."""
    full = [version for version in versions if version.mode == "full"]
    if found.revision.mode == "incremental" and full:
        raise _impossible(
            "not every table could be revised from changes; nothing was changed",
            given="; ".join(f"{version.table}: {version.reason}" for version in full),
            hint="use --mode auto",
        )


def _impossible(
    message: str, *, given: str = "", allowed: str = "", hint: str = ""
) -> StreamSqlError:
    return StreamSqlError("REVISION_IMPOSSIBLE", message, given=given, allowed=allowed, hint=hint)
