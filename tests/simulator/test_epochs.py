"""Single cases of the protocol that a person can read, on the simulated store and storage."""

from __future__ import annotations

import random

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName
from tests.simulator.sim_checks import BASES, Checks
from tests.simulator.sim_process import Fault, Process, Simulation
from tests.simulator.sim_runtime import advance, definition, run_models, substituted, sweep, twice
from tests.support.product import home

OLD = definition("lake.s.v0", "picked", BASES[:1])
NEW = definition("lake.s.v0", "summed", BASES[:1])
READER = definition("lake.s.v1", "doubled", [OLD.table])


@pytest.fixture
def shop():
    """A view over a view, published; a table that has changed since; and its checks."""
    with substituted():
        simulation = Simulation(random.Random(0))
        checks = Checks(simulation, {*BASES, OLD.table, READER.table})
        simulation.watch = checks.watch
        for base in BASES:
            simulation.lake.create(TableName.parse(base), ("k", "v"), {(1, 2): 1})
        play(simulation, run_models([(OLD, ""), (READER, "")]))
        base = TableName.parse(BASES[0])
        parent = simulation.lake.tables[BASES[0]].meta.current
        simulation.lake.commit(base, "main", parent, {(1, 2): 1, (1, 4): 1}, "append")
        yield simulation, checks
        assert simulation.broken == []


def play(simulation, task, fault=None):
    process = Process(simulation, "p", task, fault)
    simulation.play(process)
    return process


def test_a_view_that_its_readers_have_seen_is_not_defined_anew_in_the_same_epoch(shop):
    simulation, checks = shop
    found = play(simulation, run_models([(READER, ""), (NEW, "")]))
    assert found.error.code == "DUPLICATE_WRITER"
    assert simulation.ledger.jobs[OLD.table].sql == OLD.sql
    assert play(simulation, run_models([(NEW, ""), (READER, "")])).error is None
    checks.up_to_date()


def test_a_definition_that_the_store_may_have_is_not_published_over_the_rows_of_the_old_one(shop):
    simulation, checks = shop
    torn = Fault("error", 1, step="store: define", moment="done")
    assert play(simulation, run_models([(NEW, ""), (READER, "")]), torn).error is not None
    assert simulation.ledger.jobs[OLD.table].sql == OLD.sql
    play(simulation, advance)
    checks.up_to_date()


def test_a_process_that_could_not_give_its_lock_back_can_run_again(shop):
    simulation, checks = shop
    lost = Fault("error", 1, step="store: release")
    assert play(simulation, twice(advance), lost).error is None
    checks.up_to_date()


@pytest.mark.parametrize("ahead", range(1, 80, 3))
def test_a_runner_that_lost_its_lock_takes_nothing_away_from_its_successor(shop, ahead):
    simulation, checks = shop
    base = TableName.parse(BASES[0])

    def successor():
        parent = simulation.lake.tables[BASES[0]].meta.current
        simulation.lake.commit(base, "main", parent, {(1, 9): 1}, "overwrite")
        return Process(simulation, "q", advance, None)

    simulation.rival, simulation.turn, checks.zombies = successor, 0.0, True
    play(simulation, advance, Fault("zombie", 1, ahead, "barrier.commit", "after"))
    assert play(simulation, sweep).error is None
    checks.at_rest()
    checks.up_to_date()


@pytest.mark.long
@pytest.mark.parametrize("epochs", range(2, 9))
@pytest.mark.parametrize("at", range(40, 90))
def test_no_error_while_a_version_is_pinned_lets_it_expire_under_its_reader(shop, epochs, at):
    simulation, checks = shop
    base = TableName.parse(BASES[0])

    def changed():
        parent = simulation.lake.tables[BASES[0]].meta.current
        simulation.lake.commit(base, "main", parent, {(1, simulation.lake.made): 1}, "overwrite")

    for _ in range(epochs):
        changed()
        play(simulation, advance)
    checks.lease(1e6)
    for fault in (Fault("error", at), None):
        changed()
        play(simulation, advance, fault)
        checks.at_point()


@pytest.mark.parametrize("at", range(1, 60))
def test_a_process_that_dies_while_it_takes_a_failed_view_back_leaves_no_files(
    shop, monkeypatch, at
):
    simulation, checks = shop

    def fail(*_):
        raise StreamSqlError("TABLE_EXISTS", "after the view and its change were written")

    with monkeypatch.context() as failing:
        failing.setattr(home("stage"), "stage", fail)
        play(simulation, run_models([(OLD, "")]), Fault("crash", at))
    play(simulation, sweep)
    checks.at_rest()
    assert simulation.lake.files == {}
