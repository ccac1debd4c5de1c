"""How late tables are: hand-made histories with round figures, checked by eye.

Two roots feed a small topology:   orders ─> totals ─> top        users ─> people
A commit of `orders` at second 90 and 95; barrier 2 runs from 100 on.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dbt_streamsql.meta import Barrier, Job, TableVersion
from dbt_streamsql.meta.inspect.delay import (
    Contribution,
    Path,
    Since,
    Step,
    contributions,
    critical_path,
    delay,
    delays,
    progress,
    since,
)
from dbt_streamsql.meta.inspect.history import History
from dbt_streamsql.meta.model.records import Pin

ORDERS, USERS = "lake.raw.orders", "lake.raw.users"
TOTALS, TOP, PEOPLE = "lake.shop.totals", "lake.shop.top", "lake.shop.people"


def version(
    barrier: int, table: str, inputs: dict[str, int], start: float, seconds: float, **more
) -> TableVersion:
    """A published version whose snapshot is its barrier times ten; written at `written`."""
    written = more.pop("written", start + seconds)
    given = {"snapshot": barrier * 10, "mode": "incremental", **more}
    return TableVersion(
        barrier,
        table,
        state="WRITTEN",
        inputs=inputs,
        started_at=start,
        seconds=seconds,
        written_at=written,
        **given,
    )


def history(*versions: TableVersion, pins=None, ended=None) -> History:
    by: dict[int, dict[str, TableVersion]] = {}
    for one in versions:
        by.setdefault(one.barrier, {})[one.table] = one
    barriers = tuple(
        Barrier(
            number,
            "COMMIT",
            1,
            min(v.started_at for v in by[number].values()),
            (ended or {}).get(number, max(v.written_at or 0 for v in by[number].values())),
        )
        for number in sorted(by)
    )
    sources = {TOTALS: (ORDERS,), TOP: (TOTALS,), PEOPLE: (USERS,)}
    jobs = {t: Job(t, "", "SELECT 1", sources=s) for t, s in sources.items()}
    return History(barriers, by, pins or {}, {}, jobs)


BUILT = (
    version(1, TOTALS, {ORDERS: 1}, 10, 1, created=True, mode="full"),
    version(1, TOP, {TOTALS: 10}, 11, 1, created=True, mode="full"),
    version(1, PEOPLE, {USERS: 1}, 10, 1, created=True, mode="full"),
)
# totals: 100 to 104; top: 105 to 107; people: 100 to 101; all published at 110.
SECOND = (
    version(2, TOTALS, {ORDERS: 2}, 100, 4, written=110, stats={"oldest_change": {ORDERS: 90.0}}),
    version(2, TOP, {TOTALS: 20}, 105, 2, written=110, stats={"oldest_change": {ORDERS: 90.0}}),
    version(2, PEOPLE, {USERS: 2}, 100, 1, written=110, stats={"oldest_change": {USERS: 98.0}}),
)
SHOP = history(*BUILT, *SECOND, ended={2: 111})


def test_a_table_is_as_late_as_the_oldest_change_that_it_takes_up() -> None:
    found = delay(SHOP, SECOND[0])
    assert found is not None
    assert found.seconds == 110 - 90
    assert found.since == Since(90, ORDERS, exact=True)
    assert found.until == 110


def test_a_delay_is_the_sum_of_what_was_waited_for() -> None:
    found = delay(SHOP, SECOND[1])
    assert found is not None
    assert found.waiting == 10  # from the commit at 90 until totals starts at 100
    assert found.steps == (Step(TOTALS, 0, 4, 4 / 20), Step(TOP, 1, 2, 3 / 20))
    assert (found.aligning, found.publishing) == (0, 3)
    spent = found.waiting + sum(s.queued + s.seconds for s in found.steps)
    assert spent + found.aligning + found.publishing == found.seconds == 20


def test_a_quick_job_waits_for_the_others_of_its_barrier() -> None:
    found = delay(SHOP, SECOND[2])
    assert found is not None
    assert found.seconds == 110 - 98
    assert found.steps == (Step(PEOPLE, 0, 1, 1 / 12),)
    assert found.aligning == 107 - 101  # top is the last one to end
    assert found.publishing == 3


def test_the_critical_path_of_a_barrier_ends_in_the_job_that_ended_last() -> None:
    path = critical_path(SHOP, 2)
    assert path == Path(2, 11, (Step(TOTALS, 0, 4, 4 / 11), Step(TOP, 1, 2, 3 / 11)))
    assert path.bottleneck is not None
    assert path.bottleneck.table == TOTALS


def test_the_progress_of_a_job_tells_start_finish_cost_and_rows() -> None:
    rows = version(2, TOP, {TOTALS: 20}, 105, 2, written=110, rows_inserted=3, rows_deleted=1)
    told = progress(history(*BUILT, replace(rows, stats={"rows_read": 7})), 2)
    assert [(p.started_at, p.finished_at, p.written_at, p.seconds) for p in told] == [
        (105, 107, 110, 2)
    ]
    assert (told[0].rows_read, told[0].rows_inserted, told[0].rows_deleted) == (7, 3, 1)
    assert (told[0].state, told[0].mode) == ("WRITTEN", "incremental")
    assert [job.table for job in progress(SHOP, 2)] == [PEOPLE, TOTALS, TOP]


def test_the_first_build_of_a_table_has_no_delay() -> None:
    assert delays(SHOP, BUILT) == {}


def test_a_table_that_is_unchanged_takes_no_delay() -> None:
    # The change of orders came to nothing, neither for totals nor for who reads it.
    noop = version(2, TOTALS, {ORDERS: 2}, 100, 4, snapshot=10, mode="noop")
    later = version(3, TOTALS, {ORDERS: 3}, 200, 4, stats={"oldest_change": {ORDERS: 190.0}})
    story = history(*BUILT, noop, later)
    assert delay(story, noop) is None
    found = delay(story, later)
    assert found is not None
    assert found.seconds == 204 - 190


def test_a_rebuild_over_unchanged_roots_has_no_delay() -> None:
    again = version(2, TOTALS, {ORDERS: 1}, 100, 4, mode="full", reason="new definition")
    assert delay(history(*BUILT, again), again) is None


def test_a_root_that_was_not_read_before_says_nothing_of_a_delay() -> None:
    wider = version(2, TOTALS, {ORDERS: 1, USERS: 9}, 100, 4, mode="full")
    pins = {2: {ORDERS: Pin(1, 5.0), USERS: Pin(9, 90.0)}}
    assert delay(history(*BUILT, wider, pins=pins), wider) is None


def test_a_view_that_was_left_out_of_a_run_takes_up_all_that_its_input_did_meanwhile() -> None:
    # totals moves at 2 and 3, top only at 3: its oldest change is the one of 2.
    third = (
        version(3, TOTALS, {ORDERS: 3}, 200, 4, stats={"oldest_change": {ORDERS: 195.0}}),
        version(3, TOP, {TOTALS: 30}, 204, 2),
    )
    found = delay(history(*BUILT, SECOND[0], *third), third[1])
    assert found is not None
    assert found.since == Since(90, ORDERS)
    assert found.seconds == 206 - 90
    assert found.waiting == 200 - 90


def test_without_the_oldest_commit_the_time_of_the_pin_bounds_the_delay_from_below() -> None:
    moved = version(3, TOTALS, {ORDERS: 3}, 200, 4)
    # Barrier 2 pinned a snapshot of 95 that only another view took up.
    pins = {2: {ORDERS: Pin(2, 95.0)}, 3: {ORDERS: Pin(3, 195.0)}}
    story = history(*BUILT, SECOND[2], moved, pins=pins)
    assert since(story, moved) == Since(95, ORDERS, exact=False)
    found = delay(story, moved)
    assert found is not None
    assert found.seconds == 204 - 95


def test_a_version_whose_root_has_no_known_time_has_no_delay() -> None:
    moved = version(2, TOTALS, {ORDERS: 2}, 100, 4)
    assert delay(history(*BUILT, moved, pins={2: {ORDERS: Pin(2)}}), moved) is None


def test_what_is_not_published_yet_has_no_delay() -> None:
    staged = replace(SECOND[0], state="PROCESSED", written_at=None)
    assert delay(history(*BUILT, staged), staged) is None


def test_when_the_version_before_was_forgotten_the_delay_is_what_the_job_knew() -> None:
    found = delay(history(SECOND[0]), SECOND[0])
    assert found is not None
    assert (found.seconds, found.since.exact) == (20, False)
    unknown = replace(SECOND[0], stats={})
    assert delay(history(unknown), unknown) is None


def test_versions_that_were_given_up_are_not_taken_for_what_was_before() -> None:
    story = history(*BUILT, *SECOND)
    aborted = replace(story.barriers[1], state="ABORT")
    third = version(3, TOTALS, {ORDERS: 2}, 200, 4, stats={"oldest_change": {ORDERS: 90.0}})
    whole = History(
        (story.barriers[0], aborted, Barrier(3, "COMMIT", 1, 200, 204)),
        {**story.versions, 3: {TOTALS: third}},
    )
    found = delay(whole, third)
    assert found is not None
    assert found.seconds == 204 - 90


def test_a_changelog_is_passed_through_to_its_view() -> None:
    log = replace(version(2, f"{TOTALS}__changelog", {TOTALS: 20}, 0, 1), started_at=None)
    reader = version(2, TOP, {f"{TOTALS}__changelog": 20}, 105, 2, written=110)
    by = {2: {v.table: v for v in (SECOND[0], log, reader)}}
    path = critical_path(History((Barrier(2, "COMMIT", 1, 100, 111),), by), 2)
    assert [step.table for step in path.steps] == [TOTALS, TOP]


def test_the_jobs_on_the_critical_paths_are_told_by_what_they_add() -> None:
    third = version(3, PEOPLE, {USERS: 3}, 200, 5, written=206)
    told = contributions(history(*SECOND, third, ended={2: 111, 3: 206}))
    assert told == (
        Contribution(PEOPLE, 5, 1, 1, 5 / 17),
        Contribution(TOTALS, 4, 1, 1, 4 / 17),
        Contribution(TOP, 2, 1, 0, 2 / 17),
    )


def test_a_barrier_at_which_nothing_ran_has_no_bottleneck() -> None:
    assert critical_path(SHOP, 9) == Path(9, 0.0, ())
    assert critical_path(SHOP, 9).bottleneck is None


@pytest.mark.parametrize("ahead", [0.5, 5.0])
def test_a_writer_whose_clock_is_ahead_is_told_as_it_is(ahead: float) -> None:
    early = replace(SECOND[0], stats={"oldest_change": {ORDERS: 100 + ahead}})
    found = delay(history(*BUILT, early), early)
    assert found is not None
    assert found.waiting == -ahead
