"""How late tables are, and which job makes them late. Pure: over the records of a `History`.

A version of a table applies the changes that its inputs made since the table's previous version.
The end-to-end delay of table X at barrier t is

    delay(X, t) = published(X, t) - since(X, t)

`published` is when the version became visible. `since` is when the oldest change of a root that
the version applies was committed:

    since(X, t) = min over the inputs I that moved:
                      commit time of the oldest commit that is new to X     I a root
                      since(I, u) of the versions u that are new to X       I a view
                      when the oldest record that is new to X was written   I a stream

No delay is defined (None) for a version that applies no change of a root: a noop (readers of the
table wait for nothing), the first build (there was no table to be late), a rebuild or the passing
of time over unchanged roots. Where the store knows only when the snapshot that a barrier pinned
was committed, not when the oldest new one was, that time is used: the delay is then *at least* the
given value, and `exact` is False.

A delay is the sum of the waits along the critical path: of the jobs that a job waited for at this
barrier, the one that finished last, and so on back.

    delay = waiting + Σ (queued + seconds of each job on the path) + aligning + publishing

`waiting`: from `since` until the first job of the path starts. `aligning`: from the end of the
table's job until the last job of the barrier has ended, since all tables are published together.
So a job that is not on the critical path of the *barrier* makes no table late.

All times are seconds, moments are seconds since 1970. Commit times come from the writers' clocks:
a clock that is ahead makes `waiting` too small, even negative; nothing is rounded away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dbt_streamsql.meta.inspect.history import OLDEST_CHANGE, History
from dbt_streamsql.meta.model.records import NOOP, TableVersion


@dataclass(frozen=True)
class Progress:
    """What one job did at one barrier: start, finish, cost in seconds, rows, state.

    `finished_at` is the end of the computation, `written_at` when the version became visible
    (None: not yet, or a noop). `rows_read` are changed rows of the inputs (None: not known).
    """

    table: str
    barrier: int
    mode: str
    state: str
    started_at: float | None
    finished_at: float | None
    written_at: float | None
    seconds: float
    rows_read: int | None
    rows_inserted: int
    rows_deleted: int
    reason: str = ""


@dataclass(frozen=True)
class Since:
    """The oldest change that a version applies: when it was committed, and to which root."""

    at: float
    root: str
    exact: bool = True


@dataclass(frozen=True)
class Step:
    """One job on a critical path: it was `queued` for seconds after the job before, then ran.

    `share` is (queued + seconds) / the delay that it is a part of, 0 to 1.
    """

    table: str
    queued: float
    seconds: float
    share: float


@dataclass(frozen=True)
class Delay:
    """The end-to-end delay of one version, and its parts; see the module docstring."""

    table: str
    barrier: int
    seconds: float
    since: Since
    until: float
    waiting: float
    steps: tuple[Step, ...]
    aligning: float
    publishing: float


@dataclass(frozen=True)
class Path:
    """The critical path of a barrier: the jobs that decided when it could be published.

    `seconds` run from the start of the first of these jobs until the barrier was published, or
    until the last one ended if it is not; the share of each step is relative to these.
    """

    barrier: int
    seconds: float
    steps: tuple[Step, ...]

    @property
    def bottleneck(self) -> Step | None:
        """The job that contributes most; None when nothing ran."""
        return max(self.steps, key=lambda step: step.seconds, default=None)


@dataclass(frozen=True)
class Contribution:
    """What a job added to the critical paths of several barriers.

    `seconds` is the sum over the `barriers` on whose path it was, `bottleneck_of` the number of
    those that it contributed most to, `share` its fraction of the seconds of all the paths.
    """

    table: str
    seconds: float
    barriers: int
    bottleneck_of: int
    share: float


def progress(history: History, barrier: int) -> tuple[Progress, ...]:
    """What each job did at the barrier, in the order in which they started."""
    done = [_progress(version) for version in history.versions.get(barrier, {}).values()]
    return tuple(sorted(done, key=lambda job: (job.started_at or 0.0, job.table)))


def since(history: History, version: TableVersion) -> Since | None:
    """The oldest change of a root that the version applies; None when there is none."""
    return _Origins(history).of(version)


def delay(history: History, version: TableVersion) -> Delay | None:
    """The end-to-end delay of a version; None when it has none, or is not published."""
    return next(iter(delays(history, [version]).values()), None)


def delays(history: History, versions: Iterable[TableVersion]) -> dict[tuple[int, str], Delay]:
    """The delays of those versions that have one, by barrier and table."""
    origins = _Origins(history)
    found = {}
    for version in versions:
        origin, until = origins.of(version), published_at(history, version)
        if origin is not None and until is not None:
            found[version.barrier, version.table] = _delay(history, version, origin, until)
    return found


def published_at(history: History, version: TableVersion) -> float | None:
    """When the version became visible: from its own record, else from the end of its barrier."""
    if version.mode == NOOP or version.state != "WRITTEN":
        return None
    barrier = history.at(version.barrier)
    return version.written_at or (barrier.ended_at if barrier else None)


def critical_path(history: History, barrier: int) -> Path:
    """The jobs that decided when the barrier could be published, first to last."""
    jobs = history.versions.get(barrier, {})
    ends = {table: end for table, job in jobs.items() if (end := _finish(job)) is not None}
    if not ends:
        return Path(barrier, 0.0, ())
    chain = _chain(jobs, max(ends, key=lambda table: (ends[table], table)))
    began = chain[0].started_at or 0.0
    closed = history.at(barrier)
    until = max(ends.values())
    if closed is not None and closed.state == "COMMIT":
        until = closed.ended_at or until
    return Path(barrier, until - began, _steps(chain, until - began))


def contributions(history: History) -> tuple[Contribution, ...]:
    """What each job added to the critical paths of the committed barriers, greatest first."""
    paths = [
        critical_path(history, barrier.id)
        for barrier in history.barriers
        if barrier.state == "COMMIT"
    ]
    total = sum(path.seconds for path in paths)
    found: dict[str, Contribution] = {}
    for path in paths:
        for step in path.steps:
            known = found.get(step.table, Contribution(step.table, 0.0, 0, 0, 0.0))
            seconds = known.seconds + step.seconds
            found[step.table] = Contribution(
                step.table,
                seconds,
                known.barriers + 1,
                known.bottleneck_of + (path.bottleneck == step),
                seconds / total if total > 0 else 0.0,
            )
    return tuple(sorted(found.values(), key=lambda c: (-c.seconds, c.table)))


class _Origins:
    """Finds `since` of versions, with a cache."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._found: dict[tuple[int, str], Since | None] = {}

    def of(self, version: TableVersion) -> Since | None:
        key = (version.barrier, version.table)
        if key not in self._found:
            # Tables cannot read themselves, but a manually repaired store might say so.
            self._found[key] = None
            self._found[key] = self._look(version)
        return self._found[key]

    def _look(self, version: TableVersion) -> Since | None:
        previous = self._history.previous(version)
        if version.mode == NOOP or version.created:
            return None
        if previous is None:
            return _recorded(version)
        found: list[Since] = []
        for source, snapshot in version.inputs.items():
            # Everything in a newly added input is new, however old it is.
            if source not in previous.inputs or previous.inputs[source] == snapshot:
                continue
            if source in self._history.maintained:
                found += self._of_view(source, previous, version)
            else:
                found += self._of_root(source, previous, version)
        for stream, made in version.stats.get(OLDEST_CHANGE, {}).items():
            if stream not in version.inputs:
                found.append(Since(float(made), stream))
        if not found:
            return None
        oldest = min(found, key=lambda origin: (origin.at, origin.root))
        return Since(oldest.at, oldest.root, all(origin.exact for origin in found))

    def _of_view(
        self, source: str, previous: TableVersion, version: TableVersion
    ) -> Iterable[Since]:
        """For the versions of a view that are new to its reader: those since its last barrier,
        at which it had read the then current version."""
        for taken in self._history.versions_of(source):
            if previous.barrier < taken.barrier <= version.barrier:
                origin = self.of(taken)
                if origin is not None:
                    yield origin

    def _of_root(
        self, source: str, previous: TableVersion, version: TableVersion
    ) -> Iterable[Since]:
        recorded = version.stats.get(OLDEST_CHANGE, {}).get(source)
        if recorded is not None:
            yield Since(float(recorded), source)
            return
        for barrier in range(previous.barrier + 1, version.barrier + 1):
            pin = self._history.pins.get(barrier, {}).get(source)
            if pin is None or pin.committed_at is None:
                continue
            if pin.snapshot != previous.inputs[source]:
                yield Since(pin.committed_at, source, exact=False)
                return


def _recorded(version: TableVersion) -> Since | None:
    """What the job itself recorded: all that is left when the previous version was removed."""
    times = version.stats.get(OLDEST_CHANGE, {})
    known = min(((float(at), root) for root, at in times.items()), default=None)
    return Since(*known, exact=False) if known else None


def _delay(history: History, version: TableVersion, origin: Since, until: float) -> Delay:
    jobs = history.versions.get(version.barrier, {})
    seconds = until - origin.at
    chain = _chain(jobs, version.table)
    own = _finish(version)
    if own is None or not chain or chain[0].started_at is None:
        return Delay(version.table, version.barrier, seconds, origin, until, seconds, (), 0.0, 0.0)
    ends = [end for job in jobs.values() if (end := _finish(job)) is not None]
    # A version published again after a crash was ready long before.
    ready = min(max(ends), until)
    return Delay(
        version.table,
        version.barrier,
        seconds,
        origin,
        until,
        chain[0].started_at - origin.at,
        _steps(chain, seconds),
        ready - own,
        until - ready,
    )


def _chain(jobs: Mapping[str, TableVersion], table: str) -> list[TableVersion]:
    """The job of `table` at a barrier and, back from it, each time the one waited for longest."""
    chain: list[TableVersion] = []
    at: TableVersion | None = jobs.get(table)
    while at is not None and _finish(at) is not None and at not in chain:
        chain.append(at)
        waited = list(_inputs(jobs, at))
        at = max(waited, key=lambda job: (_finish(job) or 0.0, job.table), default=None)
    return chain[::-1]


def _inputs(jobs: Mapping[str, TableVersion], version: TableVersion) -> Iterable[TableVersion]:
    """The versions of the barrier that a job waited for. For a changelog: its view."""
    for found in (jobs[source] for source in version.inputs if source in jobs):
        if found.started_at is not None:
            yield found
        elif found is not version:
            yield from (
                jobs[view] for view in found.inputs if view in jobs and view != found.table
            )


def _steps(chain: list[TableVersion], whole: float) -> tuple[Step, ...]:
    steps = []
    before = chain[0].started_at or 0.0
    for job in chain:
        queued = (job.started_at or 0.0) - before
        share = (queued + job.seconds) / whole if whole > 0 else 0.0
        steps.append(Step(job.table, queued, job.seconds, share))
        before = _finish(job) or 0.0
    return tuple(steps)


def _finish(version: TableVersion) -> float | None:
    if version.started_at is None:
        return None
    return version.started_at + version.seconds


def _progress(version: TableVersion) -> Progress:
    return Progress(
        version.table,
        version.barrier,
        version.mode,
        version.state,
        version.started_at,
        _finish(version),
        version.written_at if version.mode != NOOP else None,
        version.seconds,
        version.stats.get("rows_read"),
        version.rows_inserted,
        version.rows_deleted,
        version.reason,
    )
