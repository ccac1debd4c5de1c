"""A barrier moves only as its state machine allows, for its own runner, and all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Barrier, ChangeFile, Fence, Job, MetaStore, Retention, TableVersion
from dbt_streamsql.meta.model.transitions import BARRIER_MOVES, UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterator

OpenStore = Callable[[Callable[[], float]], MetaStore]
ORDERS, TOTALS = "lake.shop.orders", "lake.shop.totals"


@pytest.fixture
def store(open_store: OpenStore) -> Iterator[MetaStore]:
    opened = open_store(lambda: 1000.5)
    yield opened
    opened.close()


@pytest.fixture
def fence(store: MetaStore) -> Fence:
    return store.acquire()


def totals_job(sql: str = "select 1") -> Job:
    return Job(
        TOTALS,
        "model.shop.totals",
        sql,
        config={"refresh_mode": "auto", "é": [1, None]},
        fingerprint="f",
        plan={"b": 1, "a": {"c": [1.5]}},
        columns=[{"name": "n", "type": "bigint"}],
        sources=(ORDERS,),
        created_barrier=1,
        table_uuid="u",
    )


def barrier_in(store: MetaStore, fence: Fence, state: str) -> int:
    """A barrier with one staged version, brought to `state`."""
    barrier = store.begin(fence, {ORDERS: 11}).id
    store.processed(fence, TableVersion(barrier, TOTALS, snapshot=21, branch="stage"))
    if state == "ABORT":
        store.abort(fence, barrier)
    if state in ("PRECOMMIT", "COMMIT"):
        store.precommit(fence, barrier)
    if state == "COMMIT":
        store.written(fence, barrier, TOTALS)
        store.commit(fence, barrier)
    return barrier


def published(store: MetaStore, fence: Fence, *versions: TableVersion) -> int:
    """One committed barrier with these versions; their barrier number is filled in."""
    barrier = store.begin(fence, {}).id
    store.processed_many(
        fence, [TableVersion(**{**vars(v), "barrier": barrier}) for v in versions]
    )
    store.precommit(fence, barrier)
    for version in versions:
        if version.mode != "noop":
            store.written(fence, barrier, version.table)
    store.commit(fence, barrier)
    return barrier


def refused(call: Callable[[], object]) -> StreamSqlError:
    with pytest.raises(StreamSqlError) as caught:
        call()
    assert caught.value.code == "META_CONFLICT"
    assert caught.value.allowed
    assert caught.value.given
    return caught.value


def test_a_barrier_goes_from_open_to_commit_and_its_version_becomes_the_latest(
    store: MetaStore, fence: Fence
) -> None:
    barrier = store.begin(fence, {ORDERS: 11, "lake.shop.empty": None})
    assert barrier == Barrier(1, "OPEN", fence.token, 1000.5, None)
    assert store.inputs(1) == {ORDERS: 11, "lake.shop.empty": None}
    staged = TableVersion(
        1,
        TOTALS,
        snapshot=2**62,
        staged_at="lake.shop.totals__staged",
        branch="b",
        created=True,
        mode="incremental",
        reason="why",
        rows_inserted=3,
        rows_deleted=2,
        jobs=4,
        seconds=0.25,
        inputs={ORDERS: 11, "lake.shop.empty": None},
    )
    store.processed(fence, staged)
    assert store.versions(1) == [staged]
    assert store.latest(TOTALS) is None
    assert store.last_committed() == 0
    store.precommit(fence, 1)
    store.written(fence, 1, TOTALS)
    store.commit(fence, 1)
    latest = TableVersion(**{**vars(staged), "state": "WRITTEN", "written_at": 1000.5})
    assert store.latest(TOTALS) == latest
    assert store.latest_all() == {TOTALS: latest}
    assert store.barrier(1) == Barrier(1, "COMMIT", fence.token, 1000.5, 1000.5)
    assert store.last_committed() == 1
    assert store.unfinished() == []


@pytest.mark.parametrize("state", BARRIER_MOVES)
@pytest.mark.parametrize(
    ("action", "allowed_in"),
    [
        ("begin", ("COMMIT", "ABORT")),
        ("add_inputs", ("OPEN",)),
        ("stage_job", ("OPEN",)),
        ("processed", ("OPEN",)),
        ("unstage", ("OPEN",)),
        ("add_change_file", ("OPEN",)),
        ("precommit", ("OPEN",)),
        ("abort", ("OPEN",)),
        ("written", ("PRECOMMIT",)),
        ("commit", ()),  # in PRECOMMIT the one version is not yet written
        ("drop_job", ("OPEN", "COMMIT", "ABORT")),
    ],
)
def test_a_step_is_refused_in_every_state_that_does_not_allow_it_and_changes_nothing(
    store: MetaStore, fence: Fence, state: str, action: str, allowed_in: tuple[str, ...]
) -> None:
    barrier = barrier_in(store, fence, state)
    calls: dict[str, Callable[[], object]] = {
        "begin": lambda: store.begin(fence, {}),
        "add_inputs": lambda: store.add_inputs(fence, barrier, {ORDERS: 99}),
        "stage_job": lambda: store.stage_job(fence, barrier, totals_job()),
        "processed": lambda: store.processed(fence, TableVersion(barrier, ORDERS)),
        "unstage": lambda: store.unstage(fence, barrier, TOTALS),
        "add_change_file": lambda: store.add_change_file(
            fence, ChangeFile(TOTALS, barrier, "p", 1)
        ),
        "precommit": lambda: store.precommit(fence, barrier),
        "abort": lambda: store.abort(fence, barrier),
        "written": lambda: store.written(fence, barrier, TOTALS),
        "commit": lambda: store.commit(fence, barrier),
        "drop_job": lambda: store.drop_job(fence, TOTALS),
    }
    if state in allowed_in:
        calls[action]()
        return

    def everything() -> tuple[object, ...]:
        return (
            store.barrier(barrier),
            store.barrier(barrier + 1),
            store.versions(barrier),
            store.inputs(barrier),
            store.staged_jobs(barrier),
            store.jobs(),
            store.latest_all(),
            store.change_files(TOTALS, 0, 99),
        )

    before = everything()
    refused(calls[action])
    assert everything() == before


def test_the_refusal_says_what_was_expected_and_what_was_found(
    store: MetaStore, fence: Fence
) -> None:
    barrier = barrier_in(store, fence, "ABORT")
    error = refused(lambda: store.commit(fence, barrier))
    assert "cannot commit barrier 1" in error.message
    assert error.allowed.startswith("PRECOMMIT")
    assert error.given.startswith("ABORT")


def test_an_unknown_barrier_or_table_is_refused(store: MetaStore, fence: Fence) -> None:
    assert refused(lambda: store.commit(fence, 7)).given == "none"
    assert store.barrier(7) is None
    barrier = barrier_in(store, fence, "PRECOMMIT")
    assert refused(lambda: store.written(fence, barrier, ORDERS)).given == "no version"


def test_a_version_is_written_once(store: MetaStore, fence: Fence) -> None:
    barrier = barrier_in(store, fence, "PRECOMMIT")
    store.written(fence, barrier, TOTALS)
    assert refused(lambda: store.written(fence, barrier, TOTALS)).given == "WRITTEN"


def test_every_state_ends_somewhere() -> None:
    assert set(UNFINISHED) == {"OPEN", "PRECOMMIT"}
    assert {to for targets in BARRIER_MOVES.values() for to in targets} < set(BARRIER_MOVES)


def test_a_noop_needs_no_writing_and_keeps_the_table_at_its_snapshot(
    store: MetaStore, fence: Fence
) -> None:
    published(store, fence, TableVersion(0, TOTALS, snapshot=5))
    barrier = published(
        store,
        fence,
        TableVersion(0, TOTALS, snapshot=5, mode="noop"),
        TableVersion(0, "lake.shop.other", snapshot=6),
    )
    latest = store.latest(TOTALS)
    assert latest is not None
    assert (latest.barrier, latest.snapshot) == (barrier, 5)
    assert not latest.to_publish


def test_a_barrier_does_not_commit_while_one_of_its_tables_is_unwritten(
    store: MetaStore, fence: Fence
) -> None:
    barrier = store.begin(fence, {}).id
    store.processed_many(fence, [TableVersion(barrier, TOTALS), TableVersion(barrier, ORDERS)])
    store.precommit(fence, barrier)
    store.written(fence, barrier, ORDERS)
    assert refused(lambda: store.commit(fence, barrier)).given == f"{TOTALS} PROCESSED"


def test_a_table_staged_twice_in_an_open_barrier_keeps_the_newest_version(
    store: MetaStore, fence: Fence
) -> None:
    barrier = store.begin(fence, {ORDERS: 1}).id
    store.processed(fence, TableVersion(barrier, TOTALS, snapshot=1))
    store.processed(fence, TableVersion(barrier, TOTALS, snapshot=2))
    store.add_inputs(fence, barrier, {ORDERS: 2, "lake.shop.users": 3})
    assert [v.snapshot for v in store.versions(barrier)] == [2]
    assert store.inputs(barrier) == {ORDERS: 2, "lake.shop.users": 3}


def test_versions_of_two_barriers_in_one_call_are_a_programming_error(
    store: MetaStore, fence: Fence
) -> None:
    store.processed_many(fence, [])
    with pytest.raises(ValueError, match="of one barrier"):
        store.processed_many(fence, [TableVersion(1, ORDERS), TableVersion(2, TOTALS)])
    with pytest.raises(ValueError, match="PROCESSED"):
        store.processed(fence, TableVersion(1, ORDERS, state="WRITTEN"))


def test_barrier_numbers_are_never_used_again(store: MetaStore, fence: Fence) -> None:
    first = barrier_in(store, fence, "ABORT")
    for _ in range(3):
        published(store, fence)
    store.keep_from(fence, Retention(barriers=1))
    store.forget(fence, Retention())
    assert store.barrier(first) is None
    assert store.begin(fence, {}).id == 5


def test_an_older_barrier_can_be_read_as_it_was(store: MetaStore, fence: Fence) -> None:
    first = published(
        store, fence, TableVersion(0, TOTALS, snapshot=1), TableVersion(0, ORDERS, snapshot=2)
    )
    second = published(store, fence, TableVersion(0, TOTALS, snapshot=3))
    aborted = barrier_in(store, fence, "ABORT")
    published(store, fence, TableVersion(0, TOTALS, snapshot=4))

    def snapshots(barrier: int | None) -> dict[str, int | None]:
        return {t: v.snapshot for t, v in store.latest_all(barrier).items()}

    assert snapshots(first) == {TOTALS: 1, ORDERS: 2}
    assert snapshots(second) == {TOTALS: 3, ORDERS: 2}
    assert snapshots(None) == snapshots(4) == {TOTALS: 4, ORDERS: 2}
    assert "ABORT" in refused(lambda: store.latest_all(aborted)).given
    assert "no such barrier" in refused(lambda: store.latest_all(99)).given
    store.keep_from(fence, Retention(barriers=1))
    assert "forgotten" in refused(lambda: store.latest_all(first)).given


def test_a_definition_is_provisional_until_its_barrier_commits(
    store: MetaStore, fence: Fence
) -> None:
    barrier = store.begin(fence, {}).id
    store.stage_job(fence, barrier, totals_job())
    store.processed(fence, TableVersion(barrier, TOTALS))
    assert store.jobs() == {}
    assert store.topology() == []
    assert store.readers(ORDERS) == []
    assert store.staged_jobs(barrier) == {TOTALS: totals_job()}
    store.precommit(fence, barrier)
    store.written(fence, barrier, TOTALS)
    assert store.jobs() == {}
    store.commit(fence, barrier)
    assert store.jobs() == {TOTALS: totals_job()}
    assert store.staged_jobs(barrier) == {}
    assert store.topology() == [(ORDERS, TOTALS)]
    assert store.readers(ORDERS) == [TOTALS]


def test_an_aborted_barrier_leaves_the_definition_that_was_there(
    store: MetaStore, fence: Fence
) -> None:
    for sql, end in (("select 1", store.precommit), ("select 2", store.abort)):
        barrier = store.begin(fence, {}).id
        store.stage_job(fence, barrier, totals_job(sql))
        store.processed(fence, TableVersion(barrier, TOTALS, snapshot=barrier))
        end(fence, barrier)
        if sql == "select 1":
            store.written(fence, barrier, TOTALS)
            store.commit(fence, barrier)
    assert store.jobs() == {TOTALS: totals_job("select 1")}
    assert store.staged_jobs(2) == {}
    latest = store.latest(TOTALS)
    assert latest is not None
    assert latest.snapshot == 1
    assert [v.snapshot for v in store.versions(2)] == [2], "the sweep still sees what was staged"


def test_a_new_definition_replaces_the_edges_of_the_old_one(
    store: MetaStore, fence: Fence
) -> None:
    for source in (ORDERS, "lake.shop.users"):
        barrier = store.begin(fence, {}).id
        job = Job(**{**vars(totals_job()), "sources": (source, source)})
        store.stage_job(fence, barrier, job)
        store.processed(fence, TableVersion(barrier, TOTALS, mode="noop"))
        store.precommit(fence, barrier)
        store.commit(fence, barrier)
    assert store.topology() == [("lake.shop.users", TOTALS)]


def test_a_definition_without_data_blocks_the_barrier_until_it_is_unstaged(
    store: MetaStore, fence: Fence
) -> None:
    barrier = store.begin(fence, {}).id
    store.stage_job(fence, barrier, totals_job())
    store.add_change_file(fence, ChangeFile(TOTALS, barrier, "c/1", 1))
    store.processed(fence, TableVersion(barrier, ORDERS, snapshot=1))
    assert TOTALS in refused(lambda: store.precommit(fence, barrier)).given
    assert store.unstage(fence, barrier, TOTALS) == ["c/1"]
    store.forget_change_files_at(fence, ["c/1"])
    assert store.tables_with_change_files() == []
    store.precommit(fence, barrier)
    store.written(fence, barrier, ORDERS)
    store.commit(fence, barrier)
    assert store.jobs() == {}
    assert list(store.latest_all()) == [ORDERS]


def test_a_dropped_table_has_no_definition_no_version_and_can_come_back(
    store: MetaStore, fence: Fence
) -> None:
    for _ in range(2):
        barrier = store.begin(fence, {}).id
        store.stage_job(fence, barrier, totals_job())
        store.processed(fence, TableVersion(barrier, TOTALS))
        store.precommit(fence, barrier)
        store.written(fence, barrier, TOTALS)
        store.commit(fence, barrier)
        assert list(store.jobs()) == [TOTALS]
        assert store.latest(TOTALS)
        store.drop_job(fence, TOTALS)
        assert store.jobs() == {}
        assert store.topology() == []
        assert store.latest(TOTALS) is None
    store.drop_job(fence, "lake.shop.never_was")


def test_a_table_dropped_while_staged_is_not_part_of_the_barrier(
    store: MetaStore, fence: Fence
) -> None:
    barrier = store.begin(fence, {}).id
    store.stage_job(fence, barrier, totals_job())
    store.processed(fence, TableVersion(barrier, TOTALS))
    store.drop_job(fence, TOTALS)
    store.precommit(fence, barrier)
    store.commit(fence, barrier)
    assert store.jobs() == {}
    assert store.latest(TOTALS) is None


def test_change_files_are_listed_by_range_without_aborted_ones(
    store: MetaStore, fence: Fence
) -> None:
    for number in (1, 2, 3):
        barrier = store.begin(fence, {}).id
        assert barrier == number
        store.add_change_file(fence, ChangeFile(TOTALS, barrier, f"c/{number}", number))
        store.add_change_file(fence, ChangeFile(TOTALS, barrier, f"c/{number}", 10 * number))
        assert [c.barrier for c in store.change_files(TOTALS, barrier - 1, barrier)] == [number]
        if number == 2:
            store.abort(fence, barrier)
        else:
            store.precommit(fence, barrier)
            store.commit(fence, barrier)
    assert store.change_files(TOTALS, 0, 3) == [
        ChangeFile(TOTALS, 1, "c/1", 10),
        ChangeFile(TOTALS, 3, "c/3", 30),
    ]
    assert store.change_files(TOTALS, 1, 2) == []
    assert store.aborted_change_files() == [ChangeFile(TOTALS, 2, "c/2", 20)]
    assert store.forget_aborted_change_files(fence) == ["c/2"]
    assert store.forget_change_files(fence, TOTALS, 1) == ["c/1"]
    assert store.change_files(TOTALS, 0, 3) == [ChangeFile(TOTALS, 3, "c/3", 30)]
