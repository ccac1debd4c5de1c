"""Which way an epoch goes, by sizes and by past runs."""

from __future__ import annotations

import pytest

from dbt_streamsql.meta import TableVersion
from dbt_streamsql.runtime.cost import WORTH_TO_READERS, Estimate, estimate

MILLION = 1_000_000


def run(mode, seconds, read, there, **more):
    stats = {"rows_read": read, "rows_there": there, "rows_of_all": there, **more}
    return TableVersion(1, "lake.s.v", mode=mode, seconds=seconds, stats=stats)


def test_small_inputs_are_never_refreshed_in_full_for_cost():
    assert Estimate(90_000, 100_000, 9.0, 1.0).dear == ""


def test_most_of_a_big_input_is_recomputed_without_asking_the_past():
    assert "310,000 changed rows of 1,000,000" in Estimate(310_000, MILLION).dear
    assert Estimate(290_000, MILLION).dear == ""


def test_past_runs_decide_when_both_ways_have_been_gone():
    past = [run("incremental", 9.0, 10_000, MILLION), run("full", 5.0, MILLION, MILLION)]
    assert "about 9.0 s, a full refresh 5.0 s" in estimate(10_000, MILLION, MILLION, past).dear
    assert estimate(10_000, MILLION, MILLION, past[:1]).dear == ""
    assert estimate(10_000, MILLION, MILLION, past[1:]).dear == ""


def test_a_run_that_compared_tells_nothing_of_changes():
    compared = run("incremental", 0.1, 10, MILLION, strategy="compare")
    assert estimate(1_000, MILLION, MILLION, [compared]).incremental is None


def test_what_others_read_is_rewritten_for_more_seconds_than_what_they_do_not():
    past = [run("incremental", 6.5, 1_000, MILLION), run("full", 5.0, MILLION, MILLION)]
    assert estimate(1_000, MILLION, MILLION, past).dear
    assert estimate(1_000, MILLION, MILLION, past, WORTH_TO_READERS).dear == ""
    near = [run("incremental", 20.0, 1_000, MILLION), run("full", 18.5, MILLION, MILLION)]
    assert estimate(1_000, MILLION, MILLION, near).dear == ""


def test_a_full_refresh_grows_with_its_inputs_and_an_epoch_with_its_changes():
    past = [run("incremental", 2.0, 1_000, MILLION), run("full", 5.0, MILLION, MILLION)]
    found = estimate(3_000, 2 * MILLION, 2 * MILLION, past)
    assert (found.incremental, found.full) == (pytest.approx(6.0), pytest.approx(10.0))
    # Of thirty inputs one changed: a full refresh reads all of them.
    every = [run("incremental", 2.0, 1_000, MILLION), run("full", 60.0, MILLION, 30 * MILLION)]
    assert estimate(1_000, MILLION, 30 * MILLION, every).full == pytest.approx(60.0)
    assert estimate(10, MILLION, MILLION, past).incremental == pytest.approx(2.0)


def test_the_quickest_past_run_counts():
    slow, quick = (run("incremental", s, 1_000, MILLION) for s in (20.0, 2.0))
    past = [slow, quick, run("full", 5.0, MILLION, MILLION)]
    assert estimate(1_000, MILLION, MILLION, past).dear == ""
