"""Opening a store, what is said when it cannot be opened, threads, and speed after long use."""

from __future__ import annotations

import sqlite3
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Job, MetaReader, MetaStore, Retention, TableVersion
from dbt_streamsql.meta.database import redact
from dbt_streamsql.meta.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def opening(url: str) -> StreamSqlError:
    with pytest.raises(StreamSqlError) as caught:
        MetaStore.open(url)
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
    MetaStore.open(url).close()
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
    MetaStore.open(url).close()
    with closing(sqlite3.connect(tmp_path / "meta.db")) as connection:
        for newer in sorted(_NEWER, reverse=True):
            for change in _NEWER[newer] if newer >= version else ():
                connection.execute(change)
        connection.execute("UPDATE streamsql_schema_version SET version = ?", (version,))
        connection.commit()
    for _ in range(2):
        store = MetaStore.open(url)
        assert store.latest_all() == {}
        assert store.leases.live() == []
        store.close()


def test_the_store_is_durable_and_lets_readers_in_beside_a_writer(tmp_path: Path) -> None:
    store = MetaStore.open(f"sqlite:///{tmp_path}/meta.db")
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
    first, second = MetaStore.open(url), MetaStore.open(url)
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
    store = MetaStore.open(f"sqlite:///{tmp_path}/meta.db")
    with store.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE streamsql_job")
    with pytest.raises(StreamSqlError, match="META_UNREACHABLE"):
        store.jobs()
    store.close()


def test_many_threads_stage_into_one_barrier(tmp_path: Path) -> None:
    store = MetaStore.open(f"sqlite:///{tmp_path}/meta.db")
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
    store = MetaStore.open(f"sqlite:///{tmp_path}/meta.db")
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


@pytest.fixture
def long_used(tmp_path: Path) -> Iterator[MetaStore]:
    """A store with 10,000 barriers over 20 tables, one a minute until now."""
    store = MetaStore.open(f"sqlite:///{tmp_path}/meta.db")
    with store.database.write() as connection:
        # written directly: the calls would take minutes
        raw = connection.exec_driver_sql
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 10000) "
        ended = f"{time.time()} - 60 * (10000 - i)"
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
        raw("INSERT INTO streamsql_head SELECT name, 10000 FROM t")
        raw(
            f"{numbers}INSERT INTO streamsql_audit SELECT i, {ended}, 'me', 'commit', '{{}}' FROM n"
        )
        raw("UPDATE streamsql_runner SET last_barrier = 10000")
    yield store
    store.close()


def test_every_step_stays_fast_after_ten_thousand_barriers(long_used: MetaStore) -> None:
    store = long_used
    fence = store.acquire()
    seconds: dict[str, float] = {}

    def timed(call: Callable[..., object], *args: object) -> None:
        start = time.perf_counter()
        call(*args)
        name = call.__name__
        seconds[name] = min(seconds.get(name, 9e9), time.perf_counter() - start)

    for barrier in (10_001, 10_002, 10_003):
        rows = [TableVersion(barrier, table, mode="noop") for table in TABLES[1:]]
        timed(store.begin, fence, {INPUT: 1})
        timed(store.stage_job, fence, barrier, Job(TABLES[0], "m", "s"))
        timed(store.processed, fence, TableVersion(barrier, TABLES[0], snapshot=barrier))
        timed(store.processed_many, fence, rows)
        timed(store.precommit, fence, barrier)
        timed(store.written, fence, barrier, TABLES[0])
        timed(store.commit, fence, barrier)
        timed(store.keep_from, fence, Retention())
    timed(store.forget, fence, Retention())
    while store.forget(fence, Retention()).more:
        pass
    assert store.barrier(9_000) is None
    assert len(store.latest_all()) == len(store.latest_all(store.kept_from())) == 20
    for name, value in seconds.items():
        print(f"{name:28} {1000 * value:8.2f} ms")
    # generous: a scan of the history where an index should serve shows as far more
    limit = {"forget": 30.0}
    assert all(value < limit.get(name, 0.5) for name, value in seconds.items())


def test_every_question_stays_fast_after_ten_thousand_barriers(long_used: MetaStore) -> None:
    store, first = long_used, TABLES[0]
    store.leases.take("host:1:a", 5000)
    asked: list[tuple[Any, ...]] = [
        *((name,) for name in ("unfinished", "last_committed", "kept_from", "outside_tables")),
        *((name,) for name in ("jobs", "provisional_jobs", "topology", "latest_all", "audit")),
        *((name,) for name in ("tables_with_change_files", "aborted_change_files", "fence")),
        *((name, 50) for name in ("newest_barriers", "recent")),
        ("published",),
        ("sinks",),
        ("newest_versions", 10),
        *((name, 5000) for name in ("barrier", "inputs", "inputs_as_of", "input_times", "spans")),
        *((name, 5000) for name in ("versions", "staged_jobs", "latest_all")),
        *((name, first) for name in ("latest", "readers")),
        *((name, 9991, 10_000) for name in ("versions_between", "pins_between")),
        ("committed_before", 10_000, 500),
        ("history", first, 9900),
        ("change_files", first, 1, 10_000),
        ("outlook", Retention()),
    ]
    public = {name for name in vars(MetaReader) if not name.startswith("_")}
    assert public - {"topological_order"} <= {name for name, *_ in asked}
    slow = {}
    for name, *given in asked:
        taken = []
        for _ in range(5):
            start = time.perf_counter()
            getattr(store, name)(*given)
            taken.append(time.perf_counter() - start)
        slow[f"{name}{tuple(given)}"] = 1000 * statistics.median(taken)
    for question, milliseconds in slow.items():
        print(f"{question:50} {milliseconds:8.2f} ms")
    assert {question: ms for question, ms in slow.items() if ms >= 20} == {}
