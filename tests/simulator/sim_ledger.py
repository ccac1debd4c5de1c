"""What MetaService's store in memory holds, and everything that can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import (
    Barrier,
    ChangeFile,
    Fence,
    Job,
    Lease,
    Published,
    Sink,
    TableVersion,
)
from tests.support.product import UNFINISHED, topological_order

NO_BARRIER = "no such barrier"
Clock = Callable[[], float]


@dataclass
class Ledger:
    """What is durable: one for all processes. `holder` is the runner lock, freed by a death."""

    fence: Fence = field(default_factory=lambda: Fence(0, ""))
    last_barrier: int = 0
    kept_from: int = 0
    barriers: dict[int, Barrier] = field(default_factory=dict)
    inputs: dict[int, dict[str, tuple[int | None, float | None]]] = field(default_factory=dict)
    versions: dict[int, dict[str, TableVersion]] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    staged_jobs: dict[int, dict[str, Job]] = field(default_factory=dict)
    files: list[ChangeFile] = field(default_factory=list)
    leases: dict[str, Lease] = field(default_factory=dict)
    holder: str = ""
    owners: int = 0


class MemoryReader:
    """What `MetaReader` answers."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self.ledger = ledger
        self._clock = clock

    def barrier(self, barrier: int) -> Barrier | None:
        return self.ledger.barriers.get(barrier)

    def unfinished(self) -> list[Barrier]:
        found = self.ledger.barriers
        return [found[id_] for id_ in sorted(found) if found[id_].state in UNFINISHED]

    def last_committed(self) -> int:
        return max((b.id for b in self.ledger.barriers.values() if b.state == "COMMIT"), default=0)

    def inputs(self, barrier: int) -> dict[str, int | None]:
        return {table: at for table, (at, _) in self._pins(barrier)}

    def inputs_as_of(self, barrier: int) -> dict[str, int | None]:
        newest: dict[str, int | None] = {}
        for number in sorted(self.ledger.inputs):
            if number <= barrier and self._state(number) == "COMMIT":
                newest.update(self.inputs(number))
        return newest

    def committed_before(self, barrier: int, most: int) -> list[int]:
        known = self.ledger.barriers
        found = [n for n in known if self.ledger.kept_from <= n < barrier]
        return sorted((n for n in found if self._state(n) == "COMMIT"), reverse=True)[:most]

    def input_times(self, barrier: int) -> dict[str, float | None]:
        return {table: made for table, (_, made) in self._pins(barrier)}

    def outside_tables(self) -> set[str]:
        return {table for pins in self.ledger.inputs.values() for table in pins}

    def versions(self, barrier: int) -> list[TableVersion]:
        found = self.ledger.versions.get(barrier, {})
        return [found[table] for table in sorted(found)]

    def latest(self, table: str) -> TableVersion | None:
        return self.latest_all().get(table)

    def latest_all(self, barrier: int | None = None) -> dict[str, TableVersion]:
        held = self.ledger.versions
        if barrier is None:
            heads = sorted(self.ledger.heads.items())
            return {t: held[b][t] for t, b in heads if t in held.get(b, {})}
        state = self._state(barrier)
        if state != "COMMIT" or barrier < self.ledger.kept_from:
            raise StreamSqlError(
                "META_CONFLICT",
                f"barrier {barrier} cannot be read",
                given="forgotten" if barrier < self.ledger.kept_from else state or NO_BARRIER,
                allowed=f"a committed barrier from {self.ledger.kept_from} on",
            )
        newest: dict[str, TableVersion] = {}
        for number in sorted(held):
            if number <= barrier and self._state(number) == "COMMIT":
                newest.update(held[number])
        return {table: newest[table] for table in sorted(newest)}

    def history(self, table: str, after: int = 0) -> list[TableVersion]:
        held = self.ledger.versions
        known = [n for n in sorted(held) if self._state(n) == "COMMIT" and table in held[n]]
        first = max((n for n in known if n <= after), default=0)
        return [held[number][table] for number in reversed(known) if number >= first]

    def kept_from(self) -> int:
        return self.ledger.kept_from

    @staticmethod
    def published() -> list[Published]:
        """Views for readers without an engine are not simulated."""
        return []

    @staticmethod
    def sinks() -> list[Sink]:
        """Deliveries are not simulated."""
        return []

    def jobs(self) -> dict[str, Job]:
        return dict(sorted(self.ledger.jobs.items()))

    def staged_jobs(self, barrier: int) -> dict[str, Job]:
        return dict(sorted(self.ledger.staged_jobs.get(barrier, {}).items()))

    def provisional_jobs(self) -> dict[str, Job]:
        held = self.ledger.staged_jobs.values()
        return dict(sorted((t, job) for jobs in held for t, job in jobs.items()))

    def topology(self) -> list[tuple[str, str]]:
        return sorted(
            (source, job.table) for job in self.ledger.jobs.values() for source in job.sources
        )

    def readers(self, table: str) -> list[str]:
        return sorted(job.table for job in self.ledger.jobs.values() if table in job.sources)

    @staticmethod
    def topological_order(jobs: Mapping[str, Job] | Iterable[Job]) -> list[list[str]]:
        chosen = jobs.values() if isinstance(jobs, Mapping) else jobs
        return topological_order({job.table: job.sources for job in chosen})

    def change_files(self, table: str, after_barrier: int, upto_barrier: int) -> list[ChangeFile]:
        return self._files(
            lambda file, state: (
                file.table == table
                and after_barrier < file.barrier <= upto_barrier
                and state != "ABORT"
            )
        )

    def tables_with_change_files(self) -> list[str]:
        return sorted({file.table for file in self.ledger.files})

    def aborted_change_files(self) -> list[ChangeFile]:
        return self._files(lambda _, state: state == "ABORT")

    def fence(self) -> Fence:
        return self.ledger.fence

    def _files(self, keep: Callable[[ChangeFile, str], bool]) -> list[ChangeFile]:
        states = ((file, self._state(file.barrier)) for file in self.ledger.files)
        found = [file for file, state in states if state is not None and keep(file, state)]
        return sorted(found, key=lambda file: (file.barrier, file.table, file.path))

    def _state(self, barrier: int) -> Any:
        found = self.ledger.barriers.get(barrier)
        return found.state if found is not None else None

    def _pins(self, barrier: int) -> list[tuple[str, tuple[int | None, float | None]]]:
        return sorted(self.ledger.inputs.get(barrier, {}).items())
