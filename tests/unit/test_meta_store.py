"""Opening a store, what is said when it cannot be opened, threads, and speed after long use."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Job, MetaReader, MetaStore, Retention, TableVersion, open_store
from dbt_streamsql.meta.store.sql.database import redact
from dbt_streamsql.meta.store.sql.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def opening(url: str) -> StreamSqlError:
    with pytest.raises(StreamSqlError) as caught:
        open_store(url)
    assert "s3cret" not in str(caught.value)
    return caught.value


def test_a_missing_folder_is_named_with_what_to_do(tmp_path: Path) -> None:
    error = opening(f"sqlite:///{tmp_path}/none/meta.db")
    assert error.code == "META_UNREACHABLE"
    assert "none/meta.db" in error.given
    assert "folder" in error.hint


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "meta.db"
    file.write_text("name,amount\n" * 1000)
    error = opening(f"sqlite:///{file}")
    assert error.code == "META_UNREACHABLE"
    assert "not a database" in error.given
    assert file.read_text() == "name,amount\n" * 1000


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+nodriver://ann:s3cret@host/db",
        "postgresql+psycopg://ann:s3cret@127.0.0.1:1/db",
        "mysql://ann:s3cret@host/db",
        "http://ann:s3cret@host:8080",
        "sqlite://",
        "sqlite:///:memory:",
        "://ann:s3cret@",
        "",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    error = opening(url)
    assert error.code == "META_UNREACHABLE"
    assert error.hint


def test_passwords_are_hidden_wherever_they_stand() -> None:
    assert redact("postgresql://a:p/w@x@h/d") == "postgresql://a:***@h/d"
    assert redact("postgresql://h/d?user=a&password=p&x=1") == (
        "postgresql://h/d?user=a&password=***&x=1"
    )
    assert redact("sqlite:////tmp/a@b/m.db") == "sqlite:////tmp/a@b/m.db"


@pytest.mark.parametrize("versions", [[SCHEMA_VERSION + 1], [SCHEMA_VERSION, SCHEMA_VERSION + 1]])
def test_a_store_of_another_version_is_refused(tmp_path: Path, versions: list[int]) -> None:
    url = f"sqlite:///{tmp_path}/meta.db"
    open_store(url).close()
    with closing(sqlite3.connect(tmp_path / "meta.db")) as connection:
        connection.execute("DELETE FROM streamsql_schema_version")
        connection.executemany(
            "INSERT INTO streamsql_schema_version VALUES (?)", [(v,) for v in versions]
        )
        connection.commit()
    error = opening(url)
    assert error.code == "META_VERSION"
    assert f"version {SCHEMA_VERSION}" in error.allowed
    assert f"{SCHEMA_VERSION + 1}" in error.given


_NEWER = {
    9: (
        "ALTER TABLE streamsql_runner DROP COLUMN state",
        "ALTER TABLE streamsql_runner DROP COLUMN jobs_state",
    ),
    8: ("DROP TABLE streamsql_sink",),
    7: ("DROP TABLE streamsql_leader",),
    6: ("DROP TABLE streamsql_stream_position",),
    5: ("DROP TABLE streamsql_published",),
    4: ("ALTER TABLE streamsql_runner DROP COLUMN store_id",),
    3: (
        "ALTER TABLE streamsql_table_version DROP COLUMN started_at",
        "ALTER TABLE streamsql_table_version DROP COLUMN written_at",
        "ALTER TABLE streamsql_barrier_input DROP COLUMN committed_at",
        "DROP TABLE streamsql_lease",
        "DROP TABLE streamsql_audit",
    ),
    2: ("ALTER TABLE streamsql_table_version DROP COLUMN stats",),
}
"""What an older store has not, by its version."""


@pytest.mark.parametrize("version", sorted(_NEWER))
def test_a_store_of_an_older_version_is_brought_to_this_one(tmp_path: Path, version: int) -> None:
    url = f"sqlite:///{tmp_path}/meta.db"
    open_store(url).close()
    with closing(sqlite3.connect(tmp_path / "meta.db")) as connection:
        for newer in sorted(_NEWER, reverse=True):
            for change in _NEWER[newer] if newer >= version else ():
                connection.execute(change)
        connection.execute("UPDATE streamsql_schema_version SET version = ?", (version,))
        connection.commit()
    for _ in range(2):
        store = open_store(url)
        assert store.latest_all() == {}
        assert store.leases.live() == []
        store.close()


def test_the_store_is_durable_and_lets_readers_in_beside_a_writer(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/meta.db")
    with store.database.write() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 20_000
        assert store.last_committed() == 0
        assert store.jobs() == {}
    store.close()


def test_a_writer_waits_for_the_writer_of_another_process_and_sees_what_it_wrote(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/meta.db"
    first, second = open_store(url), open_store(url)
    add_one = "UPDATE streamsql_runner SET token = token + 1"

    def write() -> object:
        with second.database.write() as connection:
            seen = connection.exec_driver_sql("SELECT token FROM streamsql_runner").scalar()
            connection.exec_driver_sql(add_one)
            return seen

    with ThreadPoolExecutor(1) as pool:
        with first.database.write() as connection:
            other = pool.submit(write)
            time.sleep(0.2)
            connection.exec_driver_sql(add_one)
        assert other.result() == 1
    assert first.fence().token == 2
    first.close()
    second.close()


def test_a_database_that_disappears_is_reported_as_unreachable(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/meta.db")
    with store.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE streamsql_job")
    with pytest.raises(StreamSqlError, match="META_UNREACHABLE"):
        store.jobs()
    store.close()


def test_many_threads_stage_into_one_barrier(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/meta.db")
    fence = store.acquire()
    barrier = store.begin(fence, {}).id

    def stage(number: int) -> str:
        table = f"lake.s.t{number:02d}"
        store.stage_job(fence, barrier, Job(table, table, "select 1", sources=("lake.s.a",)))
        store.processed(fence, TableVersion(barrier, table, snapshot=number))
        assert table in {v.table for v in store.versions(barrier)}
        return table

    with ThreadPoolExecutor(16) as pool:
        tables = list(pool.map(stage, range(48)))
    store.precommit(fence, barrier)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda table: store.written(fence, barrier, table), tables))
    store.commit(fence, barrier)
    assert store.readers("lake.s.a") == tables == list(store.latest_all())
    store.close()


def test_json_is_stored_as_text_with_sorted_keys(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/meta.db")
    fence = store.acquire()
    barrier = store.begin(fence, {}).id
    job = Job("t", "m", "s", config={"b": 1, "a": "é"}, sources=("z", "y"))
    store.stage_job(fence, barrier, job)
    with closing(sqlite3.connect(tmp_path / "meta.db")) as connection:
        row = connection.execute("SELECT config, sources FROM streamsql_staged_job").fetchone()
    assert row == ('{"a": "é", "b": 1}', '["y", "z"]')
    store.close()


TABLES = [f"lake.shop.t{number:02d}" for number in range(20)]
INPUT = "lake.shop.in"
LITTLE, MUCH = 1_000, 10_000
"""Barriers of a young store and of one that was used for long."""

MORE = 3
"""How much more work the long used store may have with one call; a scan of its history, where an
index should serve, is ten times the work."""

EACH_BARRIER = {"keep_from", "outlook/1", "outside_tables/0", "inputs_as_of/1"}
"""What looks at every barrier that is kept, but not at every version of a table."""


def used(folder: Path, barriers: int) -> MetaStore:
    """A store with so many barriers over 20 tables, one a minute until now."""
    store = open_store(f"sqlite:///{folder}/{barriers}.db")
    with store.database.write() as connection:
        # written directly: the calls would take minutes
        raw = connection.exec_driver_sql
        numbers = (
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < {barriers}) "
        )
        ended = f"{time.time()} - 60 * ({barriers} - i)"
        raw(
            f"{numbers}INSERT INTO streamsql_barrier SELECT i, 'COMMIT', 1, {ended}, {ended} FROM n"
        )
        raw(f"{numbers}INSERT INTO streamsql_barrier_input SELECT i, '{INPUT}', i, NULL FROM n")
        raw("CREATE TEMP TABLE t(name)")
        raw("INSERT INTO t VALUES (?)", [(table,) for table in TABLES])
        raw(
            f"{numbers}INSERT INTO streamsql_table_version SELECT i, name, 'PROCESSED', i, '', "
            f"'', 0, 'noop', '', 0, 0, 0, 0.0, '{{\"{INPUT}\": 1}}', '{{}}', NULL, NULL FROM n, t"
        )
        raw(f"INSERT INTO streamsql_head SELECT name, {barriers} FROM t")
        raw(
            f"{numbers}INSERT INTO streamsql_audit SELECT i, {ended}, 'me', 'commit', '{{}}' FROM n"
        )
        raw(f"UPDATE streamsql_runner SET last_barrier = {barriers}")
    return store


@contextmanager
def work(store: MetaStore) -> Iterator[list[int]]:
    """Count what SQLite does inside, in hundreds of steps of its machine."""
    done = [0]

    def count() -> int:
        done[0] += 1
        return 0

    def watch(connection: Any, *_: object) -> None:
        connection.set_progress_handler(count, 100)

    event.listen(store.database.engine, "checkout", watch)
    try:
        yield done
    finally:
        event.remove(store.database.engine, "checkout", watch)


def work_of_steps(store: MetaStore, last: int) -> dict[str, int]:
    """By call: the work of what one more barrier needs."""
    fence = store.acquire()
    barrier = last + 1
    rows = [TableVersion(barrier, table, mode="noop") for table in TABLES[1:]]
    staged = TableVersion(barrier, TABLES[0], snapshot=barrier)
    steps: list[tuple[Any, ...]] = [
        (store.begin, fence, {INPUT: 1}),
        (store.stage_job, fence, barrier, Job(TABLES[0], "m", "s")),
        (store.processed, fence, staged),
        (store.processed_many, fence, rows),
        (store.precommit, fence, barrier),
        (store.written, fence, barrier, TABLES[0]),
        (store.commit, fence, barrier),
        (store.keep_from, fence, Retention(barriers=300)),
    ]
    found = {}
    for call, *given in steps:
        with work(store) as done:
            call(*given)
        found[call.__name__] = done[0]
    store.release(fence)
    return found


def work_of_questions(store: MetaStore, last: int) -> dict[str, int]:
    """By call: the work of everything that can be asked."""
    first, middle = TABLES[0], last - 500
    store.leases.take("host:1:a", middle)
    asked: list[tuple[Any, ...]] = [
        *((name,) for name in ("unfinished", "last_committed", "kept_from", "outside_tables")),
        *((name,) for name in ("jobs", "provisional_jobs", "topology", "latest_all", "audit")),
        *((name,) for name in ("tables_with_change_files", "aborted_change_files", "fence")),
        ("states",),
        *((name, 50) for name in ("newest_barriers", "recent")),
        ("published",),
        ("sinks",),
        ("newest_versions", 10),
        *(
            (name, middle)
            for name in ("barrier", "inputs", "inputs_as_of", "input_times", "spans")
        ),
        *((name, middle) for name in ("versions", "staged_jobs", "latest_all")),
        *((name, first) for name in ("latest", "readers")),
        *((name, last - 9, last) for name in ("versions_between", "pins_between")),
        ("committed_before", last, 500),
        ("history", first, last - 100),
        ("change_files", first, 1, last),
        ("outlook", Retention(barriers=300)),
    ]
    public = {name for name in vars(MetaReader) if not name.startswith("_")}
    assert public <= {name for name, *_ in asked}
    found = {}
    for name, *given in asked:
        with work(store) as done:
            getattr(store, name)(*given)
        found[f"{name}/{len(given)}"] = done[0]
    return found


@pytest.mark.parametrize("of", [work_of_steps, work_of_questions])
def test_no_call_has_more_work_after_ten_thousand_barriers(
    of: Callable[[MetaStore, int], dict[str, int]], tmp_path: Path
) -> None:
    counted = []
    for barriers in (LITTLE, MUCH):
        store = used(tmp_path, barriers)
        counted.append(of(store, barriers))
        store.close()
    few, many = counted
    for call in few:
        print(f"{call:28} {few[call]:6} {many[call]:6}")
    more = {call: MORE * (work + 1) for call, work in few.items()}
    more |= {call: 2 * few[call] * MUCH // LITTLE for call in EACH_BARRIER & few.keys()}
    assert {call: work for call, work in many.items() if work > more[call]} == {}


def test_what_is_older_than_is_kept_goes_and_the_newest_versions_stay(tmp_path: Path) -> None:
    store = used(tmp_path, LITTLE)
    fence = store.acquire()
    store.keep_from(fence, Retention(barriers=300))
    while store.forget(fence, Retention(barriers=300)).more:
        pass
    assert store.barrier(LITTLE - 400) is None
    assert store.barrier(LITTLE) is not None
    assert len(store.latest_all()) == len(store.latest_all(store.kept_from())) == 20
    store.close()
