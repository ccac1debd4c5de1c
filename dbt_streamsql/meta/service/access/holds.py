"""What remote processes hold here: each thing until it is released, or its holder falls silent.

A process that was silent for too long may still be alive, so what it held needs another guard
too: the runner's fence stops it, and its staged data stays its own for an hour.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
LOOK_SECONDS = 0.5

log = logging.getLogger("dbt_streamsql.meta")


@dataclass
class Hold(Generic[T]):
    """One held thing, `what`; `let_go` frees it when its holder has been silent for `seconds`.

    `who` is the name of the holder's token; '' when unknown, then any name matches.
    """

    what: T
    who: str
    seconds: float
    let_go: Callable[[], None]
    heard: float = 0.0


class Holds(Generic[T]):
    """All things of one kind, by key. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[Hashable, Hold[T]] = {}
        self._changing = threading.RLock()

    def keep(self, key: Hashable, hold: Hold[T]) -> None:
        with self._changing:
            hold.heard = self._clock()
            self._held[key] = hold

    def hear(self, key: Hashable, who: str) -> T | None:
        """Record a heartbeat and return the thing; None when `who` does not hold it."""
        with self._changing:
            hold = self._held.get(key)
            if hold is None or hold.who not in ("", who):
                return None
            hold.heard = self._clock()
            return hold.what

    def take(self, key: Hashable, who: str) -> T | None:
        """Like `hear`, but also remove the thing from the held ones; it is not let go."""
        with self._changing:
            what = self.hear(key, who)
            if what is not None:
                del self._held[key]
            return what

    def end_silent(self) -> None:
        """Let go of everything whose holder has been silent for too long."""
        with self._changing:
            now = self._clock()
            silent = {k: h for k, h in self._held.items() if now > h.heard + h.seconds}
            for key in silent:
                del self._held[key]
        for key, hold in silent.items():
            log.warning("no heartbeat in time: %s of %s", key, hold.who)
            hold.let_go()

    def end_all(self) -> None:
        """Let go of everything, as at the end of a process."""
        with self._changing:
            held, self._held = self._held, {}
        for hold in held.values():
            hold.let_go()
