"""Tables over the newest barriers, of a shop that ran for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbt_streamsql.meta import open_store
from dbt_streamsql.meta.inspect import history, overview
from dbt_streamsql.meta.inspect.trends import Trend, trends
from tests.support.histories import REPORT, REVENUE, SECONDS, TOP, Clock, tell


@pytest.fixture
def told(tmp_path: Path) -> history.History:
    clock = Clock()
    opened = open_store(f"sqlite:///{tmp_path}/streamsql.db", clock=clock)
    tell(opened, clock)
    found = history.load(opened)
    opened.close()
    return found


def of(found: tuple[Trend, ...], table: str) -> Trend:
    return next(trend for trend in found if trend.table == table)


def test_every_change_of_a_table_is_a_point_and_the_newest_one_is_that_of_the_topology(told):
    trend = of(trends(told), REVENUE)
    newest = next(node for node in overview.topology(told).nodes if node.table == REVENUE)
    assert [point.barrier for point in trend.points] == list(range(1, 13))
    assert trend.points[0].mode == "full"
    last = trend.points[-1]
    assert (last.rows_inserted, last.rows_deleted) == newest.rows
    assert (last.delay, last.seconds) == (newest.delay, newest.seconds)


def test_a_version_that_changed_nothing_is_no_point(told):
    assert [point.barrier for point in of(trends(told), TOP).points] == [
        1,
        2,
        3,
        4,
        6,
        7,
        8,
        9,
        11,
        12,
    ]


def test_what_was_saved_counts_the_epochs_from_changes_alone(told):
    trend = of(trends(told), REPORT)
    assert trend.epochs == len(trend.points) - 1
    assert trend.seconds == pytest.approx(SECONDS[REPORT] * trend.epochs)
    assert trend.in_full == pytest.approx(SECONDS[REPORT] * trend.epochs)


def test_a_reader_of_some_tables_sees_the_trends_of_these(told):
    assert [trend.table for trend in trends(told.seen_by(lambda table: table == REVENUE))] == [
        REVENUE
    ]
