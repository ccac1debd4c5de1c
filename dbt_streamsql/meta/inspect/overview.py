"""The data of `streamsql status`, `topology`, `barrier`, the pages and the metrics. Pure.

All times are seconds, moments are seconds since 1970. The records are plain: `asdict` makes JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from dbt_streamsql.meta.inspect import delay as delays
from dbt_streamsql.meta.inspect import event_time
from dbt_streamsql.meta.inspect.delay import (
    Contribution,
    Delay,
    Path,
    Progress,
)
from dbt_streamsql.meta.inspect.history import LAST_FULL, SIZE, History
from dbt_streamsql.meta.model import stream_nodes
from dbt_streamsql.meta.model import topology as order
from dbt_streamsql.meta.model.freshness import Freshness, Staleness, freshness_of
from dbt_streamsql.meta.model.records import (
    NOOP,
    Barrier,
    Leader,
    Sink,
    TableVersion,
)
from dbt_streamsql.meta.model.stored_definition import definition_of

Kind = Literal["root", "view", "state", "changelog", "sink", "stream"]
State = Literal["current", "behind", "staged", "unbuilt", "root", "failing"]

SETTLED = ("COMMIT", "ABORT")


@dataclass(frozen=True)
class Node:
    """One table of the current topology.

    `kind`: a root has other writers, a view is written by its job, a changelog with its view; a
    state table holds the rows of a part of views' queries; a stream is the source of a streaming
    table's records; a sink is outside, `behind` when a delivery is pending and `failing` when
    that did not succeed.
    `state`: `behind` when an input has a newer version than the one applied, `unbuilt`
    when there is no version yet, `staged` when a barrier that is not committed holds one.
    `barrier`, `mode`, `rows` (inserted, deleted), `seconds`, `delay` and `size` (rows, and bytes
    of their files) are of the newest version that changed the table. `changed_at` is when that
    became visible; for a root, when the newest pinned version was committed. `last_full` are the
    seconds of the newest refresh in full. `event_time`: the
    table has the records of its streams up to there, where they have barriers of event time and it
    has applied all of them; `event_delay` is from then until that was visible. `freshness` are the
    limits that its model sets (None: none).
    """

    table: str
    kind: Kind
    state: State
    barrier: int | None = None
    mode: str = ""
    rows: tuple[int, int] | None = None
    seconds: float | None = None
    delay: float | None = None
    delay_exact: bool = True
    changed_at: float | None = None
    bottleneck: bool = False
    event_time: float | None = None
    event_delay: float | None = None
    size: tuple[int, int] | None = None
    last_full: float | None = None
    freshness: Freshness | None = None

    def staleness(self, now: float) -> Staleness:
        """Which limit the age of its newest change exceeds at the moment `now`."""
        if self.freshness is None or self.changed_at is None:
            return ""
        return self.freshness.of_age(now - self.changed_at)


@dataclass(frozen=True)
class Edge:
    """`sink` reads `source`. `delay` and `rows` (inserted, deleted by the sink) are of the sink's
    newest change; `critical` when both were on the critical path of the newest barrier."""

    source: str
    sink: str
    state: State
    delay: float | None = None
    rows: tuple[int, int] | None = None
    critical: bool = False


@dataclass(frozen=True)
class Topology:
    """The graph of tables; `levels` are its nodes, roots first, each reading earlier ones."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    levels: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class BarrierSummary:
    """One barrier in a list. `delay` is the greatest of its tables, `modes` counts tables, and
    `event_time` is its event-time progress (None: no stream has event time)."""

    id: int
    state: str
    started_at: float
    ended_at: float | None
    seconds: float | None
    modes: dict[str, int]
    delay: float | None
    path: Path
    event_time: float | None = None


@dataclass(frozen=True)
class BarrierDetail:
    """One barrier, its jobs in the order of their start, and the delays of its tables."""

    summary: BarrierSummary
    jobs: tuple[Progress, ...]
    delays: tuple[Delay, ...]
    roots: tuple[tuple[str, int | None, float | None], ...]


@dataclass(frozen=True)
class Status:
    """What a warehouse is doing. `age` is how long ago the newest committed barrier ended,
    `leader` is the runner in charge, and `leads_for` how long it stays so if silent. `stale` are
    the tables that exceed a limit of their `freshness`, with the limit: warn or error."""

    barrier: int
    age: float | None
    unfinished: tuple[Barrier, ...]
    owner: str
    leases: int
    tables: tuple[Node, ...]
    contributions: tuple[Contribution, ...]
    leader: str = ""
    leads_for: float | None = None
    stale: Mapping[str, Staleness] = field(default_factory=dict)


def newest_changes(history: History) -> dict[str, TableVersion]:
    """The newest committed version of each table that changed it."""
    found = {}
    for table in sorted(history.maintained):
        changed = [version for version in history.committed(table) if version.mode != NOOP]
        if changed:
            found[table] = changed[-1]
    return found


def topology(history: History) -> Topology:
    """The current graph with the state of every table and edge."""
    return _Graph(history).topology()


def status(
    history: History, now: float, owner: str = "", leases: int = 0, leader: Leader | None = None
) -> Status:
    """What the warehouse is doing at the moment `now`; `owner` is the runner ('' if none)."""
    last, tables = history.newest_committed, topology(history).nodes
    return Status(
        last.id if last else 0,
        now - last.ended_at if last and last.ended_at else None,
        tuple(barrier for barrier in history.barriers if barrier.state not in SETTLED),
        owner,
        leases,
        tables,
        delays.contributions(history),
        leader.owner if leader is not None else "",
        max(leader.expires_at - now, 0.0) if leader is not None else None,
        {node.table: limit for node in tables if (limit := node.staleness(now))},
    )


def barriers(history: History) -> tuple[BarrierSummary, ...]:
    """The barriers, newest first."""
    late = delays.delays(history, [v for at in history.versions.values() for v in at.values()])
    return tuple(_summary(history, barrier, late.values()) for barrier in history.barriers[::-1])


def barrier(history: History, number: int) -> BarrierDetail | None:
    """One barrier; None when it is not among those of the history."""
    found = history.at(number)
    if found is None:
        return None
    versions = history.versions.get(number, {})
    late = delays.delays(history, versions.values())
    roots = sorted(history.pins.get(number, {}).items())
    return BarrierDetail(
        _summary(history, found, late.values()),
        delays.progress(history, number),
        tuple(late.values()),
        tuple((table, pin.snapshot, pin.committed_at) for table, pin in roots),
    )


def modes(versions: Iterable[TableVersion]) -> dict[str, int]:
    """The number of versions in each mode."""
    return dict(sorted(Counter(version.mode for version in versions).items()))


def _summary(history: History, found: Barrier, late: Iterable[Delay]) -> BarrierSummary:
    return BarrierSummary(
        found.id,
        found.state,
        found.started_at,
        found.ended_at,
        found.ended_at - found.started_at if found.ended_at else None,
        modes(history.versions.get(found.id, {}).values()),
        max((item.seconds for item in late if item.barrier == found.id), default=None),
        delays.critical_path(history, found.id),
        event_time.of_barrier(history.versions.get(found.id, {}).values()),
    )


class _Graph:
    """Builds the topology."""

    def __init__(self, history: History) -> None:
        self.history, self.jobs = history, history.jobs
        self.changed = newest_changes(history)
        self.late = delays.delays(history, self.changed.values())
        self.snapshots = _newest_snapshots(history)
        last = history.newest_committed
        path = delays.critical_path(history, last.id) if last else Path(0, 0.0, ())
        self.slowest = path.bottleneck.table if path.bottleneck else ""
        on_path = [step.table for step in path.steps]
        self.critical = set(pairwise(on_path))
        self.events: dict[str, tuple[float, float | None] | None] = {}
        self.staged = {
            version.table
            for barrier in history.barriers
            if barrier.state not in SETTLED
            for version in history.versions.get(barrier.id, {}).values()
            if version.mode != NOOP
        }

    def topology(self) -> Topology:
        reads = [(source, job.table) for job in self.jobs.values() for source in job.sources]
        # A changelog that is read has no job: it is written with its view.
        logs = {s for s, _ in reads if s not in self.jobs and s in self.history.maintained}
        views = {log: next(iter(self.changed[log].inputs), "") for log in logs & set(self.changed)}
        edges = [
            self._edge(*pair) for pair in sorted({*reads, *((v, k) for k, v in views.items())})
        ]
        levels = order.topological_order(
            {job.table: [views.get(s, s) for s in job.sources] for job in self.jobs.values()}
        )
        roots = tuple(sorted({s for s, _ in reads} - self.history.maintained))
        nodes = [_root(self.history, table) for table in roots]
        behind = {edge.sink for edge in edges if edge.state == "behind"}
        nodes += [self._node(t, self._kind(t), t in behind) for level in levels for t in level]
        nodes += [self._node(table, "changelog", False) for table in sorted(logs)]
        flows = sorted(
            (node, t) for t, job in self.jobs.items() if (node := stream_nodes.node(job))
        )
        nodes = [self._stream(name, flows) for name in dict(flows)] + nodes
        edges += [replace(self._edge(*pair), critical=False) for pair in flows]
        roots = (*dict(flows), *roots)
        sinks = self.history.sinks
        nodes += [self._sink(sink) for sink in sinks]
        edges += [Edge(sink.table, sink.name, self._sink(sink).state) for sink in sinks]
        shown = (roots, *(tuple(level) for level in levels), tuple(sink.name for sink in sinks))
        return Topology(tuple(nodes), tuple(edges), tuple(level for level in shown if level))

    def _stream(self, name: str, flows: Iterable[tuple[str, str]]) -> Node:
        """A stream, and the newest barrier that read it."""
        read = [self.changed[t].barrier for of, t in flows if of == name and t in self.changed]
        return Node(name, "stream", "root", max(read, default=None))

    def _sink(self, sink: Sink) -> Node:
        versions = self.history.committed(sink.table)
        behind = bool(versions) and versions[-1].barrier > sink.delivered
        state: State = "behind" if behind else "current"
        if not sink.delivered:
            state = "unbuilt"
        if sink.failing_since is not None:
            state = "failing"
        at = sink.delivered or None
        return Node(sink.name, "sink", state, at, "delivered", changed_at=sink.delivered_at)

    def _edge(self, source: str, sink: str) -> Edge:
        late = self._delay(sink)
        return Edge(
            source,
            sink,
            self._edge_state(source, sink),
            late.seconds if late else None,
            _rows(self.changed.get(sink)),
            (source, sink) in self.critical,
        )

    def _edge_state(self, source: str, sink: str) -> State:
        """From the sink's newest record, including noops: they also record what it has applied."""
        versions = self.history.committed(sink)
        if not versions:
            return "unbuilt"
        seen, newest = versions[-1].inputs, self.snapshots
        if source not in seen or source not in newest or seen[source] == newest[source]:
            return "current"
        return "behind"

    def _kind(self, table: str) -> Kind:
        return "state" if definition_of(self.jobs[table]).part else "view"

    def _node(self, table: str, kind: Kind, behind: bool) -> Node:
        version, late = self.changed.get(table), self._delay(table)
        state: State = "staged" if table in self.staged else "behind" if behind else "current"
        if version is None:
            return self._unchanged(table, kind, state)
        upto, event_delay = self._event(table) or (None, None)
        return Node(
            table,
            kind,
            state,
            version.barrier,
            version.mode,
            _rows(version),
            version.seconds,
            late.seconds if late else None,
            late.since.exact if late else True,
            version.written_at,
            table == self.slowest,
            upto,
            event_delay,
            _size(version),
            version.stats.get(LAST_FULL),
            self._freshness(table),
        )

    def _unchanged(self, table: str, kind: Kind, state: State) -> Node:
        """A table that none of the known barriers has changed: it has no version, or one from
        before them, of which the records of later barriers still say when it became visible."""
        known = self.history.committed(table)
        if not known:
            return Node(table, kind, "staged" if table in self.staged else "unbuilt")
        return Node(
            table,
            kind,
            state,
            changed_at=known[-1].written_at,
            size=_size(known[-1]),
            last_full=known[-1].stats.get(LAST_FULL),
            freshness=self._freshness(table),
        )

    def _freshness(self, table: str) -> Freshness | None:
        job = self.jobs.get(table)
        return freshness_of(definition_of(job).properties) if job is not None else None

    def _event(self, table: str) -> tuple[float, float | None] | None:
        """The event time of a table, and how late it was; for a view, of its slowest stream."""
        if table not in self.events:
            self.events[table] = event_time.of_table(self.history, table)
            job = self.jobs.get(table)
            sources = job.sources if job is not None else ()
            found = [told for source in sources if (told := self._event(source)) is not None]
            if found and all(self._edge_state(source, table) == "current" for source in sources):
                self.events[table] = min(found)
        return self.events[table]

    def _delay(self, table: str) -> Delay | None:
        version = self.changed.get(table)
        return self.late.get((version.barrier, table)) if version else None


def _size(version: TableVersion) -> tuple[int, int] | None:
    known = version.stats.get(SIZE)
    return (known[0], known[1]) if known else None


def _root(history: History, table: str) -> Node:
    for barrier in reversed(history.barriers):
        pin = history.pins.get(barrier.id, {}).get(table)
        if pin is not None:
            return Node(table, "root", "root", barrier.id, changed_at=pin.committed_at)
    return Node(table, "root", "root")


def _rows(version: TableVersion | None) -> tuple[int, int] | None:
    return (version.rows_inserted, version.rows_deleted) if version else None


def _newest_snapshots(history: History) -> dict[str, int | None]:
    """The newest committed version of each table that some barrier has seen."""
    found = {
        table: versions[-1].snapshot
        for table in history.maintained
        if (versions := history.committed(table))
    }
    # A view that was a table of others at some barrier has versions of its own since.
    ours = frozenset(found)
    for barrier in history.barriers:
        if barrier.state == "COMMIT":
            for table, pin in history.pins.get(barrier.id, {}).items():
                if table not in ours:
                    found[table] = pin.snapshot
    return found
