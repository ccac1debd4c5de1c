"""MetaService's store in memory: the same rules and answers as `MetaStore`, without a database.

The transitions and the topology are the product's own; what is here again is the
book-keeping that `MetaStore` leaves to SQL. `test_store_in_memory.py` shows that both are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import (
    NOOP,
    Barrier,
    ChangeFile,
    Fence,
    Forgotten,
    Job,
    Lease,
    Outlook,
    Retention,
    TableVersion,
)
from tests.simulator.sim_ledger import Clock, Ledger, MemoryReader
from tests.support.product import UNFINISHED, check_writer, home

transitions = home("to_commit")  # called by the module: planted bugs replace what it holds


class MemoryStore(MemoryReader):
    """What `MetaStore` does. One object is one process; the ledger is shared."""

    id = "simulated"

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        super().__init__(ledger, clock)
        self._owner = ""
        self.leases = MemoryLeases(self)
        # Plain tables are staged one by one, outside barriers: they are not simulated.
        self.staged = SimpleNamespace(records=list)

    @contextmanager
    def write(self, step: str) -> Iterator[None]:
        """One transaction: whoever overrides it may let it fail, or hide that it succeeded."""
        yield

    def wait(self) -> None:
        """Until the holder of the lock has let go, or has died."""
        raise AssertionError("nobody will let go")

    # the runner

    def acquire(self, wait: bool = False, on_wait: Callable[[str], None] | None = None) -> Fence:
        while self.ledger.holder:
            if not wait:
                raise StreamSqlError("WAREHOUSE_BUSY", "another process is running an epoch")
            if on_wait is not None:
                on_wait(self.ledger.holder)
            self.wait()
        self.ledger.owners += 1
        owner = f"simulated:{self.ledger.owners}:0"
        self.ledger.holder = self._owner = owner
        try:
            with self.write("acquire"):
                self.ledger.fence = Fence(self.ledger.fence.token + 1, owner)
        except BaseException:
            self.unlock()
            raise
        return Fence(self.ledger.fence.token, owner)

    def release(self, fence: Fence) -> None:
        try:
            with self.write("release"):
                if self.ledger.fence == fence:
                    self.ledger.fence = Fence(fence.token, "")
        finally:
            self.unlock()

    def newest_barrier(self, fence: Fence) -> int:
        with self._fenced(fence, "newest barrier"):
            return self.ledger.last_barrier

    def unlock(self) -> None:
        """What the operating system does when a process dies."""
        if self.ledger.holder == self._owner:
            self.ledger.holder = ""
        self._owner = ""

    # one barrier

    def begin(
        self,
        fence: Fence,
        inputs: Mapping[str, int | None] | None = None,
        committed: Mapping[str, float] | None = None,
    ) -> Barrier:
        with self._fenced(fence, "begin"):
            transitions.demand("begin a barrier", transitions.to_begin(self.unfinished()))
            self.ledger.last_barrier += 1
            begun = Barrier(self.ledger.last_barrier, "OPEN", fence.token, self._clock())
            self.ledger.barriers[begun.id] = begun
            self._pin(begun.id, inputs or {}, committed or {})
        return begun

    def add_inputs(
        self,
        fence: Fence,
        barrier: int,
        inputs: Mapping[str, int | None],
        committed: Mapping[str, float] | None = None,
    ) -> None:
        with self._staging(fence, barrier, "pin inputs"):
            self._pin(barrier, inputs, committed or {})

    def stage_job(self, fence: Fence, barrier: int, job: Job) -> None:
        with self._staging(fence, barrier, "define"):
            staged = self.ledger.staged_jobs.get(barrier, {})
            for known in (self.ledger.jobs, staged):
                writer = known[job.table].unique_id if job.table in known else ""
                check_writer(job.table, writer, job.unique_id)
            job = replace(job, sources=tuple(sorted(set(job.sources))))
            reads = {**self.ledger.jobs, **staged, job.table: job}
            self.topological_order(reads)
            self.ledger.staged_jobs.setdefault(barrier, {})[job.table] = job

    def processed(self, fence: Fence, version: TableVersion) -> None:
        self.processed_many(fence, [version])

    def processed_many(self, fence: Fence, versions: Iterable[TableVersion]) -> None:
        rows = list(versions)
        if not rows:
            return
        barriers = {version.barrier for version in rows}
        if len(barriers) != 1 or any(version.state != "PROCESSED" for version in rows):
            raise ValueError("versions must be PROCESSED and of one barrier")
        barrier = barriers.pop()
        with self._staging(fence, barrier, "processed"):
            held = self.ledger.versions.setdefault(barrier, {})
            held.update({version.table: version for version in rows})

    def unstage(self, fence: Fence, barrier: int, table: str) -> list[str]:
        with self._staging(fence, barrier, "unstage"):
            self.ledger.staged_jobs.get(barrier, {}).pop(table, None)
            self.ledger.versions.get(barrier, {}).pop(table, None)
            mine = [f for f in self.ledger.files if (f.table, f.barrier) == (table, barrier)]
            return sorted(file.path for file in mine)

    def precommit(self, fence: Fence, barrier: int) -> None:
        with self._fenced(fence, "precommit"):
            step = f"precommit barrier {barrier}"
            staged = self.ledger.staged_jobs.get(barrier, {})
            unbuilt = sorted(set(staged) - set(self.ledger.versions.get(barrier, {})))
            found = transitions.known(barrier, self.barrier(barrier), step)
            transitions.demand(step, transitions.to_precommit(found, fence, unbuilt))
            self._move(found, "PRECOMMIT")

    def written(self, fence: Fence, barrier: int, table: str, snapshot: int | None = None) -> None:
        with self._fenced(fence, "written"):
            step = f"mark {table} as written at barrier {barrier}"
            found = transitions.known(barrier, self.barrier(barrier), step)
            held = self.ledger.versions.get(barrier, {})
            state = held[table].state if table in held else None
            transitions.demand(step, transitions.to_write(found, table, state))
            held[table] = replace(held[table], state="WRITTEN", written_at=self._clock())
            if snapshot is not None:
                held[table] = replace(held[table], snapshot=snapshot)
                for name, version in held.items():
                    if table in version.inputs:
                        inputs = {**version.inputs, table: snapshot}
                        held[name] = replace(version, inputs=inputs)

    def commit(self, fence: Fence, barrier: int) -> None:
        with self._fenced(fence, "commit"):
            step = f"commit barrier {barrier}"
            found = transitions.known(barrier, self.barrier(barrier), step)
            held = self.ledger.versions.get(barrier, {})
            unwritten = sorted(
                v.table for v in held.values() if v.state != "WRITTEN" and v.mode != NOOP
            )
            transitions.demand(step, transitions.to_commit(found, unwritten))
            self._move(found, "COMMIT")
            self.ledger.heads.update(dict.fromkeys(held, barrier))
            self.ledger.jobs.update(self.ledger.staged_jobs.pop(barrier, {}))

    def abort(self, fence: Fence, barrier: int) -> None:
        with self._fenced(fence, "abort"):
            step = f"abort barrier {barrier}"
            found = transitions.known(barrier, self.barrier(barrier), step)
            transitions.demand(step, transitions.to_abort(found))
            self._move(found, "ABORT")
            self.ledger.staged_jobs.pop(barrier, None)

    # jobs and change files

    def drop_job(self, fence: Fence, table: str) -> None:
        with self._fenced(fence, "drop a job"):
            unfinished = self.unfinished()
            for found in unfinished:
                transitions.demand(f"drop {table}", [transitions.barrier_in(found, "OPEN")])
            for found in unfinished:
                self.ledger.staged_jobs.get(found.id, {}).pop(table, None)
                self.ledger.versions.get(found.id, {}).pop(table, None)
            self.ledger.jobs.pop(table, None)
            self.ledger.heads.pop(table, None)

    def add_change_file(self, fence: Fence, change: ChangeFile) -> None:
        with self._staging(fence, change.barrier, "add a change file"):
            key = (change.table, change.barrier, change.path)
            self._take(lambda file: (file.table, file.barrier, file.path) == key)
            self.ledger.files.append(change)

    def forget_change_files(self, fence: Fence, table: str, upto_barrier: int) -> list[str]:
        with self._fenced(fence, "forget change files"):
            return self._take(lambda file: file.table == table and file.barrier <= upto_barrier)

    def forget_aborted_change_files(self, fence: Fence) -> list[str]:
        with self._fenced(fence, "forget change files"):
            return self._take(lambda file: self._state(file.barrier) == "ABORT")

    def forget_change_files_at(self, fence: Fence, paths: Iterable[str]) -> None:
        gone = set(paths)
        with self._fenced(fence, "forget change files"):
            self._take(lambda file: file.path in gone)

    def outlook(self, retention: Retention) -> Outlook:
        of, now = self.ledger, self._clock()
        ended = {b.id: b.ended_at or 0.0 for b in of.barriers.values() if b.state == "COMMIT"}
        kept, newest = of.kept_from, sorted(ended)
        if not newest:
            return Outlook(kept, kept)
        young = [number for number in newest if ended[number] >= now - retention.seconds]
        few = newest[-retention.barriers :]
        wanted = max(
            min(young, default=newest[-1]), few[0] if len(few) == retention.barriers else 0
        )
        keep = max(kept, min([wanted, *(lease.barrier for lease in self.leases.live())]))
        gone = [number for number in newest if kept <= number < keep]
        if not gone:
            return Outlook(kept, kept)
        oldest = min(ended[number] for number in gone)
        return Outlook(kept, keep, len(gone), now - retention.seconds - oldest)

    def keep_from(self, fence: Fence, retention: Retention) -> int:
        with self._fenced(fence, "keep"):
            keep = self.outlook(retention).keep_from
            if keep > self.ledger.kept_from:
                self.ledger.kept_from = keep
                for name, lease in self.ledger.leases.items():
                    if lease.barrier < keep:
                        self.ledger.leases[name] = replace(lease, expires_at=0.0)
        return keep

    def surplus(self, barrier: int) -> dict[str, int]:
        found = self._superseded(self.ledger.versions, barrier)
        return dict(sorted(Counter(table for _, table in found).items()))

    def forget(self, fence: Fence, retention: Retention) -> Forgotten:
        with self._fenced(fence, "forget"):
            of = self.ledger
            kept = of.kept_from
            old = self._superseded(self.ledger.versions, kept)
            pins = self._superseded(of.inputs, kept)
            for number, table in old:
                del of.versions[number][table]
            for number, table in pins:
                del of.inputs[number][table]
            if not of.leases:
                old += self._unread(of.versions, lambda table: table not in of.heads)
                pins += self._unread(of.inputs, lambda _: True)
            used = {n for rows in (of.versions, of.inputs) for n, held in rows.items() if held}
            used |= {file.barrier for file in of.files}
            gone = [number for number in of.barriers if number < kept and number not in used]
            for number in gone:
                del of.barriers[number]
                of.versions.pop(number, None)
                of.inputs.pop(number, None)
        return Forgotten(len(gone), len(old), len(pins))

    def _superseded(
        self, rows: Mapping[int, Mapping[str, Any]], barrier: int
    ) -> list[tuple[int, str]]:
        """The rows below a barrier that are not in force at it."""
        in_force: dict[str, int] = {}
        for number in sorted(rows):
            if number <= barrier and self._state(number) == "COMMIT":
                in_force.update(dict.fromkeys(rows[number], number))
        return [
            (number, table)
            for number in sorted(rows)
            for table in rows[number]
            if number < barrier and in_force.get(table) != number
        ]

    def _unread(
        self, rows: Mapping[int, dict[str, Any]], goes: Callable[[str], bool]
    ) -> list[tuple[int, str]]:
        """Take out the rows below `kept_from` of tables that no version was computed from."""
        of = self.ledger
        read = {name for held in of.versions.values() for v in held.values() for name in v.inputs}
        gone = [
            (number, table)
            for number in rows
            for table in rows[number]
            if number < of.kept_from and goes(table) and table not in read
        ]
        for number, table in gone:
            del rows[number][table]
        return gone

    # the inside

    @contextmanager
    def _fenced(self, fence: Fence, step: str) -> Iterator[None]:
        with self.write(step):
            transitions.demand("write", [transitions.same_fence(fence, self.ledger.fence)])
            yield

    @contextmanager
    def _staging(self, fence: Fence, barrier: int, step: str) -> Iterator[None]:
        with self._fenced(fence, step):
            found = transitions.known(barrier, self.barrier(barrier), step)
            transitions.demand(step, transitions.to_stage(found, fence))
            yield

    def _move(self, barrier: Barrier, to: Any) -> None:
        ended = None if to in UNFINISHED else self._clock()
        self.ledger.barriers[barrier.id] = replace(barrier, state=to, ended_at=ended)

    def _pin(
        self, barrier: int, inputs: Mapping[str, int | None], made: Mapping[str, float]
    ) -> None:
        held = self.ledger.inputs.setdefault(barrier, {})
        held.update({table: (at, made.get(table)) for table, at in inputs.items()})

    def _take(self, where: Callable[[ChangeFile], bool]) -> list[str]:
        taken = [file for file in self.ledger.files if where(file)]
        self.ledger.files = [file for file in self.ledger.files if not where(file)]
        return [file.path for file in sorted(taken, key=lambda file: (file.barrier, file.path))]


class MemoryLeases:
    """What `Leases` does."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def take(self, owner: str, barrier: int, seconds: float = 60.0) -> Lease:
        store, now = self._store, self._store._clock()
        with store.write("lease"):
            state, kept = store._state(barrier), store.ledger.kept_from
            transitions.demand("lease", transitions.leasable(barrier, state, kept))
            store.ledger.owners += 1
            name = f"lease{store.ledger.owners}"
            lease = Lease(name, owner, barrier, now, now + seconds)
            store.ledger.leases[lease.id] = lease
        return lease

    def renew(self, lease: str, seconds: float = 60.0) -> float:
        now = self._store._clock()
        held = self._store.ledger.leases
        with self._store.write("renew a lease"):
            if lease not in held or held[lease].expires_at <= now:
                raise StreamSqlError("LEASE_LOST", "the reader was away for too long")
            held[lease] = replace(held[lease], expires_at=now + seconds)
        return now + seconds

    def give_back(self, lease: str) -> None:
        now, held = self._store._clock(), self._store.ledger.leases
        with self._store.write("give a lease back"):
            if lease in held and held[lease].expires_at > now:
                held[lease] = replace(held[lease], expires_at=now)

    def live(self) -> list[Lease]:
        now = self._store._clock()
        held = self._store.ledger.leases.values()
        return sorted((x for x in held if x.expires_at > now), key=lambda x: (x.barrier, x.id))

    def ended(self) -> list[str]:
        now, held = self._store._clock(), self._store.ledger.leases
        over = [name for name, lease in held.items() if lease.expires_at <= now]
        if over:
            with self._store.write("end leases"):
                held.update({name: replace(held[name], expires_at=0.0) for name in over})
        return over

    def forget(self, leases: Iterable[str]) -> None:
        with self._store.write("forget leases"):
            for name in leases:
                self._store.ledger.leases.pop(name, None)
