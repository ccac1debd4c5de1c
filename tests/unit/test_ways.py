"""Which way a view takes: what each is expected to cost, and what runs before have cost."""

from __future__ import annotations

from dbt_streamsql.plan import steps
from dbt_streamsql.plan.work import Work, of_program
from dbt_streamsql.runtime.ways import (
    CHANGES,
    COMPARE,
    Costs,
    cheapest,
    expected_by_comparing,
    expected_from_changes,
)

VIEW, OTHER = ("lake.s.v", "plan"), ("lake.s.w", "plan")
EQUAL = {CHANGES: 1.0, COMPARE: 1.0}

JOIN = (
    steps.Changes("d0", "lake.s.a", ("k",)),
    steps.Changes("d1", "lake.s.b", ("k",)),
    steps.State("a", "lake.s.a", "after"),
    steps.State("b", "lake.s.b", "before"),
    steps.Query("q0", "SELECT * FROM {d0} JOIN {b}"),
    steps.Query("q1", "SELECT * FROM {d1} JOIN {a}"),
    steps.Union("both", ("q0", "q1")),
    steps.Collect("kept", "both"),
    steps.Query("twice", "{kept} {kept}"),
    steps.Apply("twice"),
)


def test_only_what_has_changed_is_work():
    none, one, two = (
        of_program(JOIN, moved, {"lake.s.a": 1000, "lake.s.b": 10})
        for moved in ((), ["lake.s.a"], {t.table for t in JOIN[:2]})
    )
    assert none == Work()
    assert (one.rows, two.rows) == (10, 1010)
    assert one.statements == two.statements == 3
    assert 0 < one.characters < two.characters


def test_rows_that_keys_choose_count_less():
    whole, cut = (
        (
            steps.Changes("d", "lake.s.a", ("k",)),
            steps.State("a", "lake.s.a", "before"),
            steps.Query("q", f"SELECT r.k FROM {{a}} r{rest}"),
            steps.Apply("q"),
        )
        for rest in ("", "\nLEFT SEMI JOIN {d} k ON r.k <=> k.k")
    )
    rows = [of_program(each, {"lake.s.a"}, {"lake.s.a": 1000}).rows for each in (whole, cut)]
    assert rows[0] == 1000
    assert 0 < rows[1] < 500


def test_long_programs_and_long_tables_cost_more():
    assert expected_from_changes(Work(2, 10), 5) < expected_from_changes(Work(9, 9000), 5)
    assert expected_by_comparing(10, 100, 10) < expected_by_comparing(10, 10**7, 10**5)


def test_a_run_without_work_is_learnt_too():
    costs, expected = Costs(), expected_from_changes(Work(0, 0), 0)
    costs.learn(VIEW, CHANGES, expected, 0.1)
    assert cheapest(costs.seconds(VIEW, {CHANGES: expected, COMPARE: 99.0})) == CHANGES


def test_without_a_run_the_expected_cost_decides():
    assert cheapest(Costs().seconds(VIEW, {CHANGES: 1.0, COMPARE: 2.0})) == CHANGES
    assert cheapest(Costs().seconds(VIEW, {CHANGES: 2.0, COMPARE: 1.0})) == COMPARE


def test_a_way_that_was_dearer_than_expected_is_left():
    costs = Costs()
    costs.learn(VIEW, CHANGES, 1.0, 5.0)
    assert cheapest(costs.seconds(VIEW, EQUAL)) == COMPARE
    costs.learn(VIEW, COMPARE, 1.0, 9.0)
    assert cheapest(costs.seconds(VIEW, EQUAL)) == CHANGES


def test_the_quickest_run_counts_for_others_may_have_waited():
    costs = Costs()
    for seconds in (30.0, 0.5, 20.0):
        costs.learn(VIEW, CHANGES, 1.0, seconds)
    costs.learn(VIEW, COMPARE, 1.0, 0.6)
    assert cheapest(costs.seconds(VIEW, EQUAL)) == CHANGES


def test_a_view_without_runs_learns_from_others():
    costs = Costs()
    costs.learn(OTHER, CHANGES, 1.0, 5.0)
    assert cheapest(costs.seconds(VIEW, EQUAL)) == COMPARE


def test_a_factor_makes_a_way_dearer_or_free():
    dear = {CHANGES: 1.0, COMPARE: 2.0}
    assert cheapest(dear, 0.0) == COMPARE
    assert cheapest(dear) == CHANGES
