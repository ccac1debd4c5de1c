"""Work that waits until a model's output is published: hooks, and comments of its table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """One thing to `do` for a model, by the name of its table or sink; `what` is its SQL."""

    model: str
    what: str
    do: Callable[[], object]


class WaitingList:
    """Filled by the threads of one dbt command, in the order in which its models end."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []
        self._lock = threading.Lock()

    def add(self, model: str, what: str, do: Callable[[], object]) -> None:
        with self._lock:
            self._waiting.append(Waiting(model, what, do))

    def take(self, held: Collection[str] = ()) -> list[Waiting]:
        """The work of models that are published now: all but the `held` ones, which is dropped."""
        with self._lock:
            found, self._waiting = self._waiting, []
        return [each for each in found if each.model not in held]
