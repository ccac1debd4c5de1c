"""What an epoch gets from outside: the time, unique names, and threads."""

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
    """The clock by which an engine dates what it does, and by which rows age."""

    def time(self) -> float:
        """Seconds since 1970."""

    def monotonic(self) -> float:
        """Seconds since some moment, by a clock that is never set."""

    def committed(self, at: int) -> int:
        """When a commit was made by `time`, in milliseconds since 1970; `at` is the time in the
        table's metadata, by the clock of its writer."""


class SystemClock:
    """The operating system's clock, which writers of tables use too."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def committed(self, at: int) -> int:
        return at


def drawn() -> str:
    """A name that did not exist before: 32 random hexadecimal digits."""
    return uuid.uuid4().hex


class Pool(Protocol):
    """Runs an action for each of some items, perhaps in parallel."""

    def map(self, action: Callable[[A], B], items: Iterable[A], /) -> Iterable[B]:
        """The results in the order of the items; raises what an action raised."""


Workers = Callable[[int, str], AbstractContextManager[Pool]]
"""Makes a pool: (how many at a time, the prefix of their names)."""


def threads(parallel: int, name: str) -> AbstractContextManager[Pool]:
    return ThreadPoolExecutor(parallel, thread_name_prefix=name)
