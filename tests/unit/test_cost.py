"""When a view is refreshed in full for cost, and what its past runs tell."""

from __future__ import annotations

from dbt_streamsql.meta import TableVersion
from dbt_streamsql.runtime.core.cost import (
    WORTH_TO_READERS,
    by_past_runs,
    dear,
    last_run,
)
from dbt_streamsql.runtime.core.ways import CHANGES, COMPARE, FULL, Run


def run(mode, seconds, **stats):
    return TableVersion(1, "lake.s.v", mode=mode, seconds=seconds, stats=stats)


def test_a_full_refresh_must_save_a_tenth_and_some_seconds():
    assert "1,000 changed rows are expected to take 9.0 s, a full refresh 5.0 s" in dear(
        {CHANGES: 9.0, FULL: 5.0}, 1_000
    )
    assert dear({CHANGES: 5.2, FULL: 5.0}, 1_000) == ""
    assert dear({CHANGES: 0.29, FULL: 0.2}, 1_000) == ""


def test_what_others_read_is_rewritten_for_more_seconds_than_what_they_do_not():
    seconds = {CHANGES: 6.5, FULL: 5.0}
    assert dear(seconds, 1_000)
    assert dear(seconds, 1_000, WORTH_TO_READERS) == ""


def test_the_cheapest_of_the_other_ways_counts():
    assert dear({CHANGES: 9.0, COMPARE: 5.0, FULL: 5.0}, 1_000) == ""


def test_past_runs_tell_of_the_way_that_they_went():
    past = [
        run("incremental", 4.0, expected=2.0, factor=2.0),
        run("append", 1.0, expected=1.0, factor=1.0),
        run("incremental", 3.0, expected=1.0, factor=3.0, strategy="compare"),
        run("full", 5.0, expected=10.0, factor=0.5),
        run("full", 5.0, expected=1.0),
    ]
    assert by_past_runs(past) == {
        CHANGES: [Run(2.0, 2.0), Run(1.0, 1.0)],
        COMPARE: [Run(1.0, 3.0)],
        FULL: [Run(10.0, 0.5)],
    }


def test_a_run_says_what_it_took_and_what_each_way_was_expected_to():
    compared = run(
        "incremental",
        0.214,
        strategy="compare",
        estimated_incremental=0.34,
        estimated_compare=0.2,
        estimated_full=0.5,
    )
    assert last_run(compared) == (
        "last run: 0.21 s by comparison; expected: "
        "0.34 s from changes, 0.20 s by comparison, 0.50 s in full"
    )
    assert last_run(run("full", 3.0)) == "last run: 3.00 s in full"
