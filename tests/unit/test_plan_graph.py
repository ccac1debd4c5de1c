"""The graph of a plan: its operators, and no figure that was not counted or measured."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from dbt_streamsql.meta import Barrier, Job, TableVersion
from dbt_streamsql.meta.inspect.history import History
from dbt_streamsql.meta.inspect.plan_graph import PlanGraph, PlanNode, graph_of
from dbt_streamsql.plan.compiled import CompiledPlan
from tests.support.planned import compiled, planned, with_state_table

ORDERS, USERS, TOTALS = "lake.t.orders", "lake.t.users", "lake.t.totals"
TABLES = {
    ORDERS: {"id": "int", "user_id": "int", "amount": "int"},
    USERS: {"id": "int", "city": "string"},
}
QUERY = (
    "SELECT u.city, sum(o.amount) AS total, count(*) AS n FROM lake.t.orders o "
    "JOIN lake.t.users u ON u.id = o.user_id WHERE o.amount > 3 GROUP BY u.city"
)


@cache
def plan_of_totals() -> CompiledPlan:
    return compiled(QUERY, TABLES, TOTALS)


def version(barrier: int, table: str = TOTALS, **more) -> TableVersion:
    given = {"snapshot": barrier * 10, "mode": "incremental", "inputs": {}, **more}
    return TableVersion(barrier, table, state="WRITTEN", **given)


def drawn(*versions: TableVersion, plan: CompiledPlan | None = None) -> PlanGraph:
    job = planned(Job(TOTALS, "", ""), plan or plan_of_totals())
    numbers = sorted({each.barrier for each in versions})
    history = History(
        tuple(Barrier(number, "COMMIT", 1.0, 2.0) for number in numbers),
        {n: {v.table: v for v in versions if v.barrier == n} for n in numbers},
        jobs={TOTALS: job},
    )
    found = graph_of(job, history)
    assert found is not None
    return found


def of(graph: PlanGraph, kind: str, text: str = "") -> PlanNode:
    found = [node for node in graph.nodes if node.kind == kind and text in node.text]
    assert len(found) == 1, graph.nodes
    return found[0]


BUILT = version(1, mode="full", rows_inserted=5, inputs={ORDERS: 1, USERS: 1}, seconds=4.0)
CHANGED = version(
    2,
    inputs={ORDERS: 2, USERS: 1},
    rows_inserted=3,
    rows_deleted=2,
    seconds=0.5,
    stats={"changed": {ORDERS: 7}, "size": [6, 900]},
)


def test_every_operator_is_there_with_what_it_does_and_reads():
    graph = drawn()
    view, join = of(graph, "view"), of(graph, "inner join")
    assert (graph.mode, graph.barrier, graph.nodes[0]) == ("incremental", None, view)
    assert join.text == "u.id = o.user_id AND o.amount > 3"
    assert of(graph, "group").text.endswith("by city")
    scans = {of(graph, "scan", ORDERS).id, of(graph, "scan", USERS).id}
    assert set(join.inputs) == scans
    reached = {each for node in graph.nodes for each in node.inputs}
    assert reached == {node.id for node in graph.nodes} - {view.id}
    assert of(graph, "group").ttl == "for ever"


def test_the_figures_are_those_of_the_newest_change():
    noop = version(3, mode="noop", inputs={ORDERS: 3, USERS: 1})
    graph = drawn(BUILT, CHANGED, noop)
    view = of(graph, "view")
    assert graph.barrier == 2
    assert (view.rows, view.size, view.seconds) == ((3, 2), (6, 900), 0.5)
    assert of(graph, "scan", ORDERS).changed == 7
    assert of(graph, "scan", USERS).changed == 0
    join = of(graph, "inner join")
    assert (join.changed, join.rows, join.size, join.seconds) == (None, None, None, None)


def test_what_was_not_counted_has_no_figure():
    unknown = replace(CHANGED, stats={})
    graph = drawn(BUILT, unknown)
    assert (of(graph, "scan", ORDERS).changed, of(graph, "view").size) == (None, None)
    built = drawn(BUILT)
    assert (of(built, "scan", ORDERS).changed, of(built, "scan", USERS).changed) == (None, None)


def test_an_input_that_is_a_view_has_its_own_figures():
    first = version(1, ORDERS, mode="full", rows_inserted=9, stats={"size": [9, 90]})
    second = version(2, ORDERS, rows_inserted=4, rows_deleted=1, stats={"size": [12, 120]})
    scan = of(drawn(BUILT, CHANGED, first, second), "scan", ORDERS)
    assert (scan.changed, scan.size) == (5, (12, 120))


def test_rows_that_an_input_only_rewrote_did_not_change():
    first = version(1, ORDERS, mode="full", rows_inserted=900)
    again = version(2, ORDERS, mode="full", rows_inserted=904, rows_deleted=900)
    unknown = replace(CHANGED, stats={})
    assert of(drawn(BUILT, unknown, first, again), "scan", ORDERS).changed is None
    assert of(drawn(BUILT, CHANGED, first, again), "scan", ORDERS).changed == 7


def test_a_state_table_has_figures_and_what_it_reads_is_computed_with_it():
    join = of(drawn(), "inner join").id
    plan, table = with_state_table(plan_of_totals(), int(join))
    held = version(
        2, table, rows_inserted=8, rows_deleted=6, seconds=0.2, stats={"size": [50, 800]}
    )
    graph = drawn(BUILT, CHANGED, held, plan=plan)
    stored = of(graph, "inner join")
    assert (stored.stored, stored.table) == (True, table)
    assert (stored.rows, stored.size, stored.seconds) == ((8, 6), (50, 800), 0.2)
    scans = [node for node in graph.nodes if node.kind == "scan"]
    assert [(node.inside, node.changed) for node in scans] == [(True, None)] * 2
    assert not stored.inside
    assert not of(graph, "group").inside


def test_a_part_that_is_not_stored_may_be():
    plan, _ = with_state_table(plan_of_totals(), int(of(drawn(), "inner join").id))
    plan = replace(plan, parts=(replace(plan.parts[0], stored=""),))
    graph = drawn(plan=plan)
    assert (of(graph, "inner join").stored, of(graph, "group").stored) == (False, None)


def test_a_view_that_is_computed_in_full_is_its_query_over_its_inputs():
    plan = compiled("SELECT rand() AS r FROM lake.t.orders", TABLES, TOTALS)
    graph = drawn(plan=plan)
    query = of(graph, "query")
    assert graph.mode == "full"
    assert "rand()" in query.text
    assert query.inputs == (of(graph, "scan", ORDERS).id,)


@pytest.mark.parametrize("mode", ["streaming", "beside"])
def test_a_streaming_table_has_no_operators(mode: str):
    job = planned(Job(TOTALS, "", ""), replace(plan_of_totals(), mode=mode))
    assert graph_of(job, History()) is None
    assert graph_of(Job(TOTALS, "", ""), History()) is None
