"""A query's barrier is chosen by several reads of the store, between which others may commit."""

from __future__ import annotations

from typing import Any

import pytest

from dbt_streamsql.meta import Fence, MetaStore, TableVersion
from dbt_streamsql.meta.inspect.consistent_cut import cut

ROOT, COUNTED, SUMMED = "lake.shop.orders", "lake.shop.counted", "lake.shop.summed"
READS = ("last_committed", "latest_all", "inputs_as_of", "unfinished", "versions", "inputs")


@pytest.fixture
def store(open_store):
    opened: MetaStore = open_store(lambda: 1000.5)
    yield opened
    opened.close()


def staged(store: MetaStore, fence: Fence, snapshot: int, *tables: str) -> int:
    """A barrier in PRECOMMIT: the tables have seen this snapshot of the root, and have it too."""
    barrier = store.begin(fence, {ROOT: snapshot}).id
    versions = [
        TableVersion(barrier, table, snapshot=snapshot, branch="b", inputs={ROOT: snapshot})
        for table in tables
    ]
    store.processed_many(fence, versions)
    store.precommit(fence, barrier)
    return barrier


def commit(store: MetaStore, fence: Fence, barrier: int) -> None:
    for version in store.versions(barrier):
        store.written(fence, barrier, version.table)
    store.commit(fence, barrier)


class Interrupted:
    """A store in which something happens just before the `nth` read."""

    def __init__(self, store: MetaStore, nth: int, event: Any) -> None:
        self._store, self._left, self._event = store, nth, event

    def __getattr__(self, name: str) -> Any:
        if name in READS:
            if self._left == 0:
                self._event()
            self._left -= 1
        return getattr(self._store, name)


@pytest.mark.parametrize("nth", range(6))
@pytest.mark.parametrize("level", ["read_committed", "repeatable_read"])
def test_a_barrier_that_is_committed_meanwhile_is_read_or_the_one_before(store, level, nth):
    fence = store.acquire()
    for snapshot in (1, 2):
        commit(store, fence, staged(store, fence, snapshot, COUNTED, SUMMED))

    def event() -> None:
        commit(store, fence, staged(store, fence, 3, COUNTED, SUMMED))

    found = cut(Interrupted(store, nth, event), level, [COUNTED, SUMMED])  # type: ignore[arg-type]
    seen = {found.tables[table].snapshot for table in (COUNTED, SUMMED)}
    assert len(seen) == 1
    assert seen <= {2, 3}


@pytest.mark.parametrize("nth", range(6))
def test_what_was_shown_as_staged_is_not_taken_back_while_it_is_committed(store, nth):
    fence = store.acquire()
    commit(store, fence, staged(store, fence, 1, COUNTED, SUMMED))
    barrier = staged(store, fence, 2, COUNTED, SUMMED)

    def event() -> None:
        commit(store, fence, barrier)

    found = cut(Interrupted(store, nth, event), "read_committed", [COUNTED, SUMMED])  # type: ignore[arg-type]
    assert {found.tables[table].snapshot for table in (COUNTED, SUMMED)} == {2}


@pytest.mark.parametrize("nth", range(6))
def test_two_barriers_that_follow_each_other_meanwhile_are_not_mixed(store, nth):
    fence = store.acquire()
    commit(store, fence, staged(store, fence, 1, COUNTED, SUMMED))
    barrier = staged(store, fence, 2, COUNTED, SUMMED)

    def event() -> None:
        commit(store, fence, barrier)
        commit(store, fence, staged(store, fence, 3, COUNTED, SUMMED))
        staged(store, fence, 4, COUNTED)

    found = cut(Interrupted(store, nth, event), "read_committed", [COUNTED, SUMMED])  # type: ignore[arg-type]
    seen = {found.tables[table].snapshot for table in (COUNTED, SUMMED)}
    assert len(seen) == 1
    assert seen <= {2, 3}
