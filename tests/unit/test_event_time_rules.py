"""The W of a barrier, out of what all streams say; and what is told of it."""

from __future__ import annotations

import pytest

from dbt_streamsql.meta import Job, MetaStore, TableVersion
from dbt_streamsql.meta.inspect import event_time, history, overview
from dbt_streamsql.meta.inspect.system_tables import TABLES
from dbt_streamsql.runtime.core.event_time import Progress, Root, watermark

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("roots", "expected"),
    [
        ([], None),
        ([Root(None, 50 * SECOND, 10)], 40 * SECOND),
        ([Root(45 * SECOND, 50 * SECOND, 10)], 45 * SECOND),
        ([Root(None, 50 * SECOND, 10), Root(None, None, 10)], None),
        ([Root(None, 50 * SECOND, 10), Root(None, None, 10, idle=True)], 40 * SECOND),
        ([Root(None, 50 * SECOND, 10, idle=True), Root(None, 9 * SECOND, 1, True)], 50 * SECOND),
        ([Root(None, None, 10, idle=True)], None),
        ([Root(None, 50 * SECOND, 10), Root(None, 90 * SECOND, 60)], 30 * SECOND),
    ],
)
def test_the_least_promise_counts_of_those_that_are_not_idle(roots, expected):
    assert watermark(roots) == expected


def test_a_record_is_late_by_what_its_own_stream_has_promised():
    assert Progress(90 * SECOND, 80 * SECOND).late(10) == 70 * SECOND
    assert Progress(60 * SECOND, 80 * SECOND).late(10) == 60 * SECOND
    assert Progress().late(10) is None


def test_status_tells_the_event_time_and_how_late_it_is(store: MetaStore) -> None:
    fence = store.acquire()
    store_clicks(store, fence, 1, 9_000 * SECOND)
    found = history.load(store)
    nodes = {node.table: node for node in overview.topology(found).nodes}
    ended = found.barriers[-1].ended_at
    assert ended is not None
    for table in ("lake.s.clicks", "lake.s.view"):
        assert nodes[table].event_time == 9_000
        assert nodes[table].event_delay == ended - 9_000
    assert overview.barriers(found)[0].event_time == 9_000
    assert [row[-1] for row in TABLES["__META_BARRIER"].rows(store)] == [9_000]


def store_clicks(store: MetaStore, fence, number: int, upto: int) -> None:
    """One barrier of a stream and of a view of it."""
    barrier = store.begin(fence, {}, {}).id
    jobs = [
        Job("lake.s.clicks", "", "select 1"),
        Job("lake.s.view", "", "select 1", sources=("lake.s.clicks",)),
    ]
    for job in jobs:
        store.stage_job(fence, barrier, job)
    told = {"event_time": {"upto": upto}}
    versions = [
        TableVersion(barrier, "lake.s.clicks", snapshot=1, stats=told),
        TableVersion(barrier, "lake.s.view", snapshot=1, inputs={"lake.s.clicks": 1}),
    ]
    store.processed_many(fence, versions)
    store.precommit(fence, barrier)
    for version in versions:
        store.written(fence, barrier, version.table, 1)
    store.commit(fence, barrier)
    assert event_time.of_version(versions[0]) == upto / 1e6
