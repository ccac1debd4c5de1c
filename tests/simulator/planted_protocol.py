"""Bugs of the protocol, planted one at a time; the simulator has to find each.

Not here, because what can be seen stays right with them: a replacement that is published a second
time (it has the same rows), change files that are forgotten too early (the reader then compares
versions), and inputs that are not recorded where nothing came of them (they are compared again).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from dbt_streamsql.meta import Barrier, Fence, Outlook, Retention, TableVersion
from dbt_streamsql.quoting import TableName
from tests.simulator.sim_store import MemoryLeases, MemoryStore
from tests.support.product import (
    BARRIER_MOVES,
    Feed,
    RefUpdate,
    Requirement,
    Version,
    ViewRefresh,
    delete_folder,
    failpoint,
    make_visible,
    move_pins,
    pin,
    replaced,
    roll_back,
    roll_forward,
    symbol,
)

load = symbol("load", beside="as_now")
update_refs = symbol("update_refs")
sweep = symbol("sweep", beside="roll_forward")

Change = tuple[Any, ...]
"""What `replaced` is given of the product; of the simulation's own classes, `patch.object`."""


def _no_requirement(*_: Any) -> list[Requirement]:
    return []


def _without_tagged(version: TableVersion, _: RefUpdate) -> RefUpdate:
    return RefUpdate(forward=version.branch, drop_branches=(version.branch,))


def _holds(*_: Any) -> Requirement:
    return Requirement("", "", "", holds=True)


def _commit_first(warehouse: Any, fence: Fence, barrier: int, *_: Any) -> None:
    store = warehouse.store
    waiting = [version for version in store.versions(barrier) if version.to_publish]
    with failpoint("barrier.commit"):
        store.commit(fence, barrier)
    for version in waiting:
        with failpoint("publish.table"):
            make_visible(warehouse.sessions.main, version)


def _record_first(warehouse: Any, fence: Fence, barrier: int, *_: Any) -> None:
    store = warehouse.store
    for version in store.versions(barrier):
        if version.to_publish:
            with failpoint("table.written"):
                store.written(fence, barrier, version.table)
            with failpoint("publish.table"):
                make_visible(warehouse.sessions.main, version)
    with failpoint("barrier.commit"):
        store.commit(fence, barrier)


def _only_the_first(warehouse: Any, fence: Fence, barrier: int, *_: Any) -> None:
    """Recovery that takes the table at which its predecessor died for published."""
    store = warehouse.store
    waiting = [version for version in store.versions(barrier) if version.to_publish]
    for version in waiting:
        if version is not waiting[0] or barrier % 2:
            make_visible(warehouse.sessions.main, version)
        store.written(fence, barrier, version.table)
    store.commit(fence, barrier)


def _always_back(warehouse: Any, fence: Fence) -> None:
    for barrier in warehouse.store.unfinished():
        roll_back(warehouse, fence, barrier.id)
    sweep(warehouse, fence)


def _always_on(warehouse: Any, fence: Fence) -> None:
    for barrier in warehouse.store.unfinished():
        if barrier.state == "OPEN":
            warehouse.store.precommit(fence, barrier.id)
        roll_forward(warehouse, fence, barrier.id)
    sweep(warehouse, fence)


def _no_recovery(warehouse: Any, fence: Fence) -> None:
    sweep(warehouse, fence)


def _forward_again(spark: Any, version: TableVersion, *_: Any) -> int | None:
    """Without the look whether the table has been published already."""
    table = TableName.parse(version.table)
    if version.staged_at:
        return PUBLISH(spark, version)
    update_refs(spark, table, RefUpdate(forward=version.branch, drop_branches=(version.branch,)))
    return None


def _without_tags(spark: Any, version: TableVersion, kept: Any = dict, *_: Any) -> int | None:
    return PUBLISH(spark, version, kept)


PUBLISH = make_visible
RUN = ViewRefresh.run
MOVE_PINS = move_pins
BEGIN = MemoryStore.begin
OUTLOOK = MemoryStore.outlook
STAGE_JOB = MemoryStore.stage_job


def _begin_after_the_last_committed(self: MemoryStore, *given: Any) -> Barrier:
    self.ledger.last_barrier = self.last_committed()
    return BEGIN(self, *given)


def _define_at_once(self: MemoryStore, fence: Fence, barrier: int, given: Any) -> None:
    STAGE_JOB(self, fence, barrier, given)
    self.ledger.jobs[given.table] = given


def _written_without_readers(
    self: MemoryStore, fence: Fence, barrier: int, table: str, snapshot: int | None = None
) -> None:
    with self._fenced(fence, "written"):
        held = self.ledger.versions[barrier]
        snapshot = held[table].snapshot if snapshot is None else snapshot
        held[table] = replace(held[table], state="WRITTEN", snapshot=snapshot)


def _newest_of_all(self: MemoryStore, _: Fence) -> int:
    return self.ledger.last_barrier


def _release_when_told(self: MemoryStore, fence: Fence) -> None:
    with self.write("release"):
        if self.ledger.fence == fence:
            self.ledger.fence = Fence(fence.token, "")
    self.unlock()


def _no_pins(warehouse: Any, fence: Fence, *, everywhere: bool) -> int:
    """Tags of what the views read before: they are dropped while it is still the newest."""
    with patch.object(warehouse.store, "latest_all", dict):
        return MOVE_PINS(warehouse, fence, everywhere=everywhere)


def _newest_input(opened: Any, table: str) -> Version:
    if table in opened.jobs:
        return pin(opened, table)
    opened.pins.pop(table, None)
    return pin(opened, table)


def _says_newest(self: Any, spark: Any) -> TableVersion:
    """A record of what is there at the end, not of what was read."""
    version = RUN(self, spark)
    newest = {}
    for source, seen in version.inputs.items():
        found = load(spark, TableName.parse(source))
        outside = source not in self.epoch.jobs and found is not None
        newest[source] = found.current if outside and found is not None else seen
    return replace(version, inputs=newest)


def _every_file(epoch: Any, source: str, *_: Any) -> Feed | None:
    """All files that are still there, also those that this reader has read."""
    found = epoch.warehouse.store.change_files(source, 0, epoch.barrier())
    return Feed(epoch.jobs[source], tuple(file.path for file in found)) if found else None


def _the_last_file(epoch: Any, source: str, *_: Any) -> Feed | None:
    """The newest file, for a reader that may have missed earlier ones."""
    found = epoch.warehouse.store.change_files(source, 0, epoch.barrier())
    return Feed(epoch.jobs[source], (found[-1].path,)) if found else None


def _files_of_readers_too(warehouse: Any, fence: Fence) -> int:
    store = warehouse.store
    for table in store.tables_with_change_files():
        for file in store.change_files(table, 0, store.last_committed()):
            with failpoint("sweep.changes"):
                delete_folder(warehouse.sessions.main, file.path)
    return 0


def _forget_first(warehouse: Any, fence: Fence) -> int:
    store = warehouse.store
    paths = [file.path for file in store.aborted_change_files()]
    if paths:
        store.forget_change_files_at(fence, paths)
    for path in paths:
        with failpoint("sweep.changes"):
            delete_folder(warehouse.sessions.main, path)
    return len(paths)


def _outlook_without_leases(self: MemoryStore, kept: Retention) -> Outlook:
    with patch.object(self.leases, "live", list):
        return OUTLOOK(self, kept)


def _all_but_the_newest(meta: Any, *_: Any) -> tuple[int, ...]:
    """Not only what is older than the version in force at the oldest barrier."""
    return tuple(sorted(set(meta.snapshots) - {*meta.refs.values(), meta.current}))


def _rows_by_number(self: MemoryStore, rows: Any, barrier: int) -> list[tuple[int, str]]:
    """The version in force at the oldest barrier may be older than that."""
    of = self.ledger
    old = [(number, table) for number in rows if number < barrier for table in rows[number]]
    return [(number, table) for number, table in old if of.heads.get(table) != number]


def _define_outside(self: Any, given: Any, plan: Any, change: Any, why: str = "") -> TableVersion:
    if self.state.jobs.get(given.table) != given:
        self._stage(given)
    found: TableVersion = self._once(given.table, lambda: self._run(given, plan, change, why))
    return found


ON: dict[Any, Any] = {
    **BARRIER_MOVES,
    "PRECOMMIT": frozenset({"COMMIT", "ABORT"}),
}

PLANTED: dict[str, tuple[Change, ...]] = {
    "commit before all is published": (
        ("roll_forward", _commit_first),
        ("to_commit", _no_requirement),
    ),
    "recorded as published before it is": (("roll_forward", _record_first),),
    "one table is left out of publishing": (("roll_forward", _only_the_first),),
    "recovery rolls PRECOMMIT back": (
        ("recover", _always_back),
        ("BARRIER_MOVES", ON),
    ),
    "recovery rolls OPEN forward": (
        ("recover", _always_on),
        ("begun_by", _holds),
    ),
    "recovery leaves unfinished barriers": (("recover", _no_recovery),),
    "publishing twice is not the same as once": (("make_visible", _forward_again),),
    "no fence check": (("same_fence", _holds),),
    "sweep takes what a successor stages": ((MemoryStore, "newest_barrier", _newest_of_all),),
    "the lock is kept when a release fails": ((MemoryStore, "release", _release_when_told),),
    "numbers of aborted barriers are used again": (
        (MemoryStore, "begin", _begin_after_the_last_committed),
    ),
    "a definition counts before its barrier": ((MemoryStore, "stage_job", _define_at_once),),
    "a definition that failed half runs by the old one": (("Epoch.define", _define_outside),),
    "readers name a version by its staged id": (
        (MemoryStore, "written", _written_without_readers),
    ),
    "staged on main": (("branch_name", lambda _: "main"),),
    "staging tables stay": (("staged_tables", lambda *_: []),),
    "pins go too early": (("move_pins", _no_pins),),
    "the version that is replaced has no tag": (("make_visible", _without_tags),),
    "tables that move at once leave no tags": (("forward", _without_tagged),),
    "the version that is compacted has no tag": (
        ("of", lambda *_: (), "reconcile", "upkeep"),
        ("reconcile", lambda *_: 0, "", "upkeep"),
    ),
    "a lease that has ended may live again": ((MemoryLeases, "ended", lambda _: []),),
    "what a reader holds is not pinned": (("_leased", lambda _: {}),),
    "each view reads the newest input": (("pin", _newest_input, "", "ViewRefresh"),),
    "the newest input is recorded, not the one that was read": (
        ("ViewRefresh.run", _says_newest),
    ),
    "a reader takes changes again": (("_feed", _every_file, "readings"),),
    "a reader misses changes": (("_feed", _the_last_file, "readings"),),
    "change files go before they are read": (("_sweep_changes", _files_of_readers_too),),
    "change files are forgotten before they go": (("_sweep_changes", _forget_first),),
    "a barrier goes that a reader holds": ((MemoryStore, "outlook", _outlook_without_leases),),
    "versions go that a barrier has": (("_old", _all_but_the_newest),),
    "rows go that are in force": ((MemoryStore, "_superseded", _rows_by_number),),
}
"""What is wrong, and what is put in place of what."""


@contextmanager
def planted(changes: tuple[Change, ...]) -> Iterator[None]:
    """Inside, the product has one bug."""
    with ExitStack() as stack:
        for change in changes:
            ours = isinstance(change[0], type)
            stack.enter_context(patch.object(*change) if ours else replaced(*change))
        yield
