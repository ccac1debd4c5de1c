"""One seed: a random topology, random changes from outside, and processes that meet faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from dbt_streamsql.meta import Job
from dbt_streamsql.quoting import TableName
from tests.oracle.zset import ZSet, add
from tests.simulator.sim_checks import BASES, Checks
from tests.simulator.sim_lake import KINDS, MAIN
from tests.simulator.sim_process import Fault, Kind, Process, Simulation
from tests.simulator.sim_runtime import (
    Task,
    advance,
    definition,
    recover,
    run_models,
    sweep,
    twice,
)
from tests.support.product import DROP_STEPS, GC_STEPS, REVISION_STEPS, STAGED_STEPS, STEPS

VIEWS = ("lake.s.v0", "lake.s.v1", "lake.s.v2")
ELSEWHERE = {
    *STAGED_STEPS,
    *DROP_STEPS,
    *REVISION_STEPS,
    *GC_STEPS,
    "sweep.changelog",
    "sweep.state",
}
PLACES = tuple(step for step in STEPS if step not in ELSEWHERE)
CALLS = (
    *("store: acquire", "store: begin", "store: define", "store: processed"),
    *("store: precommit", "store: written", "store: commit", "store: newest barrier"),
    *("store: forget change files", "store: abort", "store: release"),
    *("store: keep", "store: forget"),
)
CLEANING = (
    *("publish.table", "table.written", "barrier.commit", "barrier.abort", "pins.move"),
    *("sweep.branch", "sweep.staging", "sweep.changes", "store: forget change files"),
    *("ledger.keep", "table.expire", "ledger.forget"),
)
"""What recovery and the end of an epoch pass, and what may go wrong most there."""

POINTS = 110
"""About as many points as an epoch of three views has; a fault that comes later never happens."""


@dataclass(frozen=True)
class Outcome:
    """What became of a seed: the invariants that broke, all that happened, and each fault that was
    met, as `crash before barrier.commit`."""

    seed: int
    broken: tuple[str, ...]
    trace: tuple[str, ...]
    points: int
    barriers: int
    faults: tuple[str, ...]


@dataclass
class World:
    """One warehouse and all that happens to it."""

    seed: int
    rng: random.Random = field(init=False)
    simulation: Simulation = field(init=False)
    checks: Checks = field(init=False)
    models: dict[str, Job] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    points: int = 0
    started: int = 0
    quiet: bool = False
    """Nobody else writes any more."""
    darkened: bool = False
    """The power was cut once."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        rng = self.rng
        connect = rng.random() < 0.3
        driver = not connect and rng.random() < 0.7
        rest = not connect and random.Random(f"rest {self.seed}").random() < 0.4
        self.simulation = Simulation(rng, connect=connect, driver=driver, rest=rest)
        self.simulation.turn = rng.choice([0.02, 0.1, 0.5])
        self.simulation.watch = self._watch
        self.simulation.rival = lambda: self._process(self.rng.choice([advance, sweep]))
        self.checks = Checks(self.simulation, set(BASES))

    def run(self) -> Outcome:
        way = "Connect" if self.simulation.connect else "an embedded session"
        writer = "the driver" if self.simulation.driver else "Spark"
        commits = "all tables of a barrier" if self.simulation.rest else "one table"
        self.simulation.say(
            f"seed {self.seed}: over {way}, small changes are written by {writer}, "
            f"a commit has {commits}"
        )
        for base in BASES:
            self.simulation.lake.create(_name(base), ("k", "v"), self._rows(4))
        for index, view in enumerate(VIEWS):
            self._define(view, [*BASES, *VIEWS[:index]])
        self._do(run_models([(model, "") for model in self.models.values()]), None, "models")
        for _ in range(self.rng.randint(1, 3)):
            self._round()
            if self.simulation.broken:
                break
        if not self.simulation.broken:
            self._end()
        return Outcome(
            self.seed,
            tuple(self.simulation.broken),
            tuple(self.simulation.trace),
            self.points,
            self.simulation.ledger.last_barrier,
            tuple(self.faults),
        )

    def _round(self) -> None:
        """Something happens outside, a process works and meets a fault, others clean up."""
        rng = self.rng
        for _ in range(rng.randrange(4)):
            self._outside()
        self.simulation.now += rng.choice([0, 1, 60, -3600, 86_400, -86_400])
        self.checks.tick()
        task, name = self._task()
        before = self.checks.barrier, dict(self.checks.committed)
        process = self._do(task, self._fault(rng.randint(1, POINTS)), name)
        self._after_a_failure(process, before)
        if process.dead and rng.random() < 0.05:
            self._cut_power()
        while not self.simulation.broken and rng.random() < (0.5 if process.dead else 0.2):
            # Whoever cleans up may die as well.
            self._do(recover, self._fault(rng.randint(1, 40), CLEANING), "recover")

    def _end(self) -> None:
        """Nothing fails any more: all is cleaned up, up to date, and then nothing is to do."""
        checks, of = self.checks, self.simulation.ledger
        self.quiet = True
        self._well(sweep, "sweep")
        checks.at_rest()
        once = checks.fingerprint()
        self._well(sweep, "sweep again")
        if checks.fingerprint() != once:
            checks.fail("I6", "a second sweep changed something")
        # A view that cannot read the changes of another one asks for a full refresh.
        why = "asked" if self.darkened else ""
        self._well(run_models([(model, why) for model in self.models.values()]), "rerun")
        if {t: job.sql for t, job in of.jobs.items()} != {
            t: j.sql for t, j in self.models.items()
        }:
            checks.fail("I3", "the definitions are not those of the last run")
        checks.up_to_date()
        # What nobody reads any more since that run is let go by the next look at everything.
        self._well(sweep, "sweep at last")
        checks.at_rest()
        last = of.last_barrier
        self._well(advance, "idle")
        if of.last_barrier != last:
            checks.fail("I2", "an epoch without changes began a barrier")

    # -- processes ---------------------------------------------------------------------------

    def _process(self, task: Task, fault: Fault | None = None, name: str = "") -> Process:
        self.started += 1
        label = f"p{self.started}"
        self.simulation.say(f"-- {label}: {name or task.__name__}")
        return Process(self.simulation, label, task, fault)

    def _do(self, task: Task, fault: Fault | None = None, name: str = "") -> Process:
        process = self._process(task, fault, name)
        self.simulation.play(process)
        if process.met:
            self.faults.append(process.met)
        self.points += process.passed
        self.checks.at_point()
        return process

    def _well(self, task: Task, name: str) -> None:
        """A process to which nothing happens must succeed."""
        process = self._do(task, None, name)
        if process.error is not None:
            self.checks.fail("I3", f"{name} failed though nothing was wrong: {process.error!r}")

    def _after_a_failure(
        self, process: Process, before: tuple[int, dict[str, int | None]]
    ) -> None:
        """A command that failed, and did not die, has changed nothing that anybody can see."""
        of = self.simulation.ledger
        publishing = any(barrier.state == "PRECOMMIT" for barrier in of.barriers.values())
        if process.error is None or publishing or self.checks.barrier != before[0]:
            return
        if self.checks.committed != before[1]:
            self.checks.fail("I11", f"a failed command changed what was committed: {before[1]}")

    def _fault(self, at: int, places: tuple[str, ...] = PLACES) -> Fault | None:
        rng = self.rng
        kinds: list[Kind | None] = [None, "crash", "error", "rival", "zombie"]
        kind = rng.choices(kinds, [15, 40, 25, 5, 15])[0]
        if kind is None:
            return None
        if kind == "zombie":
            self.checks.zombies = True
        ahead = rng.choice([0, 5, 30, 45, 60, 80, 1000])
        if rng.random() < 0.5:
            return Fault(kind, at, ahead)
        # Steps that are passed once in an epoch are met as often as the others.
        step = rng.choice(rng.choice([places, CALLS, CLEANING]))
        moment = rng.choice(["", "done" if step.startswith("store") else "after"])
        return Fault(kind, rng.randint(1, at) // 4, ahead, step, moment)

    def _task(self) -> tuple[Task, str]:
        rng = self.rng
        kind = rng.choices(["advance", "models", "redefine", "sweep"], [50, 25, 20, 5])[0]
        if kind == "advance" and rng.random() < 0.4:
            return twice(advance), "advance, and again"
        if kind == "advance":
            return advance, "advance"
        if kind == "sweep":
            return sweep, "sweep"
        if kind == "redefine":
            view = rng.choice(VIEWS)
            self._define(view, [*BASES, *VIEWS[: VIEWS.index(view)]])
        full = rng.choice([*VIEWS, *[""] * 6])
        chosen = [(m, "asked" if m.table == full else "") for m in self.models.values()]
        if rng.random() < 0.4:
            # `dbt run --select`: what reads these models lags behind.
            chosen = rng.sample(chosen, rng.randint(1, 2))
        if rng.random() < 0.15:
            # Models that read each other by plain names: dbt does not know what comes first.
            rng.shuffle(chosen)
        return run_models(chosen), kind

    def _define(self, view: str, readable: list[str]) -> None:
        rng = self.rng
        kind = rng.choice(list(KINDS))
        sources = rng.sample(readable, KINDS[kind][0])
        if view != VIEWS[0] and rng.random() < 0.6:
            # Views over views are where barriers can be mixed up.
            sources[0] = rng.choice([name for name in readable if name not in BASES])
            sources = list(dict.fromkeys([*sources, *BASES]))[: KINDS[kind][0]]
        self.models[view] = definition(view, kind, sources)
        self.simulation.say(f"   {view} is {self.models[view].sql}")
        self.checks.names.add(view)

    # -- outside -----------------------------------------------------------------------------

    def _watch(self, process: Process, what: str, moment: str) -> None:
        self.checks.watch(process, what, moment)
        chance = self.rng.random()
        if chance < 0.04:
            self.checks.at_point()
        elif chance > 0.99 and not self.quiet:
            self._write_base(self.rng.choice(BASES))
        elif chance > 0.985 and not self.quiet and self.checks.barrier:
            self.checks.lease(self.rng.choice([5, 100_000]))
        elif chance > 0.98 and not self.quiet:
            self._expire()

    def _outside(self) -> None:
        """What others do to the tables of the warehouse."""
        rng = self.rng
        deed = rng.choices(["write", "expire", "compact", "insert", "drop"], [60, 12, 12, 8, 4])[0]
        lake, base = self.simulation.lake, rng.choice(BASES)
        view = rng.choice(VIEWS)
        if deed == "write":
            self._write_base(base)
            return
        if deed == "expire":
            self._expire()
            return
        if deed == "compact":
            current = lake.tables[base].meta.current
            lake.commit(_name(base), MAIN, current, lake.archive[current or 0], "replace")
        elif view in lake.tables and deed == "insert":
            current = lake.tables[view].meta.current
            rows = add([lake.archive[current or 0], {(9, 9): 1}])
            lake.commit(_name(view), MAIN, current, rows, "append")
            self.checks.touched.add(view)
        elif deed == "drop":
            lake.drop(_name(view))
            self.checks.touched.add(view)
            self.checks.lost[view] = lake.made
            for held in self.checks.held.values():
                held.pop(view, None)
        self.simulation.say(f"   outside: {deed} {view if deed in ('insert', 'drop') else base}")

    def _expire(self) -> None:
        """Somebody's own upkeep: of snapshots without a ref a table keeps the newest of main."""
        lake, checks = self.simulation.lake, self.checks
        # Who has written into a view and then expires what it was must build it anew.
        views = [view for view in VIEWS if view in lake.tables and view not in checks.touched]
        name = self.rng.choice([*BASES, *views])
        lake.expire(_name(name), 1, lake.made + 1)
        if name in VIEWS:
            # Old barriers lose it; the newest one and what readers hold do not.
            checks.lost[name] = lake.made
        self.simulation.say(f"   outside: expire {name}")

    def _cut_power(self) -> None:
        """Change files are not forced to the disk: any may be lost, or lack its end."""
        lake, self.darkened = self.simulation.lake, True
        for path in sorted(lake.files):
            if self.rng.random() < 0.5:
                lake.write_file(path, {}, torn=True)
        self.simulation.say("   outside: the power is cut")

    def _write_base(self, base: str) -> None:
        rng, lake = self.rng, self.simulation.lake
        current = lake.tables[base].meta.current
        rows = lake.archive[current or 0]
        gone = {r: -rng.randint(1, w) for r, w in rows.items() if rng.random() < 0.3}
        more = self._rows(2)
        operation = "append" if not gone else "overwrite"
        lake.commit(_name(base), MAIN, current, add([rows, gone, more]), operation)
        self.simulation.say(f"   outside: write {base}")

    def _rows(self, count: int) -> ZSet:
        rng = self.rng
        return add({(rng.randrange(3), rng.randrange(6)): 1} for _ in range(rng.randint(1, count)))


def _name(table: str) -> TableName:
    return TableName.parse(table)


def simulate(seed: int) -> Outcome:
    """Run one seed; inside `substituted()`."""
    return World(seed).run()
