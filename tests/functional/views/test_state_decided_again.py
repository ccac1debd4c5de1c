"""What is stored of a view is decided again while it runs: state tables come beside it, and go."""

from __future__ import annotations

import pytest

from tests.functional.views.test_stored_parts import QUERIES, World, world  # noqa: F401
from tests.support.steps import dying

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

LINES = "SELECT i.name, i.item, s.v, s.k FROM {s}.sales s JOIN {s}.items i ON i.item = s.item"
JOINED = (
    f"SELECT name, max(v) AS most, count(*) AS n FROM ({LINES}) x GROUP BY name",
    f"SELECT q.v, min(q.name) AS least FROM ({LINES}) q GROUP BY q.v",
    f"SELECT z.v, count(DISTINCT z.name) AS names FROM ({LINES}) z GROUP BY z.v",
    f"SELECT p.item, min(p.v) AS least FROM ({LINES}) p GROUP BY p.item",
)
"""Views over one join; the last one needs another column of it."""


@pytest.fixture
def decided(world, tune):  # noqa: F811 - the fixture
    """Says whether parts are stored from now on, at each barrier anew."""

    def decide(storing):
        tune(world.engine, storing=storing, decided_again=1)

    return decide


def advanced(world, number):  # noqa: F811 - the fixture
    """An epoch with changes; no view is refreshed in full."""
    world.change(number)
    reports = world.engine.advance().tables
    full = {name: reports[name].reason for name in world.names if reports[name].mode == "full"}
    assert full == {}
    world.check()
    return reports


def test_a_state_table_is_built_beside_the_running_view(world, decided):  # noqa: F811
    names = [world.view(text) for text in QUERIES]
    advanced(world, 0)
    assert world.states == []
    decided(0.0)
    reports = advanced(world, 1)
    (state,) = world.states
    assert reports[state].mode == "full"
    assert reports[names[0]].reason == "stored parts: 1 more"
    decided(0.0)
    reports = advanced(world, 2)
    assert reports[state].mode == "incremental"
    assert all(state in world.engine.store.jobs()[name].sources for name in names)
    assert all(f"{world.s}.sales" not in reports[name].reads for name in names)


def test_a_state_table_that_does_not_pay_is_dropped_and_stays_so(world, decided):  # noqa: F811
    name = world.view(QUERIES[0])
    decided(0.0)
    advanced(world, 0)
    assert len(world.states) == 1
    decided(-1.0)
    reports = advanced(world, 1)
    assert reports[name].reason == "stored parts: 1 fewer"
    assert world.states == world.tables() == []
    decided(0.0)
    advanced(world, 2)
    assert world.states == []
    assert "its state table was dropped" in world.engine.explain(name)
    world.engine.create_materialized_view(name, world.query(QUERIES[0]))
    assert world.states == []
    world.engine.create_materialized_view(name, world.query(QUERIES[0]), full_refresh=True)
    assert len(world.states) == 1
    advanced(world, 3)


def test_it_is_decided_for_a_view_that_does_not_change_too(world, decided):  # noqa: F811
    name = world.view(QUERIES[0])
    advanced(world, 0)
    decided(0.0)
    world.engine.spark.sql(f"INSERT INTO {world.s}.items VALUES (NULL, 'none')")
    reports = world.engine.advance().tables
    assert len(world.states) == 1
    assert reports[name].mode == "noop"
    world.check()
    advanced(world, 1)


def test_nothing_is_decided_for_a_view_that_had_nothing_to_do(world, decided):  # noqa: F811
    run = world.engine.spark.sql
    run(
        f"CREATE TABLE {world.s}.elsewhere (k INT) USING iceberg TBLPROPERTIES ('format-version' = '3')"
    )
    world.view(QUERIES[0])
    world.view("SELECT k, k + 1 AS next FROM {s}.elsewhere")
    for number in range(10):
        run(f"INSERT INTO {world.s}.elsewhere VALUES ({number})")
        world.engine.advance()
    decided(0.0)
    run(f"INSERT INTO {world.s}.elsewhere VALUES (10)")
    world.engine.advance()
    assert world.states == []
    world.check()


def test_a_join_is_stored_once_and_read_once_by_all_its_views(world):  # noqa: F811
    for text in JOINED[:2]:
        world.view(text, state="all")
    (joined,) = world.states
    for text in JOINED[2:]:
        world.view(text, state="all")
    # The last one needs another column of it.
    assert len(world.states) == 2
    for number in range(3):
        reports = advanced(world, number)
        for name in world.names[:3]:
            assert set(world.engine.store.jobs()[name].sources) == {joined}
            assert set(reports[name].reads) <= {joined}


def test_a_join_is_stored_by_itself_when_a_second_view_has_it(world, decided):  # noqa: F811
    decided(0.0)
    first = world.view(JOINED[0])
    advanced(world, 0)
    assert world.states == []
    assert "only where several views have it" in world.engine.explain(first)
    second = world.view(JOINED[1])
    assert len(world.states) == 1
    reports = advanced(world, 1)
    # The first one reads it from the next barrier on.
    assert reports[first].reason == "stored parts: 1 more"
    advanced(world, 2)
    assert set(world.engine.store.jobs()[first].sources) == set(world.states)
    world.engine.drop(second)
    world.names.remove(second)
    advanced(world, 3)
    assert world.states == world.tables() == []
    world.view(JOINED[1])
    advanced(world, 4)
    assert len(world.states) == 1


@pytest.mark.parametrize(
    "step", ["table.build", "job.stage", "barrier.precommit", "table.written"]
)
def test_a_process_may_die_while_a_state_table_is_built_later(world, decided, step):  # noqa: F811
    world.view(QUERIES[0])
    advanced(world, 0)
    decided(0.0)
    world.change(1)
    with dying(step):
        world.engine.advance()
    world.engine.advance()
    world.check()
    for number in (2, 3):
        advanced(world, number)
    assert len(world.states) == len(world.tables()) == 1


def test_a_view_whose_state_table_cannot_be_built_goes_on_as_before(world, decided):  # noqa: F811
    name = world.view(QUERIES[0])
    advanced(world, 0)
    decided(0.0)
    with dying("table.build"):
        world.change(1)
        world.engine.advance()
    decided(-1.0)
    advanced(world, 2)
    assert world.states == world.tables() == []
    assert name in world.names
