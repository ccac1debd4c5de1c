"""The comparison with other engines: its search, its figures, its files and its statements."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from benchmarks.peers import queries
from benchmarks.peers.outcome import Outcome, best, search
from benchmarks.peers.slices import TABLES, Feed, put
from benchmarks.peers.spark import merge
from benchmarks.peers.system import Taken


@pytest.mark.parametrize(
    ("most", "cold", "tried"),
    [
        (90, False, [40]),
        (20, False, [40, 10, 20, 30]),
        (10, False, [40, 10, 20]),
        (5, False, [40, 10]),
        (5, True, [10]),
        (30, True, [10, 40, 20, 30]),
        (90, True, [10, 40]),
    ],
)
def test_few_sizes_are_tried_to_find_the_largest(most, cold, tried):
    seen = []

    def attempt(size):
        seen.append(size)
        return size <= most

    search([10, 20, 30, 40], attempt, cold)
    assert seen == tried


def test_one_size_is_tried_once():
    seen = []
    search([10], lambda size: bool(seen.append(size)), cold=False)
    assert seen == [10]


def test_the_first_slice_is_not_counted_but_where_each_starts_a_process():
    warm = Outcome("flink", "q01", 100, Taken((9.0, 1.0, 3.0), 5.0), sustained=True)
    cold = Outcome("pipelines", "q01", 100, Taken((20.0,), 0.0, (15.0,)), sustained=False)
    assert (warm.rate, warm.seconds) == (50, 2)
    assert (cold.rate, cold.startup) == (5, 15)


def test_the_best_is_the_largest_sustained_or_else_the_smallest_tried():
    def one(size, sustained):
        return Outcome("ours", "q01", size, Taken((1.0, 1.0), 1.0), sustained)

    assert best([one(10, True), one(20, True), one(30, False)], "ours", "q01") == one(20, True)
    assert best([one(30, False), one(10, False)], "ours", "q01") == one(10, False)
    assert best([one(10, True)], "ours", "q02") is None


def test_every_event_arrives_once_in_the_history_or_in_a_slice(tmp_path):
    feed = Feed(tmp_path, history=500, size=100, slices=2, seed=1)
    feed.make()
    assert sum(feed.rows(table, 0) for table in TABLES) == 500
    assert sum(feed.rows(table, number) for table in TABLES for number in (1, 2)) == 200
    files = feed.until("bid", 2)
    times = [time for file in files for time in pq.read_table(file)["ts"].to_pylist()]
    assert times == sorted(times)
    put(files, tmp_path / "inbox")
    assert [file.name for file in sorted((tmp_path / "inbox").iterdir())] == [
        f.name for f in files
    ]


def test_the_statement_of_dbt_sparks_merge():
    assert "on DBT_INTERNAL_SOURCE.a = DBT_INTERNAL_DEST.a and" in merge(("a", "b"))
    assert "on FALSE when matched" in merge(())


def test_every_query_has_a_merge_or_a_reason_against_it():
    assert set(queries.NAMES) == set(queries.INCREMENTAL) | set(queries.NO_MERGE)
    assert not set(queries.INCREMENTAL) & set(queries.NO_MERGE)
