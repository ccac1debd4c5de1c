"""The invariants I1-I7, I11 and I12, checked on what is stored, never on what a process believes.

`Checks.at_commit` looks at each barrier the moment it commits, `at_point` is a reader that comes at
any time, `at_rest` is for when everything has been cleaned up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dbt_streamsql.meta import ChangeFile, Job, TableVersion
from dbt_streamsql.quoting import TableName
from tests.oracle.zset import ZSet
from tests.simulator.sim_lake import query
from tests.simulator.sim_process import Process, Simulation
from tests.simulator.sim_store import MemoryStore
from tests.support.product import BARRIER_PROPERTY, STAGING_SCHEMA

BASES = ("lake.s.a", "lake.s.b")


@dataclass
class Checks:
    """`touched` are views whose table somebody else wrote or dropped since they were published.

    `zombies`: some process worked without its lock, so that what only lies about may be late.
    """

    simulation: Simulation
    names: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    zombies: bool = False
    begun: int = 0
    committed: dict[str, int | None] = field(default_factory=dict)
    barrier: int = 0
    held: dict[str, dict[str, int | None]] = field(default_factory=dict)
    """What readers with a lease go on reading, by lease."""
    until: dict[str, float] = field(default_factory=dict)
    """When the leases of these readers end, those that have not."""
    born: dict[int, set[str]] = field(default_factory=dict)
    """The views that had a version when the barrier committed."""
    lost: dict[str, int] = field(default_factory=dict)
    """Up to which snapshot each view was lost when somebody else dropped its table."""

    @property
    def _jobs(self) -> dict[str, Job]:
        return self.simulation.ledger.jobs

    def _latest(self) -> dict[str, TableVersion]:
        of = self.simulation.ledger
        return {t: of.versions[b][t] for t, b in of.heads.items() if t in of.versions.get(b, {})}

    def fail(self, invariant: str, text: str) -> None:
        self.simulation.violated(invariant, text)

    # -- while processes run -----------------------------------------------------------------

    def watch(self, process: Process, what: str, moment: str) -> None:
        if moment != "done" or not what.startswith("store: "):
            return
        if what == "store: begin":
            self._at_begin()
        elif what == "store: commit":
            self.at_commit()

    def _at_begin(self) -> None:
        last = self.simulation.ledger.last_barrier
        newest = max(self.simulation.ledger.barriers)
        if last <= self.begun or newest != last:
            self.fail("I4", f"barrier {last} begins after barrier {self.begun}")
        self.begun = last

    def at_commit(self) -> None:
        """A barrier is complete: each of its versions is what its query gives on its inputs."""
        of = self.simulation.ledger
        barrier = max(b.id for b in of.barriers.values() if b.state == "COMMIT")
        if barrier <= self.barrier:
            self.fail("I4", f"barrier {barrier} committed after barrier {self.barrier}")
        pins = {table: at for table, (at, _) in of.inputs.get(barrier, {}).items()}
        latest = self._latest()
        for table, version in of.versions.get(barrier, {}).items():
            self._readable(version)
            self._right(version)
            for source, seen in version.inputs.items():
                if source in BASES and pins.get(source) != seen:
                    self.fail("I12", f"{table} read {source} at {seen}, its barrier {pins}")
                if source in latest and latest[source].snapshot != seen:
                    self.fail(
                        "I12", f"{table} read {source} at {seen}, not {latest[source].snapshot}"
                    )
                before = self.simulation.ledger.heads and self._earlier(table, barrier, source)
                if source in BASES and before is not None and (seen or 0) < before:
                    self.fail("I2", f"{table} goes back from {before} to {seen} of {source}")
            if self._published(version):
                self.touched.discard(table)
        self.born[barrier] = set(latest)
        self.barrier = barrier
        self.committed = {table: version.snapshot for table, version in latest.items()}

    def _earlier(self, table: str, barrier: int, source: str) -> int | None:
        """What the table had read of a source at the barrier before."""
        of = self.simulation.ledger
        for number in sorted(of.versions, reverse=True):
            if number < barrier and of.barriers[number].state == "COMMIT":
                found = of.versions[number].get(table)
                if found is not None:
                    return found.inputs.get(source)
        return None

    def _right(self, version: TableVersion) -> None:
        job, archive = self._jobs.get(version.table), self.simulation.lake.archive
        if job is None:
            return
        inputs = [archive.get(version.inputs.get(s) or 0, {}) for s in job.plan["order"]]
        expected = query(job.plan["kind"], inputs)
        found = archive.get(version.snapshot or 0)
        if found != expected:
            self.fail("I1", f"{version.table} is {found}, its query gives {expected}")

    def _readable(self, version: TableVersion) -> None:
        table = self.simulation.lake.tables.get(version.table)
        if version.table in self.touched:
            return
        if table is None or version.snapshot not in table.meta.snapshots:
            self.fail("I3", f"barrier {version.barrier}: {version.table} cannot be read")

    def _published(self, version: TableVersion) -> bool:
        """Whether the table shows the version, whatever others did meanwhile."""
        lake = self.simulation.lake
        table = lake.tables.get(version.table)
        if table is None or version.snapshot not in table.meta.snapshots:
            return False
        return lake.archive[table.meta.current or 0] == lake.archive[version.snapshot or 0]

    def at_point(self) -> None:
        """What a reader sees that comes now: one committed barrier, and no staged thing."""
        latest = self._latest()
        seen = {table: version.snapshot for table, version in latest.items()}
        if seen != self.committed:
            self.fail("I12", f"readers see {seen}, committed was {self.committed}")
        for version in latest.values():
            self._readable(version)
        self._kept()
        self._leased()
        self.visible()

    def _kept(self) -> None:
        """Every barrier that is not forgotten can be read as it was."""
        of = self.simulation.ledger
        store = MemoryStore(of, self.simulation.clock)
        for barrier in of.barriers.values():
            if barrier.state != "COMMIT" or barrier.id < of.kept_from:
                continue
            versions = store.latest_all(barrier.id)
            if missing := self.born.get(barrier.id, set()) - set(versions):
                self.fail("I3", f"barrier {barrier.id} has lost {sorted(missing)}")
            for table, version in versions.items():
                if (version.snapshot or 0) > self.lost.get(table, 0):
                    self._readable(version)

    def lease(self, seconds: float) -> None:
        """A reader comes that goes on reading what is committed now."""
        store = MemoryStore(self.simulation.ledger, self.simulation.clock)
        lease = store.leases.take("reader", self.barrier, seconds)
        self.until[lease.id] = self.simulation.now + seconds
        self.held[lease.id] = {t: s for t, s in self.committed.items() if t not in self.touched}
        for table, snapshot in store.inputs_as_of(self.barrier).items():
            refs = self.simulation.lake.tables[table].meta.refs
            # Before its tag is set, a process may die, and others may expire it.
            if any("_pin_" in ref and at == snapshot for ref, at in refs.items()):
                self.held[lease.id][table] = snapshot
        self.simulation.say(f"   outside: a reader holds barrier {self.barrier} for {seconds} s")

    def tick(self) -> None:
        """The clock was moved: what ended by it has ended for good."""
        self.until = {name: end for name, end in self.until.items() if end > self.simulation.now}

    def _leased(self) -> None:
        """What a reader holds can be read, whatever has been published since."""
        store = MemoryStore(self.simulation.ledger, self.simulation.clock)
        tables = self.simulation.lake.tables
        live = store.leases.live()
        if lost := set(self.until) - {lease.id for lease in live}:
            self.fail("I12", f"{sorted(lost)} ended before their time")
        for lease in live:
            for table, snapshot in self.held.get(lease.id, {}).items():
                found = tables.get(table)
                if found is None or snapshot not in found.meta.snapshots:
                    self.fail("I12", f"{table} at {snapshot} is gone, and a reader holds {lease}")

    def visible(self) -> None:
        """By name nobody sees what is staged, nor anything of a barrier that may yet go back."""
        lake, of = self.simulation.lake, self.simulation.ledger
        seen = lake.visible()
        if strange := set(seen) - self.names:
            self.fail("I5", f"{sorted(strange)} can be seen")
        publishing = {
            table
            for barrier in of.barriers.values()
            if barrier.state == "PRECOMMIT"
            for table in of.versions.get(barrier.id, {})
        }
        latest = self._latest()
        for table in self.names - publishing - self.touched - set(BASES):
            version = latest.get(table)
            expected = lake.archive.get(version.snapshot or 0) if version else None
            if seen.get(table) != expected:
                self.fail("I12", f"{table} shows {seen.get(table)}, committed is {expected}")

    # -- when nothing runs -------------------------------------------------------------------

    def at_rest(self) -> None:
        """After recovery and one sweep of everything."""
        lake, of = self.simulation.lake, self.simulation.ledger
        self.at_point()
        for barrier in of.barriers.values():
            if barrier.state in ("OPEN", "PRECOMMIT"):
                self.fail("I3", f"{barrier} was not finished")
        for name, table in lake.tables.items():
            if f".{STAGING_SCHEMA}." in name:
                self.fail("I5", f"{name} was left")
            left = [ref for ref in table.meta.refs if "_pin_" not in ref]
            if left:
                self.fail("I5", f"{left} of {name} were left")
        listed = {file.path for file in of.files}
        if not self.zombies and set(lake.files) - listed:
            self.fail("I5", f"change files {sorted(set(lake.files) - listed)} were left")
        for file in of.files:
            # What has been read by all may go first, and be forgotten only by a later sweep.
            if file.path not in lake.files and self._has_readers(file):
                self.fail("I3", f"{file} is lost, and was not read by all")
        if of.holder:
            self.fail("I7", f"{of.holder} still holds the lock")
        self._pinned()

    def _has_readers(self, file: ChangeFile) -> bool:
        """Whether some view has seen only what was there before the change."""
        table = self.simulation.lake.tables.get(file.table)
        known = table.meta.snapshots if table is not None else {}
        for version in self._latest().values():
            seen = known.get(version.inputs.get(file.table) or 0)
            if seen is not None and seen.count(BARRIER_PROPERTY) < file.barrier:
                return True
        return False

    def _pinned(self) -> None:
        """Exactly what the views have consumed is kept from expiring, and the newest version of
        a view that a compaction has replaced."""
        wanted: dict[str, set[int]] = {}
        tables = self.simulation.lake.tables
        for version in self._latest().values():
            for source, snapshot in version.inputs.items():
                wanted.setdefault(source, set()).add(snapshot or 0)
            at = tables.get(version.table)
            if at is not None and at.meta.current != version.snapshot:
                wanted.setdefault(version.table, set()).add(version.snapshot or 0)
        store = MemoryStore(self.simulation.ledger, self.simulation.clock)
        held: dict[str, set[int]] = {}
        for lease in store.leases.live():
            seen = {t: v.snapshot for t, v in store.latest_all(lease.barrier).items()}
            for source, snapshot in (*seen.items(), *store.inputs_as_of(lease.barrier).items()):
                held.setdefault(source, set()).add(snapshot or 0)
        for name, table in tables.items():
            pinned = {at for ref, at in table.meta.refs.items() if "_pin_" in ref}
            expected = wanted.get(name, set()) & set(table.meta.snapshots)
            if not expected <= pinned <= expected | held.get(name, set()):
                self.fail("I3", f"{name} keeps {sorted(pinned)}, not {sorted(expected)}")

    def up_to_date(self) -> None:
        """Every change of the tables outside has come to the views, once."""
        lake, latest = self.simulation.lake, self._latest()
        rows = {name: lake.rows(_name(name), lake.tables[name].meta.current) for name in BASES}

        def expected(table: str) -> ZSet:
            if table not in rows:
                job = self._jobs[table]
                sources = [expected(source) for source in job.plan["order"]]
                rows[table] = query(job.plan["kind"], sources)
            return rows[table]

        for table in self._jobs:
            version = latest.get(table)
            found = lake.archive.get(version.snapshot or 0) if version else None
            if found != expected(table):
                self.fail("I2", f"{table} is {found}, from scratch it is {expected(table)}")

    def fingerprint(self) -> str:
        """All that is durable, but for the runner's token."""
        lake, of = self.simulation.lake, self.simulation.ledger
        tables = {name: (table.columns, table.meta) for name, table in lake.tables.items()}
        return repr(
            (
                sorted(tables.items()),
                sorted(lake.files),
                of.barriers,
                of.versions,
                of.heads,
                of.jobs,
                of.files,
                of.last_barrier,
            )
        )


def _name(table: str) -> TableName:
    return TableName.parse(table)
