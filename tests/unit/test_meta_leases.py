"""A reader that leases a barrier keeps it until it gives it back, or is not heard of in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Fence, MetaStore, Retention, TableVersion
from tests.support.histories import Clock

if TYPE_CHECKING:
    pass

TOTALS = "lake.shop.totals"
NEWEST = Retention(barriers=1)


@pytest.fixture
def fence(store: MetaStore) -> Fence:
    return store.acquire()


def commit(store: MetaStore, fence: Fence) -> int:
    barrier = store.begin(fence).id
    store.processed(fence, TableVersion(barrier, TOTALS, snapshot=barrier))
    store.precommit(fence, barrier)
    store.written(fence, barrier, TOTALS)
    store.commit(fence, barrier)
    return barrier


def test_a_lease_is_held_until_it_is_given_back(store: MetaStore, fence: Fence) -> None:
    barrier = commit(store, fence)
    lease = store.leases.take("host:1:a", barrier, 60)
    assert (lease.barrier, lease.owner, lease.expires_at) == (barrier, "host:1:a", 1060)
    assert store.leases.live() == [lease]
    store.leases.give_back(lease.id)
    store.leases.give_back(lease.id)
    assert store.leases.live() == []


def test_a_reader_that_is_not_heard_of_loses_its_lease_and_is_told(
    store: MetaStore, fence: Fence, clock: Clock
) -> None:
    lease = store.leases.take("host:1:a", commit(store, fence), 60)
    clock.now += 50
    assert store.leases.renew(lease.id, 60) == clock.now + 60
    clock.now += 61
    assert store.leases.live() == []
    with pytest.raises(StreamSqlError) as error:
        store.leases.renew(lease.id, 60)
    assert error.value.code == "LEASE_LOST"
    assert store.leases.ended() == [lease.id]
    store.leases.forget(store.leases.ended())
    assert store.leases.ended() == []


def test_a_lease_that_has_ended_does_not_live_again_when_the_clock_is_set_back(
    store: MetaStore, fence: Fence, clock: Clock
) -> None:
    commit(store, fence)
    lease = store.leases.take("host:1:a", 1, 60)
    clock.now += 61
    assert store.leases.ended() == [lease.id], "what it held may go now"
    clock.now -= 61
    assert store.leases.live() == []
    with pytest.raises(StreamSqlError, match="LEASE_LOST"):
        store.leases.renew(lease.id, 60)


@pytest.mark.parametrize("state", ["OPEN", "ABORT", "missing", "forgotten"])
def test_only_a_barrier_that_stays_the_same_can_be_leased(
    store: MetaStore, fence: Fence, state: str
) -> None:
    first = commit(store, fence)
    barrier = store.begin(fence).id if state in ("OPEN", "ABORT") else 77
    if state == "ABORT":
        store.abort(fence, barrier)
    if state == "forgotten":
        commit(store, fence)
        store.keep_from(fence, NEWEST)
        barrier = first
    with pytest.raises(StreamSqlError) as error:
        store.leases.take("host:1:a", barrier)
    assert error.value.code == "META_CONFLICT"
    assert store.leases.live() == []
