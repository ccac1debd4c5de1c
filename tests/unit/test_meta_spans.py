"""How far a stream is read at a barrier is known before it is read, and belongs to the barrier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Fence, MetaStore, Retention, Span, TableVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

CLICKS, VIEWS = "lake.shop.clicks", "lake.shop.views"
FIRST = Span(None, {"clicks": {"0": 10, "1": 7}})
SECOND = Span(FIRST.upto, {"clicks": {"0": 12, "1": 7}, "é": [None, 1.5]})


@pytest.fixture
def store(open_store: Callable[[Callable[[], float]], MetaStore]) -> Iterator[MetaStore]:
    opened = open_store(lambda: 1000.5)
    yield opened
    opened.close()


@pytest.fixture
def fence(store: MetaStore) -> Fence:
    return store.acquire()


def barrier_with(store: MetaStore, fence: Fence, spans: dict[str, Span]) -> int:
    barrier = store.begin(fence).id
    store.add_spans(fence, barrier, spans)
    store.processed_many(fence, [TableVersion(barrier, table, snapshot=1) for table in spans])
    return barrier


def finished(store: MetaStore, fence: Fence, barrier: int) -> int:
    store.precommit(fence, barrier)
    for version in store.versions(barrier):
        store.written(fence, barrier, version.table)
    store.commit(fence, barrier)
    return barrier


def test_what_is_recorded_is_what_is_told(store: MetaStore, fence: Fence) -> None:
    barrier = store.begin(fence).id
    store.add_spans(fence, barrier, {CLICKS: FIRST, VIEWS: SECOND})
    assert store.spans(barrier) == {CLICKS: FIRST, VIEWS: SECOND}
    store.add_spans(fence, barrier, {CLICKS: SECOND})
    assert store.spans(barrier) == {CLICKS: SECOND, VIEWS: SECOND}
    assert store.spans(barrier + 1) == {}


def test_a_table_that_is_taken_out_of_a_barrier_has_read_nothing_at_it(
    store: MetaStore, fence: Fence
) -> None:
    barrier = barrier_with(store, fence, {CLICKS: FIRST, VIEWS: FIRST})
    store.unstage(fence, barrier, CLICKS)
    assert store.spans(barrier) == {VIEWS: FIRST}


def test_nothing_is_recorded_once_a_barrier_only_goes_forward(
    store: MetaStore, fence: Fence
) -> None:
    barrier = barrier_with(store, fence, {CLICKS: FIRST})
    store.precommit(fence, barrier)
    with pytest.raises(StreamSqlError) as caught:
        store.add_spans(fence, barrier, {CLICKS: SECOND})
    assert caught.value.code == "META_CONFLICT"
    assert store.spans(barrier) == {CLICKS: FIRST}


def test_who_has_lost_the_right_to_write_records_nothing(
    store: MetaStore, fence: Fence, lose_lock: Callable[[MetaStore], None]
) -> None:
    barrier = barrier_with(store, fence, {CLICKS: FIRST})
    lose_lock(store)
    store.acquire()
    with pytest.raises(StreamSqlError) as caught:
        store.add_spans(fence, barrier, {CLICKS: SECOND})
    assert caught.value.code == "META_CONFLICT"
    assert store.spans(barrier) == {CLICKS: FIRST}


def test_what_old_barriers_read_is_forgotten_with_them(store: MetaStore, fence: Fence) -> None:
    first = finished(store, fence, barrier_with(store, fence, {CLICKS: FIRST}))
    second = finished(store, fence, barrier_with(store, fence, {CLICKS: SECOND}))
    few = Retention(seconds=1e9, barriers=1)
    store.keep_from(fence, few)
    store.forget(fence, few)
    assert store.spans(first) == {}
    assert store.spans(second) == {CLICKS: SECOND}
