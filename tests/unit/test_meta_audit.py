"""The audit log has one line for what was done, with it or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Fence, Job, MetaStore, TableVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOTALS, OTHER = "lake.shop.totals", "lake.shop.other"


@pytest.fixture
def store(open_store: Callable[[Callable[[], float]], MetaStore]) -> Iterator[MetaStore]:
    opened = open_store(lambda: 1000.5)
    yield opened
    opened.close()


def commit(store: MetaStore, fence: Fence) -> int:
    barrier = store.begin(fence).id
    store.stage_job(fence, barrier, Job(TOTALS, "m", "select 1"))
    store.processed(fence, TableVersion(barrier, TOTALS, snapshot=1))
    store.processed(fence, TableVersion(barrier, OTHER, mode="noop"))
    store.precommit(fence, barrier)
    store.written(fence, barrier, TOTALS)
    store.commit(fence, barrier)
    return barrier


def test_commits_aborts_drops_and_notes_are_told_with_who_did_them(
    store: MetaStore, meta_url: str
) -> None:
    fence = store.acquire()
    barrier = commit(store, fence)
    given_up = store.begin(fence).id
    store.abort(fence, given_up)
    store.drop_job(fence, TOTALS)
    store.drop_job(fence, "lake.shop.never_was")
    store.note(fence, "revise", {"table": TOTALS, "to": barrier})
    entries = store.audit()
    assert [(entry.action, dict(entry.detail)) for entry in reversed(entries)] == [
        ("commit", {"barrier": barrier, "tables": [TOTALS]}),
        ("abort", {"barrier": given_up}),
        ("drop", {"table": TOTALS}),
        ("revise", {"table": TOTALS, "to": barrier}),
    ]
    who = "default" if meta_url.startswith("http") else fence.owner
    assert {entry.who for entry in entries} == {who}
    assert {entry.at for entry in entries} == {1000.5}


def test_a_fence_that_was_not_given_back_is_taken_over(store: MetaStore) -> None:
    first = store.acquire()
    store.release(first)
    dead = store.acquire()
    assert store.audit() == []
    store.let_go()
    fence = store.acquire()
    (entry,) = store.audit()
    assert entry.action == "take over"
    assert entry.detail == {
        "fence": fence.token,
        "from_fence": dead.token,
        "from": dead.owner,
    }


def test_what_was_refused_is_not_told(store: MetaStore) -> None:
    fence = store.acquire()
    barrier = store.begin(fence).id
    with pytest.raises(StreamSqlError):
        store.commit(fence, barrier)
    with pytest.raises(StreamSqlError):
        store.note(Fence(fence.token + 1, "other:1:x"), "revise", {})
    assert store.audit() == []


def test_the_log_is_read_page_by_page_newest_first(store: MetaStore) -> None:
    fence = store.acquire()
    for number in range(5):
        store.note(fence, "revise", {"n": number})
    pages, before = [], None
    while page := store.audit(2, before):
        pages.append([entry.detail["n"] for entry in page])
        before = page[-1].id
    assert pages == [[4, 3], [2, 1], [0]]
