"""What a reader keeps of the store: read again after every change, and only then."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from dbt_streamsql.meta import Fence, Job, MetaStore, Retention, TableVersion, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TABLE, ROOT = "lake.shop.v", "lake.shop.in"


def committed(store: MetaStore, fence: Fence, table: str = TABLE, sql: str = "select 1") -> int:
    """One more barrier with a definition and a version of the table."""
    barrier = store.begin(fence, {ROOT: 1}).id
    store.stage_job(fence, barrier, Job(table, table, sql, sources=(ROOT,)))
    store.processed(fence, TableVersion(barrier, table, snapshot=barrier, staged_at="s"))
    store.precommit(fence, barrier)
    store.written(fence, barrier, table)
    store.commit(fence, barrier)
    return barrier


def all_of(store: MetaStore) -> tuple[Any, ...]:
    newest = store.last_committed()
    known = store.latest_all().values()
    versions = {v.table: (v.barrier, v.state, v.snapshot) for v in known}
    return store.jobs(), versions, store.outside_tables(), store.inputs_as_of(newest)


@pytest.fixture
def open_plain(
    open_store: Callable[[Callable[[], float]], MetaStore],
) -> Callable[[], MetaStore]:
    return lambda: open_store(lambda: 1000.0)


def test_a_reader_sees_every_change_that_another_process_makes(
    open_plain: Callable[[], MetaStore],
) -> None:
    writer, reader = open_plain(), open_plain()
    fence = writer.acquire()
    assert all_of(reader) == ({}, {}, set(), {})
    steps: list[Callable[[], object]] = [
        lambda: committed(writer, fence),
        lambda: committed(writer, fence, sql="select 2"),
        lambda: committed(writer, fence, "lake.shop.w"),
        lambda: writer.drop_job(fence, TABLE),
        lambda: committed(writer, fence),
        lambda: writer.keep_from(fence, Retention(barriers=1)),
        lambda: writer.drop_job(fence, "lake.shop.w"),
    ]
    seen = []
    for step in steps:
        step()
        # A store that has just been opened has kept nothing.
        fresh = open_plain()
        seen.append(all_of(fresh))
        fresh.close()
        assert all_of(reader) == all_of(writer) == seen[-1]
    assert len({str(it) for it in seen}) >= len(steps) - 1
    writer.release(fence)
    writer.close()
    reader.close()


def test_a_version_that_was_published_is_seen_so(open_plain: Callable[[], MetaStore]) -> None:
    writer, reader = open_plain(), open_plain()
    fence = writer.acquire()
    barrier = writer.begin(fence, {}).id
    writer.stage_job(fence, barrier, Job(TABLE, TABLE, "select 1"))
    writer.processed(fence, TableVersion(barrier, TABLE, snapshot=7))
    assert reader.latest_all() == {}
    assert [v.snapshot for v in reader.versions(barrier)] == [7]
    writer.precommit(fence, barrier)
    writer.written(fence, barrier, TABLE)
    writer.commit(fence, barrier)
    assert [v.snapshot for v in reader.latest_all().values()] == [7]
    writer.release(fence)
    writer.close()
    reader.close()


def test_what_was_asked_for_may_be_changed_by_who_asked(
    open_plain: Callable[[], MetaStore],
) -> None:
    store = open_plain()
    fence = store.acquire()
    committed(store, fence)
    before = all_of(store)
    for answer in (
        store.jobs(),
        store.latest_all(),
        store.outside_tables(),
        store.inputs_as_of(1),
    ):
        answer.clear()
    assert all_of(store) == before
    store.release(fence)
    store.close()


@contextmanager
def statements(store: MetaStore) -> Iterator[list[str]]:
    asked: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(store.database.engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(store.database.engine, "before_cursor_execute", note)


def test_definitions_and_versions_are_read_once_while_nothing_changes(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/meta.db")
    fence = store.acquire()
    committed(store, fence)
    all_of(store)
    with statements(store) as asked:
        for _ in range(10):
            all_of(store)
    tables = ("streamsql_job", "streamsql_head", "streamsql_barrier_input")
    assert [text for text in asked if any(table in text for table in tables)] == []
    # What is staged changes no definition.
    barrier = store.begin(fence, {ROOT: 1}).id
    with statements(store) as asked:
        store.processed(fence, TableVersion(barrier, TABLE, mode="noop"))
        store.jobs()
    assert [text for text in asked if "streamsql_job" in text] == []
    store.release(fence)
    store.close()
