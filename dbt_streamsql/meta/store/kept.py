"""What a reader has read of the store, kept until the store has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class States:
    """Texts that are others after a change: `all` of whatever a runner writes, `jobs` of the
    current definitions alone."""

    all: str
    jobs: str


class KeptAnswers:
    """Answers by the state of the store that they were read in. Safe from several threads.

    The state is asked for before the answer is read: what changes in between is in the answer
    already, and makes it be read once more.
    """

    def __init__(self) -> None:
        self._answers: dict[str, tuple[str, Any]] = {}

    def get(self, what: str, state: str, read: Callable[[], T]) -> T:
        """The answer of that state. It is shared: who changes it makes a copy first."""
        known = self._answers.get(what)
        if known is None or known[0] != state:
            known = self._answers[what] = (state, read())
        answer: T = known[1]
        return answer
