"""What an epoch has from outside: what time it is, names that nobody else draws, and threads."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Clock(Protocol):
    """By which an engine tells the time of what it does, and how old rows are."""

    def time(self) -> float:
        """Seconds since 1970."""

    def monotonic(self) -> float:
        """Seconds since some moment, by a clock that is never set."""

    def committed(self, at: int) -> int:
        """When a commit was made by `time`, in milliseconds since 1970; `at` is what the table's
        metadata says, which the clock of whoever wrote it does."""


class SystemClock:
    """That of the operating system, which writers of tables have too."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def committed(self, at: int) -> int:
        return at


def drawn() -> str:
    """A name that was not there before: 32 hexadecimal digits at random."""
    return uuid.uuid4().hex


class Pool(Protocol):
    """Runs an action for each of some items, perhaps side by side."""

    def map(self, action: Callable[[A], B], items: Iterable[A], /) -> Iterable[B]:
        """The results in the order of the items; raises what an action raised."""


Workers = Callable[[int, str], AbstractContextManager[Pool]]
"""Makes a pool: (how many at a time, the beginning of their names)."""


def threads(parallel: int, name: str) -> AbstractContextManager[Pool]:
    return ThreadPoolExecutor(parallel, thread_name_prefix=name)
