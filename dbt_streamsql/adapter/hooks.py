"""Statements of hooks that wait until what their models have made is published."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class WaitingHook:
    """One rendered statement, and the table or sink of the model whose hook it is."""

    model: str
    statement: str


class WaitingHooks:
    """Filled by the threads of one dbt command, in the order in which its models end."""

    def __init__(self) -> None:
        self._hooks: list[WaitingHook] = []
        self._lock = threading.Lock()

    def add(self, model: str, statement: str) -> None:
        with self._lock:
            self._hooks.append(WaitingHook(model, statement))

    def take(self, held: Collection[str] = ()) -> list[WaitingHook]:
        """Those whose models are published now: all but the `held` ones, whose hooks go."""
        with self._lock:
            found, self._hooks = self._hooks, []
        return [hook for hook in found if hook.model not in held]
