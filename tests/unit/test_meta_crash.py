"""A runner dies at any point: the next one sees either nothing of its barrier or all of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import (
    ChangeFile,
    Fence,
    Job,
    MetaStore,
    Retention,
    TableVersion,
    open_store,
)

Step = Callable[[MetaStore, Fence], object]
ORDERS, A, B = "lake.shop.orders", "lake.shop.a", "lake.shop.b"


def job(table: str, sql: str) -> Job:
    return Job(table, f"model.{table}", sql, sources=(ORDERS,))


def steps(barrier: int, sql: str) -> list[Step]:
    """Every durable step of one barrier that redefines A and B."""
    return [
        lambda s, f: s.begin(f, {ORDERS: barrier}),
        lambda s, f: s.stage_job(f, barrier, job(A, sql)),
        lambda s, f: s.processed(f, TableVersion(barrier, A, snapshot=barrier)),
        lambda s, f: s.add_change_file(f, ChangeFile(A, barrier, f"c/{barrier}", 1)),
        lambda s, f: s.stage_job(f, barrier, job(B, sql)),
        lambda s, f: s.processed(f, TableVersion(barrier, B, snapshot=barrier)),
        lambda s, f: s.precommit(f, barrier),
        lambda s, f: s.written(f, barrier, A),
        lambda s, f: s.written(f, barrier, B),
        lambda s, f: s.commit(f, barrier),
        lambda s, f: s.release(f),
    ]


PRECOMMITTED = 7
"""From so many steps on, the way out is forward."""


def recover(store: MetaStore, fence: Fence) -> None:
    for barrier in store.unfinished():
        if barrier.state == "OPEN":
            store.abort(fence, barrier.id)
            continue
        for version in store.versions(barrier.id):
            if version.to_publish:
                store.written(fence, barrier.id, version.table)
        store.commit(fence, barrier.id)


@pytest.mark.parametrize("done", range(len(steps(0, "")) + 1))
def test_after_a_crash_the_barrier_is_there_wholly_or_not_at_all(meta_url: str, done: int) -> None:
    store = open_store(meta_url)
    fence = store.acquire()
    for step in steps(1, "old"):
        step(store, fence)
    dead = store.acquire()
    for step in steps(2, "new")[:done]:
        step(store, dead)
    store.close()

    store = open_store(meta_url)
    fence = store.acquire()
    assert fence.token == 3
    recover(store, fence)
    assert store.unfinished() == []
    expected = 2 if done >= PRECOMMITTED else 1
    assert store.last_committed() == expected
    assert {t: v.snapshot for t, v in store.latest_all().items()} == {A: expected, B: expected}
    assert {t: j.sql for t, j in store.jobs().items()} == dict.fromkeys(
        (A, B), "new" if expected == 2 else "old"
    )
    assert store.staged_jobs(2) == {}
    assert [c.path for c in store.change_files(A, 1, 2)] == (["c/2"] if expected == 2 else [])
    assert store.begin(fence, {}).id == (3 if done else 2)
    store.close()


@pytest.mark.parametrize("done", range(1, len(steps(0, "")) - 1))
def test_a_runner_that_was_replaced_cannot_take_its_next_step(
    meta_url: str, lose_lock: Callable[[MetaStore], None], done: int
) -> None:
    old, new = open_store(meta_url), open_store(meta_url)
    stale = old.acquire()
    rest = steps(1, "x")
    for step in rest[:done]:
        step(old, stale)
    lose_lock(old)
    fence = new.acquire()
    with pytest.raises(StreamSqlError) as caught:
        rest[done](old, stale)
    assert caught.value.code == "META_CONFLICT"
    assert caught.value.allowed == str(stale)
    assert caught.value.given == str(fence)
    recover(new, fence)
    assert new.last_committed() == (1 if done >= PRECOMMITTED else 0)
    old.release(stale)
    assert new.fence() == fence, "giving back a lost fence takes nothing from the new runner"
    old.close()
    new.close()


def test_every_kind_of_write_checks_the_fence(meta_url: str) -> None:
    store = open_store(meta_url)
    stale = store.acquire()
    store.begin(stale, {})
    store.release(stale)
    writes: list[Step] = [
        *steps(1, "x")[:-1],
        lambda s, f: s.add_inputs(f, 1, {A: 1}),
        lambda s, f: s.processed_many(f, [TableVersion(1, A), TableVersion(1, B)]),
        lambda s, f: s.unstage(f, 1, A),
        lambda s, f: s.abort(f, 1),
        lambda s, f: s.drop_job(f, A),
        lambda s, f: s.forget_change_files(f, A, 1),
        lambda s, f: s.forget_aborted_change_files(f),
        lambda s, f: s.keep_from(f, Retention()),
        lambda s, f: s.forget(f, Retention()),
    ]
    for fence in (stale, Fence(stale.token, "other:1:x"), Fence(stale.token + 1, stale.owner)):
        for write in writes:
            with pytest.raises(StreamSqlError, match="META_CONFLICT"):
                write(store, fence)
    store.close()


def test_a_successor_may_abort_an_open_barrier_but_not_go_on_with_it(meta_url: str) -> None:
    store = open_store(meta_url)
    dead = store.acquire()
    barrier = store.begin(dead, {}).id
    store.release(dead)
    fence = store.acquire()
    goes_on: list[Step] = [
        lambda s, f: s.processed(f, TableVersion(barrier, A)),
        lambda s, f: s.stage_job(f, barrier, job(A, "x")),
        lambda s, f: s.precommit(f, barrier),
    ]
    for step in goes_on:
        with pytest.raises(StreamSqlError, match="begun by another runner"):
            step(store, fence)
    store.abort(fence, barrier)
    assert store.unfinished() == []
    store.close()


def test_an_error_inside_a_step_rolls_all_of_it_back(meta_url: str) -> None:
    store = open_store(meta_url)
    fence = store.acquire()
    barrier = store.begin(fence, {}).id
    store.processed(fence, TableVersion(barrier, A, snapshot=1))
    good, bad = TableVersion(barrier, A, snapshot=2), TableVersion(barrier, B, snapshot=3)
    with pytest.raises(TypeError):
        store.processed_many(fence, [good, TableVersion(**{**vars(bad), "inputs": {A: {1}}})])
    cyclic = Job(A, "", "x", sources=(A,))
    with pytest.raises(StreamSqlError, match="CYCLE"):
        store.stage_job(fence, barrier, cyclic)
    assert [v.snapshot for v in store.versions(barrier)] == [1]
    assert store.staged_jobs(barrier) == {}
    store.close()
