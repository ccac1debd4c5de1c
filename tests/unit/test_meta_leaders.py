"""Of several runners one leads, until it resigns or is not heard of in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dbt_streamsql.meta import MetaStore
    from tests.support.histories import Clock

ONE, OTHER = "host:1:a", "host:2:b"


def test_who_comes_first_leads_and_the_others_are_told_who(store: MetaStore) -> None:
    assert store.leaders.leader() is None
    assert store.leaders.lead(ONE, 6).owner == ONE
    assert store.leaders.lead(OTHER, 6).owner == ONE
    leader = store.leaders.leader()
    assert leader is not None
    assert (leader.owner, leader.expires_at) == (ONE, 1006)


def test_a_leader_that_is_heard_of_goes_on(store: MetaStore, clock: Clock) -> None:
    store.leaders.lead(ONE, 6)
    clock.now += 5
    assert store.leaders.lead(ONE, 6).expires_at == 1011
    clock.now += 5
    assert store.leaders.lead(OTHER, 6).owner == ONE


def test_a_silent_leader_is_succeeded_and_told_so_when_it_comes_back(
    store: MetaStore, clock: Clock
) -> None:
    store.leaders.lead(ONE, 6)
    clock.now += 6
    assert store.leaders.leader() is None
    assert store.leaders.lead(OTHER, 6).owner == OTHER
    assert store.leaders.lead(ONE, 6).owner == OTHER


def test_who_resigns_is_succeeded_at_once_and_cannot_take_it_from_another(
    store: MetaStore,
) -> None:
    store.leaders.lead(ONE, 6)
    store.leaders.resign(OTHER)
    assert store.leaders.lead(OTHER, 6).owner == ONE
    store.leaders.resign(ONE)
    assert store.leaders.lead(OTHER, 6).owner == OTHER
