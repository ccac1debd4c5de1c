"""A process's cache of what it has read from a store, valid until the store changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from dbt_streamsql.meta.model.records import Job, TableVersion

T = TypeVar("T")


@dataclass(frozen=True)
class States:
    """Texts that are others after a change: `all` of whatever a runner writes, `jobs` of the
    current definitions alone."""

    all: str
    jobs: str


class KeptAnswers:
    """Answers by the state of the store that they were read in. Thread-safe.

    The state is read before the answer: a change in between is already in the answer, and only
    causes one more read.
    """

    def __init__(self) -> None:
        self._answers: dict[str, tuple[str, Any]] = {}

    def get(self, what: str, state: str, read: Callable[[], T]) -> T:
        """The answer for that state. It is shared: callers copy it before changing it."""
        known = self._answers.get(what)
        if known is None or known[0] != state:
            known = self._answers[what] = (state, read())
        answer: T = known[1]
        return answer


class Asked(Protocol):
    """A store whose every call is a query."""

    def states(self) -> States: ...
    def read_inputs_as_of(self, barrier: int) -> dict[str, int | None]: ...
    def read_outside_tables(self) -> set[str]: ...
    def read_latest_all(self, barrier: int | None) -> dict[str, TableVersion]: ...
    def read_jobs(self) -> dict[str, Job]: ...


class KeptReads:
    """The queries that are repeated often; see `MetaReader` for their meaning."""

    def __init__(self, store: Asked) -> None:
        self._store = store
        self._kept = KeptAnswers()

    def inputs_as_of(self, barrier: int) -> dict[str, int | None]:
        # The newest is requested repeatedly, so one answer is cached.
        state = f"{self._store.states().all} {barrier}"
        read = partial(self._store.read_inputs_as_of, barrier)
        return dict(self._kept.get("inputs", state, read))

    def outside_tables(self) -> set[str]:
        state = self._store.states().all
        return set(self._kept.get("outside", state, self._store.read_outside_tables))

    def latest_all(self, barrier: int | None = None) -> dict[str, TableVersion]:
        if barrier is not None:
            return self._store.read_latest_all(barrier)
        read = partial(self._store.read_latest_all, None)
        return dict(self._kept.get("latest", self._store.states().all, read))

    def jobs(self) -> dict[str, Job]:
        return dict(self._kept.get("jobs", self._store.states().jobs, self._store.read_jobs))
