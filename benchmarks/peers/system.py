"""What a system is asked to do, and what it says when it has done it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.peers.slices import Feed

WARM_UP = 3
"""The first slice warms up and may take so many times the limit."""


@dataclass(frozen=True)
class Task:
    """Keep one query up to date over a feed; stop when a slice takes more than `limit` seconds.

    `answer` is the folder of parquet files for the rows in the end, `work` is for everything else.
    """

    query: str
    feed: Feed
    limit: float
    work: Path
    answer: Path

    def most(self, number: int, cold: bool = False) -> float:
        """The seconds after which to stop with the slice of that number, from 1."""
        return self.limit * (WARM_UP if number == 1 and not cold else 1)


@dataclass(frozen=True)
class Taken:
    """Seconds of every slice that was taken, in order, from its arrival to its rows in the result.

    `history` are the seconds until the events of before were in, start-up included. `startup` are
    those of each slice that went into starting a process; where it does, none is a warm-up.
    """

    seconds: tuple[float, ...]
    history: float
    startup: tuple[float, ...] = ()
    mode: str = ""

    @property
    def last(self) -> int:
        """The number of the last slice that the answer has."""
        return len(self.seconds)

    @property
    def counted(self) -> tuple[float, ...]:
        """Seconds of the slices after the warm-up; all, when it was the only one."""
        return self.seconds if self.startup else self.seconds[1:] or self.seconds


class System(Protocol):
    """A contestant. `cannot` says which queries it has no way to keep, and why.

    One that is `cold` starts a process for each slice.
    """

    name: str
    label: str
    cold: bool
    cannot: dict[str, str]

    def take(self, task: Task) -> Taken:
        """The history, then slice after slice; leaves nothing behind but the answer."""

    def close(self) -> None:
        """End what runs between two tasks."""


def slices(task: Task, take: Callable[[int], object], cold: bool = False) -> Iterator[float]:
    """Seconds of `take` for each slice of a task, until one is too long."""
    for number in range(1, task.feed.slices + 1):
        with stopwatch() as seconds:
            take(number)
        yield seconds()
        if seconds() > task.most(number, cold):
            return


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Seconds from here to the end of the block."""
    started = time.perf_counter()
    ended: list[float] = []
    yield lambda: (ended[0] if ended else time.perf_counter()) - started
    ended.append(time.perf_counter())
