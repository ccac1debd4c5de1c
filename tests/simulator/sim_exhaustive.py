"""Every state that a crash anywhere can leave, breadth-first, and every way in which a runner that
lost its lock and its successor can take turns once.

The code that runs is the product's. A process that dies leaves what was stored at that moment, so
one run gives the states of a crash at each of its points; from each of them a next process starts.
Three views, one of them over another, are kept up to date; at most `BARRIERS` are begun. States are
the same when they differ only in the numbers that snapshots and paths have.
"""

from __future__ import annotations

import random
import re
from collections import deque
from copy import copy
from dataclasses import dataclass, field, fields

from dbt_streamsql.quoting import TableName
from tests.oracle.zset import add
from tests.simulator.sim_checks import BASES, Checks
from tests.simulator.sim_lake import MAIN, Lake, Table
from tests.simulator.sim_ledger import Ledger
from tests.simulator.sim_process import Fault, Process, Simulation
from tests.simulator.sim_runtime import Task, advance, definition, recover, run_models, sweep
from tests.support.product import BARRIER_PROPERTY

BARRIERS = 3
NEVER = 1_000_000
"""More points than a run has: who waits for so many waits until the other one has ended."""

MODELS = (
    definition("lake.s.v0", "picked", BASES[:1]),
    definition("lake.s.v1", "summed", ["lake.s.v0"]),
    definition("lake.s.v2", "united", BASES),
)
_NUMBER = re.compile(r"snapshot \d+|(?<=_pin_)\w+|/\d+-changes|-\d{8}")
"""What has a number only to be unlike others: snapshots, the tags on them, tables' folders, files."""


@dataclass
class State:
    """All that is durable, and what the checks know of it."""

    lake: Lake
    ledger: Ledger
    checks: dict[str, object]

    def key(self) -> str:
        """The same for states that differ only in the numbers of snapshots and of paths."""
        of = self.ledger
        tables = sorted((n, t.columns, self._told(t)) for n, t in self.lake.tables.items())
        barriers = [(b.id, b.state) for b in of.barriers.values()]
        versions = sorted(
            (
                *(
                    v.barrier,
                    v.table,
                    v.state,
                    _snapshot(v.snapshot),
                    v.staged_at,
                    v.branch,
                    v.mode,
                ),
                *((source, _snapshot(at)) for source, at in sorted(v.inputs.items())),
            )
            for held in of.versions.values()
            for v in held.values()
        )
        listed = sorted((f.table, f.barrier, f.path) for f in of.files)
        files = sorted((path, rows.torn) for path, rows in self.lake.files.items())
        jobs = sorted(of.jobs), [sorted(held) for held in of.staged_jobs.values()]
        heads = sorted(of.heads.items())
        parts = (tables, barriers, versions, listed, files, jobs, heads, bool(of.fence.owner))
        seen: dict[str, str] = {}
        return _NUMBER.sub(lambda found: seen.setdefault(found[0], f"#{len(seen)}"), repr(parts))

    def _told(self, table: Table) -> tuple[object, ...]:
        snapshots = [
            (
                *(_snapshot(s.id), _snapshot(s.parent), s.operation),
                *(s.summary.get(BARRIER_PROPERTY), sorted(self.lake.archive[s.id].items())),
            )
            for s in table.meta.snapshots.values()
        ]
        refs = sorted((name, _snapshot(at)) for name, at in table.meta.refs.items())
        return _snapshot(table.meta.current), snapshots, refs


def _snapshot(number: int | None) -> str:
    return f"snapshot {number}"


@dataclass
class Explored:
    """What was found: different states, runs that were made, and invariants that broke."""

    states: int = 0
    runs: int = 0
    pairs: int = 0
    broken: list[str] = field(default_factory=list)


class Space:
    """The states that have been met."""

    def __init__(self, *, connect: bool = False) -> None:
        self.connect = connect
        self.found = Explored()
        self._met: set[str] = set()
        self._waiting: deque[State] = deque()

    def one_writer(self) -> Explored:
        """What crashes of one runner after another leave."""
        self._meet(self._start())
        return self._closed()

    def two_writers(self) -> Explored:
        """The same, and what a runner leaves that loses its lock before or after any of its
        effects and goes on when its successor is before any of its own; with a crash of both
        anywhere."""
        start = self._start()
        self._meet(start)
        for at in self._stops(start, None, "try", "done"):
            for ahead in (*self._stops(start, at, "try"), NEVER):
                if self.found.broken:
                    return self.found
                self._swept(self._run(start, advance, Fault("zombie", at, ahead)))
                self.found.pairs += 1
        return self._closed()

    def _closed(self) -> Explored:
        """Breadth-first until no state is new: from each, a next process starts."""
        while self._waiting and not self.found.broken:
            state = self._waiting.popleft()
            more = state.ledger.last_barrier < BARRIERS
            self._run(state, advance if more else recover)
            self._swept(state)
        return self.found

    # -- the inside --------------------------------------------------------------------------

    def _start(self) -> State:
        simulation, checks = self._simulation(None)
        for number, base in enumerate(BASES):
            rows = {(number, 1): 1, (1, 2): 1, (2, 4): 1}
            simulation.lake.create(TableName.parse(base), ("k", "v"), rows)
        self._play(simulation, run_models([(model, "") for model in MODELS]))
        _write(simulation.lake)
        return _kept(simulation, checks)

    def _simulation(self, state: State | None) -> tuple[Simulation, Checks]:
        simulation = Simulation(random.Random(0), connect=self.connect, driver=not self.connect)
        simulation.turn = 0.0
        checks = Checks(simulation, {*BASES, *(model.table for model in MODELS)}, zombies=True)
        simulation.watch = checks.watch
        if state is not None:
            simulation.lake, simulation.ledger = _copy(state.lake), _copy(state.ledger)
            for name, value in state.checks.items():
                setattr(checks, name, copy(value))
        return simulation, checks

    def _play(self, simulation: Simulation, task: Task, fault: Fault | None = None) -> None:
        process = Process(simulation, "p1", task, fault)

        def rival() -> Process:
            _write(simulation.lake)
            return Process(simulation, "p2", advance, None)

        simulation.rival = rival
        simulation.play(process)
        self.found.runs += 1
        if process.error is not None and fault is None:
            simulation.violated("I3", f"a process without faults failed: {process.error!r}")
        if simulation.broken:
            self.found.broken += ["\n".join([*simulation.trace[-200:], *simulation.broken])]

    def _swept(self, state: State) -> None:
        """After one sweep nothing is left of what did not become a barrier."""
        simulation, checks = self._simulation(state)
        self._play(simulation, sweep)
        checks.at_rest()
        self.found.broken += simulation.broken

    def _run(self, state: State, task: Task, fault: Fault | None = None) -> State:
        """One run, and the states of a crash of everybody at each of its points; the last state."""
        simulation, checks = self._simulation(state)

        def watch(process: Process, what: str, moment: str) -> None:
            checks.watch(process, what, moment)
            # Between two effects nothing that is durable changes.
            if moment == "done":
                checks.at_point()
                self._meet(_kept(simulation, checks))

        simulation.watch = watch
        self._play(simulation, task, fault)
        if task is advance:
            _write(simulation.lake)
        ended = _kept(simulation, checks)
        self._meet(ended)
        return ended

    def _meet(self, state: State) -> None:
        key = state.key()
        if key not in self._met:
            self._met.add(key)
            self._waiting.append(state)
            self.found.states += 1

    def _stops(self, state: State, zombie: int | None, *moments: str) -> list[int]:
        """The points around each effect of a runner, or of the successor of one that stopped.

        Before an effect it has read what it goes by; after one it has still to read what follows.
        """
        simulation, _ = self._simulation(state)
        points: list[int] = []
        name = "p1" if zombie is None else "p2"

        def watch(process: Process, what: str, moment: str) -> None:
            if process.name == name and moment in moments:
                points.append(process.passed)

        simulation.watch = watch
        fault = Fault("zombie", zombie, 1_000) if zombie is not None else None
        self._play(simulation, advance, fault)
        return points


def _write(lake: Lake) -> None:
    """Something to do for the next epoch."""
    for base in BASES:
        name, current = TableName.parse(base), lake.tables[base].meta.current or 0
        rows = lake.archive[current]
        change = {(1, 2): -1, (1, 7): 1} if (1, 2) in rows else {(1, 2): 1, (1, 7): -1}
        lake.commit(name, MAIN, current, add([rows, change]), "overwrite")


def _copy(of: Lake | Ledger) -> object:
    """A copy that can be changed; rows and records are never changed in place."""
    made = copy(of)
    for part in fields(of):
        value = getattr(of, part.name)
        if isinstance(value, dict):
            setattr(made, part.name, {k: _inner(v) for k, v in value.items()})
        elif isinstance(value, list):
            setattr(made, part.name, list(value))
    return made


def _inner(value: object) -> object:
    if isinstance(value, Table):
        return copy(value)
    return dict(value) if type(value) is dict else value


def _kept(simulation: Simulation, checks: Checks) -> State:
    """What a crash of every process leaves: the locks are free, the fence is not given back."""
    ledger = _copy(simulation.ledger)
    ledger.holder = ""
    known = ("touched", "begun", "committed", "barrier")
    return State(
        _copy(simulation.lake), ledger, {name: copy(getattr(checks, name)) for name in known}
    )
