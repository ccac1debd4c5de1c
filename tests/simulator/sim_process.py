"""Processes that die, fail, lose their lock and take turns, all by one random number generator.

A process is a thread, but only one runs at a time: it hands over at a point, which is a moment
before or after a durable step, or a try or the end of one effect on the store or the storage.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from dbt_streamsql.errors import StreamSqlError
from tests.simulator.sim_lake import Lake, LakeError
from tests.simulator.sim_ledger import Ledger
from tests.simulator.sim_store import MemoryStore
from tests.support.product import STEPS

T = TypeVar("T")
Kind = Literal["crash", "error", "rival", "zombie"]
LEASES = ("lease", "renew a lease", "give a lease back", "end leases", "forget leases")
FREE = ("acquire", "release", *LEASES)
"""Steps of the store that need no fence."""

PATIENCE = 60
"""Seconds without a single step after which a simulation is hung; nothing is timed."""


Failure = Callable[[str], BaseException]


def _unreachable(what: str) -> StreamSqlError:
    return StreamSqlError("META_UNREACHABLE", f"{what}: the connection was lost")


def _full_disk(what: str) -> LakeError:
    return LakeError(f"{what}: the disk is full")


class Crash(BaseException):
    """The process is dead: nothing that it still does has an effect."""


@dataclass(frozen=True)
class Fault:
    """What happens to a process at its `at`-th point, or at the next one where it can; with
    `step`, at the next point of that name, and with `moment`, at the next such moment of it.

    `crash`: it dies. `error`: one effect fails, before or after it has happened (it is torn).
    `rival`: another process starts and waits for the lock. `zombie`: the lock is lost without
    notice, a successor starts and works for `ahead` points, then both take turns.
    """

    kind: Kind
    at: int
    ahead: int = 0
    step: str = ""
    moment: str = ""

    def waits_for(self, point: int, what: str, moment: str) -> bool:
        here = self.step in ("", what) and self.moment in ("", moment)
        return point >= self.at and here


@dataclass
class Simulation:
    """What all processes share. `turn` is how likely a turn ends at a point, `now` the clock."""

    rng: random.Random
    lake: Lake = field(default_factory=Lake)
    ledger: Ledger = field(default_factory=Ledger)
    connect: bool = False
    driver: bool = True
    rest: bool = False
    """The catalog commits the refs of several tables at once, where it is asked to."""
    now: float = 1_000_000.0
    turn: float = 0.1
    trace: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    watch: Callable[[Process, str, str], None] = lambda *_: None
    """Called at each point, before the fault that waits there."""
    rival: Callable[[], Process] | None = None
    """Makes the process that a `rival` or `zombie` fault starts."""
    main: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    made: int = 0

    def say(self, text: str) -> None:
        self.trace.append(text)

    def violated(self, invariant: str, text: str) -> None:
        """An invariant does not hold; the seed has failed."""
        self.say(f"!! {invariant}: {text}")
        self.broken.append(f"{invariant}: {text}")

    def clock(self) -> float:
        return self.now

    def name(self) -> str:
        """A name that is never used again, where the product would draw a random one."""
        self.made += 1
        return f"{self.made:08x}"

    def play(self, process: Process) -> None:
        """Run a process, and all that its faults start, to their ends."""
        process.start()
        process.go.release()
        passed = -1
        while not self.main.acquire(timeout=PATIENCE):
            if len(self.trace) == passed:
                raise AssertionError("the simulation hangs")
            passed = len(self.trace)
        for each in self.processes:
            each.join(PATIENCE)
        self.processes.clear()

    def next_of(self, ready: list[Process]) -> Process | None:
        return self.rng.choice(ready) if ready else None

    def ready(self) -> list[Process]:
        return [p for p in self.processes if not p.ended and not (p.waits and self.ledger.holder)]


class SimulatedStore(MemoryStore):
    """The store as one process reaches it: any call may fail before or after its effect."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.simulation.ledger, process.simulation.clock)
        self.process = process
        self.token = 0

    @contextmanager
    def write(self, step: str) -> Iterator[None]:
        with self.process.effect(f"store: {step}", _unreachable):
            yield
            if step == "acquire":
                self.token = self.ledger.fence.token
            elif step not in FREE and self.token != self.ledger.fence.token:
                self.process.simulation.violated(
                    "I7",
                    f"{self.process.name} wrote ({step}) with token {self.token}, "
                    f"while the newest is {self.ledger.fence.token}",
                )

    def wait(self) -> None:
        simulation = self.process.simulation
        if not any(p is not self.process for p in simulation.ready()):
            simulation.violated(
                "I7", f"{self.process.name} waits for a lock that nobody will free"
            )
            self.process.dead = True
            raise Crash
        self.process.waits = True
        self.process.hand_over()
        self.process.waits = False


class Process(threading.Thread):
    """One process: `task` is what it does; `fault` is what happens to it meanwhile."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        task: Callable[[Process], None],
        fault: Fault | None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.simulation = simulation
        self.task = task
        self.fault = fault
        self.store = SimulatedStore(self)
        self.go = threading.Semaphore(0)
        self.passed = 0
        self.met = ""
        """The fault, and where it happened."""
        self.ahead = 0
        self.dead = self.ended = self.waits = False
        self.error: BaseException | None = None
        simulation.processes.append(self)

    def run(self) -> None:
        self.go.acquire()
        try:
            self.task(self)
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001 - a failed command is an outcome like others
            self.error = error
            self.simulation.say(f"{self.name} failed: {str(error).splitlines()[0]}")
        # However it ended, the operating system frees its lock.
        self.store.unlock()
        self.ended = True
        following = self.simulation.next_of(self.simulation.ready())
        (following.go if following is not None else self.simulation.main).release()

    # -- points ------------------------------------------------------------------------------

    def point(self, what: str, moment: str, error: Failure | None = None) -> None:
        """Let happen what is to happen here. `error` is how an effect fails, if it is one."""
        if self.dead:
            raise Crash
        simulation = self.simulation
        self.passed += 1
        simulation.trace.append(f"{self.name} {self.passed:4} {moment:6} {what}")
        simulation.watch(self, what, moment)
        fault = self.fault
        if fault is not None and fault.waits_for(self.passed, what, moment):
            place = (
                what if what in STEPS or what.startswith("store") else what.split(maxsplit=1)[0]
            )
            self._meet(fault, f"{moment} {place}", error)
        if len(simulation.processes) > 1:
            self._take_turns()

    @contextmanager
    def effect(self, what: str, error: Failure) -> Iterator[None]:
        """One effect on what is durable: all of it or nothing, and perhaps an error besides."""
        self.point(what, "try", error)
        yield
        self.point(what, "done", error)

    def do(self, what: str, action: Callable[[], T]) -> T:
        """One effect on the storage."""
        with self.effect(what, _full_disk):
            return action()

    def _meet(self, fault: Fault, where: str, error: Failure | None) -> None:
        if fault.kind == "error" and error is None:
            # The next effect is that of the step.
            self.fault = replace(fault, step="", moment="")
            return
        self.fault = None
        self.met = f"{fault.kind} {where}"
        if fault.kind == "crash":
            self.simulation.say(f"{self.name} dies here")
            self.dead = True
            raise Crash
        if fault.kind == "error":
            self.simulation.say(f"{self.name} meets an error here")
            assert error is not None
            raise error(where)
        if fault.kind == "zombie":
            if self.store.ledger.holder != self.store._owner or not self.store._owner:
                self.met = ""
                return
            self.simulation.say(f"{self.name} stops here, and its lock is lost")
            self.store.ledger.holder = ""
        make = self.simulation.rival
        assert make is not None
        other = make()
        other.ahead = fault.ahead
        other.start()
        if fault.kind == "zombie":
            self.hand_over(other)

    def _take_turns(self) -> None:
        if self.ahead:
            self.ahead -= 1
            if not self.ahead:
                self.hand_over()
        elif self.simulation.rng.random() < self.simulation.turn:
            self.hand_over()

    def hand_over(self, to: Process | None = None) -> None:
        """Let another one run until it is this one's turn again."""
        others = [p for p in self.simulation.ready() if p is not self]
        to = to or self.simulation.next_of(others)
        if to is None:
            return
        to.go.release()
        self.go.acquire()
