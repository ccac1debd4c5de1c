"""Which way a view takes: what each is expected to cost, and what runs before have cost."""

from __future__ import annotations

from dbt_streamsql.plan.program import steps
from dbt_streamsql.plan.program.work import Work, of_program
from dbt_streamsql.runtime.core.ways import (
    CHANGES,
    COMPARE,
    FULL,
    Costs,
    Query,
    Run,
    cheapest,
    expected_by_comparing,
    expected_from_changes,
    expected_in_full,
)

VIEW, OTHER = ("lake.s.v", "plan"), ("lake.s.w", "plan")
EQUAL = {CHANGES: 1.0, COMPARE: 1.0}


def took(seconds):
    """A run that was expected to take a second."""
    return Run(1.0, seconds)


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


def test_rows_at_hand_are_not_looked_up():
    looked_up, not_looked_up = (
        of_program(JOIN, {"lake.s.a"}, {}, at_hand=each).statements for each in (False, True)
    )
    assert looked_up == not_looked_up + 1


def test_long_programs_and_long_tables_cost_more():
    few, many = (expected_from_changes(work, 5, 5, 9) for work in (Work(2, 10), Work(9, 9000)))
    assert few < many
    sizes = ((Query(10, 0, 100), 10), (Query(10, 0, 10**7), 10**5))
    for held, known in ((False, False), (True, False), (True, True)):
        short, long = (expected_by_comparing(*size, held=held, at_hand=known) for size in sizes)
        assert short < long


def test_rows_that_the_process_has_are_compared_for_less():
    spark, read, known = (
        expected_by_comparing(Query(10, 0, 1000), 10**5, held=held, at_hand=known)
        for held, known in ((False, False), (True, False), (True, True))
    )
    assert known < read < spark


def test_many_changed_rows_of_a_view_cost_more_than_of_its_inputs():
    few, many = (expected_from_changes(Work(2, 10), 10**6, shown, 9) for shown in (10, 10**6))
    assert few < many


def test_a_full_refresh_grows_with_what_is_read_and_written():
    small, read, written = (
        expected_in_full(Query(10, 0, every), stored)
        for every, stored in ((10, 10), (10**7, 10), (10, 10**7))
    )
    assert small < min(read, written)


def test_a_query_that_joins_costs_more_than_one_that_filters():
    filters, joins = (expected_in_full(Query(10, count, 10**6), 10**5) for count in (0, 1))
    assert filters < joins


def test_changes_that_are_searched_for_cost_more_than_those_that_were_appended():
    appended, searched = (
        expected_from_changes(Work(2, 10), 5, 5, 9, rows) for rows in ([], [10.0**6])
    )
    assert appended < searched


def test_a_run_without_work_is_learnt_too():
    costs, expected = Costs(), expected_from_changes(Work(0, 0), 0, 0, 0)
    costs.learn(VIEW, CHANGES, Run(expected, costs.measured(expected, 0.1)))
    assert cheapest(costs.seconds(VIEW, {CHANGES: expected, COMPARE: 99.0})) == CHANGES


def test_without_a_run_the_expected_cost_decides():
    assert cheapest(Costs().seconds(VIEW, {CHANGES: 1.0, COMPARE: 2.0})) == CHANGES
    assert cheapest(Costs().seconds(VIEW, {CHANGES: 2.0, COMPARE: 1.0})) == COMPARE


def test_a_way_that_was_dearer_than_expected_is_left():
    costs = Costs()
    costs.learn(VIEW, CHANGES, took(5.0))
    assert cheapest(costs.seconds(VIEW, EQUAL)) == COMPARE
    costs.learn(VIEW, COMPARE, took(9.0))
    assert cheapest(costs.seconds(VIEW, EQUAL)) == CHANGES


def test_the_quickest_run_counts_for_others_may_have_waited():
    costs = Costs()
    for seconds in (30.0, 0.5, 20.0):
        costs.learn(VIEW, CHANGES, took(seconds))
    costs.learn(VIEW, COMPARE, took(0.6))
    assert cheapest(costs.seconds(VIEW, EQUAL)) == CHANGES


def test_a_view_without_runs_learns_from_others():
    costs = Costs()
    costs.learn(OTHER, COMPARE, took(1.0))
    costs.learn(OTHER, CHANGES, took(5.0))
    assert cheapest(costs.seconds(VIEW, EQUAL)) == COMPARE


def test_of_a_way_that_nobody_went_the_others_tell_how_quick_the_machine_is():
    costs = Costs()
    for _ in range(5):
        costs.learn(VIEW, FULL, took(3.0))
    assert costs.seconds(VIEW, {CHANGES: 2.0}) == {CHANGES: 6.0}


def test_a_cold_comparison_makes_no_full_refresh_look_cheap():
    costs = Costs()
    costs.learn(OTHER, COMPARE, took(10.0))
    assert costs.seconds(VIEW, {COMPARE: 1.0, FULL: 2.0}) == {COMPARE: 10.0, FULL: 20.0}


def test_a_first_run_that_was_slower_than_usual_is_no_measure():
    costs = Costs()
    for other in (OTHER, ("lake.s.x", "plan"), ("lake.s.y", "plan")):
        costs.learn(other, CHANGES, took(1.0))
    costs.learn(VIEW, CHANGES, took(9.0))
    assert costs.seconds(VIEW, {CHANGES: 1.0}) == {CHANGES: 1.0}
    costs.learn(VIEW, CHANGES, took(8.0))
    assert costs.seconds(VIEW, {CHANGES: 1.0}) == {CHANGES: 8.0}


def test_the_start_of_a_process_is_not_held_against_its_first_runs():
    costs = Costs(cold=10.0)
    assert costs.measured(1.0, 8.0) is None
    assert costs.measured(1.0, 7.0) == 4.0, "three of the ten seconds were left"
    assert costs.measured(1.0, 7.0) == 7.0


def test_a_single_full_refresh_of_a_view_counts():
    costs = Costs()
    for other in (OTHER, ("lake.s.x", "plan")):
        costs.learn(other, FULL, took(1.0))
    costs.learn(VIEW, FULL, took(9.0))
    assert costs.seconds(VIEW, {FULL: 1.0}) == {FULL: 9.0}
    past = {FULL: [took(3.0)]}
    assert costs.seconds(("lake.s.new", "plan"), {FULL: 1.0, COMPARE: 1.0}, past) == {
        FULL: 3.0,
        COMPARE: 1.0,
    }


def test_what_a_query_took_beside_others_counts_before_what_its_build_took_alone():
    costs = Costs()
    for _ in range(2):
        costs.learn(VIEW, COMPARE, took(3.0))
    assert costs.seconds(VIEW, {COMPARE: 1.0, FULL: 1.0}, {FULL: [took(1.0)]}) == {
        COMPARE: 3.0,
        FULL: 3.0,
    }


def test_runs_of_other_processes_count_until_this_one_knows_better():
    costs, past = Costs(), {CHANGES: [took(4.0), took(2.5)]}
    assert costs.seconds(VIEW, EQUAL, past) == {CHANGES: 2.5, COMPARE: 1.0}
    for seconds in (7.0, 8.0):
        costs.learn(VIEW, CHANGES, took(seconds))
    assert costs.seconds(VIEW, EQUAL, past)[CHANGES] == 7.0


def test_a_run_over_few_rows_says_nothing_about_one_over_many():
    costs, past = Costs(), {CHANGES: [Run(0.9, 3.0)]}
    for _ in range(2):
        costs.learn(VIEW, CHANGES, Run(1.1, 3.0))
    assert costs.seconds(VIEW, {CHANGES: 4.0}, past) == {CHANGES: 12.0}
    assert costs.seconds(VIEW, {CHANGES: 5.0}, past) == {CHANGES: 5.0}
    assert costs.seconds(VIEW, {CHANGES: 0.2}, past) == {CHANGES: 0.2}


def test_a_factor_makes_a_way_dearer_or_free():
    dear = {CHANGES: 1.0, COMPARE: 2.0}
    assert cheapest(dear, 0.0) == COMPARE
    assert cheapest(dear) == CHANGES


def test_a_change_is_expected_to_meet_as_many_rows_as_the_last_one_of_its_inputs():
    costs = Costs()
    assert costs.met(VIEW, frozenset("a")) is None
    costs.meets(VIEW, frozenset("a"), 2, 1000)
    assert costs.met(VIEW, frozenset("a")) == 500
    assert costs.met(VIEW, frozenset("ab")) is costs.met(OTHER, frozenset("a")) is None
    assert costs.fade(VIEW, frozenset("a"), 500) == costs.met(VIEW, frozenset("a")) < 500
