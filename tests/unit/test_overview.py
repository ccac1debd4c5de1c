"""What status, topology and barriers say of a store that has run for a while."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from dbt_streamsql.meta import MetaStore, Retention
from dbt_streamsql.meta.inspect import delay, history, overview
from tests.support.histories import (
    CLEAN,
    ITEMS,
    ORDERS,
    REPORT,
    REVENUE,
    TOP,
    TOTALS,
    USERS,
    Clock,
    Story,
    tell,
)


@pytest.fixture
def clock() -> Clock:
    return Clock(10_000.0)


def nodes(store: MetaStore) -> dict[str, overview.Node]:
    return {node.table: node for node in overview.topology(history.load(store)).nodes}


def edges(store: MetaStore) -> dict[tuple[str, str], overview.Edge]:
    found = overview.topology(history.load(store)).edges
    return {(edge.source, edge.sink): edge for edge in found}


def test_an_empty_store_has_nothing_to_show(store: MetaStore) -> None:
    found = history.load(store)
    assert overview.topology(found) == overview.Topology((), (), ())
    assert overview.barriers(found) == ()
    told = overview.status(found, now=5.0)
    assert (told.barrier, told.age, told.tables) == (0, None, ())


def test_the_graph_has_every_table_below_what_it_reads(store: MetaStore, clock: Clock) -> None:
    tell(store, clock, 3)
    told = overview.topology(history.load(store))
    assert told.levels == ((ITEMS, ORDERS, USERS), (CLEAN,), (REVENUE, TOTALS), (REPORT, TOP))
    assert {node.kind for node in told.nodes if node.table in told.levels[0]} == {"root"}
    assert len(told.edges) == 8
    assert {edge.state for edge in told.edges} == {"current"}


def test_a_view_that_was_left_out_is_behind_its_inputs(store: MetaStore, clock: Clock) -> None:
    story = tell(store, clock, 2)
    story.change(ORDERS)
    story.barrier(skip=(TOP,))
    assert nodes(store)[TOP].state == "behind"
    assert edges(store)[TOTALS, TOP].state == "behind"
    assert nodes(store)[REPORT].state == "current"
    story.change(ORDERS)
    story.barrier()
    assert nodes(store)[TOP].state == "current"


def test_a_change_that_came_to_nothing_leaves_nobody_behind(
    store: MetaStore, clock: Clock
) -> None:
    story = tell(store, clock, 2)
    before = nodes(store)[TOP]
    story.change(ORDERS)
    story.barrier(noops=(TOP,))
    assert nodes(store)[TOP] == before


def test_what_an_open_barrier_holds_is_staged_and_not_yet_the_newest(
    store: MetaStore, clock: Clock
) -> None:
    story = tell(store, clock, 2)
    story.change(ORDERS)
    number = story.barrier(finish=False)
    assert nodes(store)[CLEAN].state == "staged"
    assert nodes(store)[CLEAN].barrier == number - 1
    found = history.load(store)
    told = overview.status(found, now=clock.now)
    assert [(b.id, b.state) for b in told.unfinished] == [(number, "OPEN")]
    detail = overview.barrier(found, number)
    assert detail is not None
    assert {job.state for job in detail.jobs} == {"PROCESSED"}
    assert detail.delays == ()


def test_the_slowest_job_of_the_newest_barrier_is_the_bottleneck(
    store: MetaStore, clock: Clock
) -> None:
    tell(store, clock, 6)
    assert [node.table for node in nodes(store).values() if node.bottleneck] == [REVENUE]
    critical = {pair for pair, edge in edges(store).items() if edge.critical}
    assert critical == {(CLEAN, REVENUE), (REVENUE, REPORT)}
    told = overview.status(history.load(store), now=clock.now)
    assert told.contributions[0].table == REVENUE
    assert told.contributions[0].bottleneck_of == 6


def test_the_delay_of_a_table_is_counted_from_the_commit_of_the_root(
    store: MetaStore, clock: Clock
) -> None:
    story = Story(store, clock)
    story.barrier()
    story.change(ORDERS, before=12)
    begun = story.start
    story.barrier()
    # The oldest commit is five seconds before the newest; clean is the first to be published.
    assert nodes(store)[CLEAN].delay == pytest.approx(17 + 10.1)
    assert nodes(store)[CLEAN].changed_at == pytest.approx(begun + 10.1)


def test_a_window_of_the_newest_barriers_knows_what_was_before_it(
    store: MetaStore, clock: Clock
) -> None:
    tell(store, clock, 12)
    whole, window = history.load(store), history.load(store, newest=3)
    assert [b.id for b in window.barriers] == [10, 11, 12]
    assert overview.barrier(window, 10) == overview.barrier(whole, 10)
    assert overview.topology(window) == overview.topology(whole)
    earlier = history.load(store, newest=1, upto=7)
    assert overview.barrier(earlier, 7) == overview.barrier(whole, 7)


def test_forgotten_barriers_are_done_without(store: MetaStore, clock: Clock) -> None:
    story = tell(store, clock, 12)
    story.store.keep_from(story.fence, Retention(barriers=2))
    story.store.forget(story.fence, Retention())
    told = overview.barriers(history.load(store))
    assert [summary.id for summary in told] == [12, 11]
    assert told[0].delay is not None


def test_everything_that_is_shown_is_json(store: MetaStore, clock: Clock) -> None:
    tell(store, clock, 4)
    found = history.load(store)
    detail = overview.barrier(found, 4)
    assert detail is not None
    for told in (overview.topology(found), overview.status(found, clock.now), detail):
        assert json.loads(json.dumps(asdict(told)))


def test_delays_add_up_in_every_barrier_of_a_long_story(store: MetaStore, clock: Clock) -> None:
    tell(store, clock, 12)
    found = history.load(store)
    versions = [version for at in found.versions.values() for version in at.values()]
    told = delay.delays(found, versions)
    assert len(told) > 40
    for late in told.values():
        spent = late.waiting + sum(step.queued + step.seconds for step in late.steps)
        assert spent + late.aligning + late.publishing == pytest.approx(late.seconds)
