"""What of the ledger stays readable, and what of it goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import (
    ChangeFile,
    Fence,
    Forgotten,
    MetaStore,
    Outlook,
    Retention,
    Sink,
    TableVersion,
)
from dbt_streamsql.meta.store import leases, retention
from tests.support.histories import Clock

if TYPE_CHECKING:
    pass

OpenStore = Callable[[Callable[[], float]], MetaStore]
ORDERS, TOTALS, RARE = "lake.shop.orders", "lake.shop.totals", "lake.shop.rare"
DAY = 86_400.0
FEW = Retention(seconds=1000 * DAY, barriers=2)


@pytest.fixture
def clock() -> Clock:
    return Clock(1000 * DAY)


@pytest.fixture
def fence(store: MetaStore) -> Fence:
    return store.acquire()


def commit(store: MetaStore, fence: Fence, *tables: str, **inputs: int) -> int:
    """A barrier that pins `inputs` and changes the tables, each computed from all of these."""
    pins = {f"lake.shop.{name}": at for name, at in inputs.items()}
    barrier = store.begin(fence, pins).id
    for table in tables or (TOTALS,):
        store.processed(fence, TableVersion(barrier, table, snapshot=barrier, inputs=pins))
    store.precommit(fence, barrier)
    for table in tables or (TOTALS,):
        store.written(fence, barrier, table)
    store.commit(fence, barrier)
    return barrier


def daily(store: MetaStore, fence: Fence, clock: Clock, days: int) -> list[int]:
    """One barrier a day; now is the moment of the last one."""
    barriers = []
    for _ in range(days):
        clock.now += DAY
        barriers.append(commit(store, fence))
    return barriers


def snapshots(store: MetaStore, barrier: int | None = None) -> dict[str, int | None]:
    return {table: version.snapshot for table, version in store.latest_all(barrier).items()}


def refused(call: Callable[[], object]) -> StreamSqlError:
    with pytest.raises(StreamSqlError) as error:
        call()
    return error.value


def test_what_ended_within_the_time_stays_and_what_is_older_is_refused(
    store: MetaStore, fence: Fence, clock: Clock
) -> None:
    barriers = daily(store, fence, clock, 10)
    week = Retention(7 * DAY)
    assert store.keep_from(fence, week) == store.kept_from() == barriers[2]
    assert store.forget(fence, week).barriers == 2
    for number in barriers[2:]:
        assert snapshots(store, number) == {TOTALS: number}
    for number in barriers[:2]:
        assert store.barrier(number) is None
        error = refused(lambda number=number: store.latest_all(number))
        assert (error.code, error.given) == ("META_CONFLICT", "forgotten")
        assert error.allowed == f"a committed barrier from {barriers[2]} on"
    assert [version.barrier for version in store.history(TOTALS)] == barriers[:1:-1]


def test_no_more_barriers_stay_than_asked_for_however_young(
    store: MetaStore, fence: Fence
) -> None:
    barriers = [commit(store, fence) for _ in range(5)]
    assert store.keep_from(fence, Retention(barriers=3)) == barriers[2]
    assert store.keep_from(fence, Retention(barriers=4)) == barriers[2], "it never goes back"


def test_the_newest_barrier_stays_however_old(
    store: MetaStore, fence: Fence, clock: Clock
) -> None:
    last = daily(store, fence, clock, 3)[-1]
    clock.now += 365 * DAY
    assert store.keep_from(fence, Retention(0.0)) == last
    store.forget(fence, Retention(0.0))
    assert snapshots(store, last) == snapshots(store) == {TOTALS: last}


def test_the_version_in_force_at_the_oldest_barrier_stays_readable(
    store: MetaStore, fence: Fence
) -> None:
    first = commit(store, fence, TOTALS, RARE, orders=1)
    between = [commit(store, fence, orders=number) for number in (2, 3, 4)]
    last = commit(store, fence, TOTALS, RARE, orders=5)
    before = [(snapshots(store, at), store.inputs_as_of(at)) for at in (between[-1], last)]
    assert store.keep_from(fence, FEW) == between[-1]
    gone = store.forget(fence, FEW)
    assert (gone.barriers, gone.versions, gone.pins) == (2, 3, 3)
    after = [(snapshots(store, at), store.inputs_as_of(at)) for at in (between[-1], last)]
    assert after == before
    assert after[0][0] == {TOTALS: between[-1], RARE: first}
    assert store.barrier(first) is not None, "its version is in force"
    assert store.forget(fence, FEW) == Forgotten(), "twice is once"


def test_nothing_goes_where_nothing_is_older(store: MetaStore, fence: Fence) -> None:
    assert store.outlook(Retention()) == Outlook(0, 0)
    assert store.keep_from(fence, Retention()) == 0
    commit(store, fence)
    assert store.keep_from(fence, Retention(barriers=1)) == 0
    assert store.forget(fence, Retention()) == Forgotten()
    assert snapshots(store, 1) == {TOTALS: 1}


def test_the_outlook_says_what_would_go_and_changes_nothing(
    store: MetaStore, fence: Fence, clock: Clock
) -> None:
    barriers = daily(store, fence, clock, 10)
    found = store.outlook(Retention(7 * DAY))
    assert found == Outlook(0, barriers[2], 2, 2 * DAY)
    assert found.due(100)
    assert not store.outlook(Retention(8 * DAY + 1)).due(100), "it has been so for less than a day"
    assert store.outlook(Retention(20 * DAY, 4)) == Outlook(0, barriers[6], 6, -11 * DAY)
    assert not store.outlook(Retention(20 * DAY, 4)).due(100), "few enough to wait"
    assert Outlook(0, 200, 100, -5.0).due(100)
    assert store.kept_from() == 0
    assert store.surplus(barriers[2]) == {TOTALS: 2}
    assert snapshots(store, barriers[0]) == {TOTALS: barriers[0]}


def test_a_leased_barrier_stays_with_all_after_it_until_the_lease_ends(
    store: MetaStore, fence: Fence
) -> None:
    barriers = [commit(store, fence) for _ in range(5)]
    lease = store.leases.take("host:1:a", barriers[1], 60)
    assert store.keep_from(fence, Retention(barriers=1)) == barriers[1]
    store.forget(fence, Retention(barriers=1))
    for number in barriers[1:]:
        assert snapshots(store, number) == {TOTALS: number}
    store.leases.give_back(lease.id)
    assert store.keep_from(fence, Retention(barriers=1)) == barriers[4]


def test_a_lease_that_ended_stays_ended_when_the_clock_goes_back(
    store: MetaStore, fence: Fence, clock: Clock
) -> None:
    barriers = [commit(store, fence) for _ in range(3)]
    lease = store.leases.take("host:1:a", barriers[0], 60)
    clock.now += 61
    assert store.keep_from(fence, Retention(barriers=1)) == barriers[2]
    clock.now -= 61
    assert store.leases.live() == []
    assert refused(lambda: store.leases.renew(lease.id)).code == "LEASE_LOST"
    assert store.leases.ended() == [lease.id], "what it held is still to be let go"


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, of: object, name: str, other: Callable[[], object]
) -> Callable[[], object]:
    """When `of.name` is called, inside a transaction, somebody else does `other`; who waits for
    its answer (or its error) calls what this returns."""
    original = getattr(of, name)
    answers: list[object] = []

    def act() -> None:
        try:
            answers.append(other())
        except StreamSqlError as error:
            answers.append(error)

    thread = threading.Thread(target=act)

    def called(*given: object) -> object:
        found = original(*given)
        if not thread.ident:
            thread.start()
            time.sleep(0.3)
        return found

    def answer() -> object:
        thread.join()
        return answers[0]

    monkeypatch.setattr(of, name, called)
    return answer


@pytest.mark.parametrize("call", ["take", "renew"])
def test_who_leases_when_a_barrier_is_just_going_is_refused(
    open_store: OpenStore, clock: Clock, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store, other = open_store(clock), open_store(clock)
    fence = store.acquire()
    barriers = [commit(store, fence) for _ in range(3)]
    lease = other.leases.take("host:1:a", barriers[0], 60)
    other.leases.give_back(lease.id)
    asked = {
        "take": lambda: other.leases.take("host:1:a", barriers[0], 60),
        "renew": lambda: other.leases.renew(lease.id, 60),
    }
    # The leases have been looked at.
    answer = meanwhile(monkeypatch, retention, "outlook", asked[call])
    # As on a host whose clock is slow: there it has not ended.
    monkeypatch.setattr(other.leases, "_clock", lambda: clock.now - 1, raising=False)
    assert store.keep_from(fence, Retention(barriers=1)) == barriers[2]
    error = answer()
    assert isinstance(error, StreamSqlError)
    assert error.code == {"take": "META_CONFLICT", "renew": "LEASE_LOST"}[call]
    assert store.leases.live() == []
    other.close()
    store.close()


def test_a_barrier_that_is_just_leased_does_not_go(
    open_store: OpenStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = open_store(clock), open_store(clock)
    fence = store.acquire()
    barriers = [commit(store, fence) for _ in range(3)]
    newest = Retention(barriers=1)
    # The barrier has been found readable, and the lease is not written yet.
    answer = meanwhile(monkeypatch, leases, "leasable", lambda: store.keep_from(fence, newest))
    other.leases.take("host:1:a", barriers[1], 60)
    assert answer() == barriers[1]
    assert snapshots(store, barriers[1]) == {TOTALS: barriers[1]}
    other.close()
    store.close()


def test_a_dropped_table_goes_unless_a_version_that_stays_was_computed_from_it(
    store: MetaStore, fence: Fence
) -> None:
    commit(store, fence, TOTALS, RARE, orders=1)
    reader = commit(store, fence, "lake.shop.reader", totals=1)
    store.drop_job(fence, TOTALS)
    store.drop_job(fence, RARE)
    middle = [commit(store, fence, "lake.shop.other") for _ in range(2)]
    lease = store.leases.take("host:1:a", middle[0], 60)
    store.leases.give_back(lease.id)
    store.keep_from(fence, FEW)
    store.forget(fence, FEW)
    assert RARE in snapshots(store, middle[0]), "a reader's tags on it are not gone yet"
    store.leases.forget(store.leases.ended())
    store.forget(fence, FEW)
    assert set(snapshots(store, middle[0])) == {TOTALS, "lake.shop.reader", "lake.shop.other"}
    assert store.inputs_as_of(middle[0]) == {ORDERS: 1, TOTALS: 1}
    commit(store, fence, "lake.shop.reader", users=7)
    for _ in range(2):
        commit(store, fence, "lake.shop.other")
    store.keep_from(fence, FEW)
    store.forget(fence, FEW)
    assert set(snapshots(store, store.kept_from())) == {"lake.shop.reader", "lake.shop.other"}
    assert store.outside_tables() == {"lake.shop.users"}
    assert store.barrier(reader) is None


def test_a_barrier_stays_while_a_change_file_of_it_is_listed(
    store: MetaStore, fence: Fence
) -> None:
    listed = store.begin(fence, {ORDERS: 1}).id
    store.add_change_file(fence, ChangeFile(TOTALS, listed, "c", 1))
    store.abort(fence, listed)
    for _ in range(3):
        commit(store, fence)
    store.keep_from(fence, FEW)
    store.forget(fence, FEW)
    assert [file.path for file in store.aborted_change_files()] == ["c"]
    store.forget_aborted_change_files(fence)
    assert store.forget(fence, FEW).barriers == 1
    assert store.barrier(listed) is None


def test_many_rows_go_in_several_calls(
    store: MetaStore, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS", 4)
    barriers = [commit(store, fence, TOTALS, RARE) for _ in range(10)]
    store.keep_from(fence, FEW)
    first = store.forget(fence, FEW)
    assert first.more
    assert (first.barriers, first.versions) == (2, 4)
    assert snapshots(store, barriers[8]) == {TOTALS: barriers[8], RARE: barriers[8]}
    total = first
    while total.more:
        total += store.forget(fence, FEW)
    assert (total.barriers, total.versions, total.more) == (8, 16, False)


def test_old_lines_of_the_audit_log_go_but_never_the_newest(
    store: MetaStore, fence: Fence, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ENTRIES", 3)
    daily(store, fence, clock, 10)
    store.forget(fence, Retention(5 * DAY))
    assert [entry.detail["barrier"] for entry in store.audit()] == [10, 9, 8, 7, 6, 5]
    assert store.forget(fence, Retention(0.0)).entries == 3
    assert [entry.detail["barrier"] for entry in store.audit()] == [10, 9, 8]


def test_what_a_sink_goes_on_from_stays_until_it_is_delivered(
    store: MetaStore, fence: Fence, clock: Clock
) -> None:
    first, *_ = daily(store, fence, clock, 5)
    sink = Sink("lake.shop.out", TOTALS, "", "", {"target": {}}, delivered=first + 1)
    store.put_sink(fence, sink)
    assert store.keep_from(fence, FEW) == first + 1
    store.put_sink(fence, replace(sink, delivered=first + 4))
    assert store.keep_from(fence, FEW) == first + 3


def test_a_sink_that_is_up_to_date_holds_nothing(
    store: MetaStore, fence: Fence, clock: Clock
) -> None:
    first = commit(store, fence, TOTALS)
    store.put_sink(fence, Sink("lake.shop.out", TOTALS, "", "", {}, delivered=first))
    for _ in range(4):
        newest = commit(store, fence, RARE)
    assert store.keep_from(fence, FEW) == newest - 1


def test_a_delivery_under_way_holds_its_barrier(
    store: MetaStore, fence: Fence, clock: Clock
) -> None:
    first, *_ = daily(store, fence, clock, 5)
    store.put_sink(fence, Sink("lake.shop.out", TOTALS, "", "", {}, under_way=first + 1))
    assert store.keep_from(fence, FEW) == first + 1


def test_a_sink_whose_target_is_gone_for_a_week_holds_nothing_any_more(
    store: MetaStore, fence: Fence, clock: Clock
) -> None:
    first, *_ = daily(store, fence, clock, 5)
    broken = {"delivered": first + 1, "failing_since": clock.now}
    sink = Sink("lake.shop.out", TOTALS, "", "", {}, **broken)
    store.put_sink(fence, sink)
    clock.now += retention.DELIVERING - 1
    assert store.keep_from(fence, FEW) == first + 1
    clock.now += 2
    assert store.keep_from(fence, FEW) == first + 3


def test_a_sink_that_is_dropped_holds_nothing(
    store: MetaStore, fence: Fence, clock: Clock
) -> None:
    first, *_ = daily(store, fence, clock, 5)
    store.put_sink(fence, Sink("lake.shop.out", TOTALS, "", "", {}, delivered=first))
    store.drop_sink(fence, "lake.shop.out")
    assert store.sinks() == []
    assert store.keep_from(fence, FEW) == first + 3
