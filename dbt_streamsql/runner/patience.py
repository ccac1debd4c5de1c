"""How long something that failed is left alone before it is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0
"""Each failure in a row doubles the wait, from the first of these up to the second."""


@dataclass
class _Rest:
    failures: int
    until: float


class Backoff:
    """What has failed, by name. Times are seconds of `clock`, which is monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._resting: dict[str, _Rest] = {}

    def failed(self, name: str) -> float:
        """Record one more failure; return the seconds that it rests."""
        rest = self._resting.setdefault(name, _Rest(0, 0.0))
        seconds = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**rest.failures)
        # Many runners that lost one service must not return to it at the same moment.
        seconds *= random.uniform(0.8, 1.0)  # noqa: S311 - no secret
        rest.failures += 1
        rest.until = self._clock() + seconds
        return seconds

    def succeeded(self, names: Iterable[str]) -> None:
        """They work again."""
        for name in names:
            self._resting.pop(name, None)

    def left(self, name: str) -> float:
        """The seconds that it still rests."""
        rest = self._resting.get(name)
        return max(0.0, rest.until - self._clock()) if rest is not None else 0.0

    def resting(self) -> set[str]:
        """What must not be tried now."""
        now = self._clock()
        return {name for name, rest in self._resting.items() if rest.until > now}
