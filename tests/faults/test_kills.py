"""A process is killed at a durable step of an epoch or of a recovery, and the next one runs.

`make processes` kills before each step (what stands then is what stood after the one before it) and
after the last ones; its processes share the Spark of the test run, which makes a kill three times
as quick. `make kills` kills at every passing of every step, before and after, and each process has
a Spark of its own that dies with it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from dbt_streamsql.plan.definition.stored_part import is_state_table
from tests.faults import fault_scenario as scenario
from tests.support.product import DROP_STEPS, GC_STEPS, REVISION_STEPS, STAGED_STEPS, symbol

pytestmark = [pytest.mark.spark, pytest.mark.processes]

ROUNDS = int(os.environ.get("STREAMSQL_KILLS", "0"))
"""How often the whole matrix is run; 0 for the short list."""

ELSEWHERE = {
    *STAGED_STEPS,
    *DROP_STEPS,
    *REVISION_STEPS,
    *GC_STEPS,
}
STEPS = [step for step in symbol("STEPS") if step not in ELSEWHERE]
"""Those of an epoch; `test_staged_kills.py`, `test_chaos.py` and `test_retention.py` have the others."""

FORWARD = set(STEPS[STEPS.index("barrier.precommit") + 1 :]) - {"barrier.abort"}
"""The steps after the point of no return."""

STATES = {
    "start": None,
    "open": ("epoch", "barrier.precommit", "before", 1),
    "half": ("epoch", "table.written", "before", 3),
}
"""Where a process begins: a warehouse at rest, and what an earlier kill left: an OPEN barrier with
everything staged, or a PRECOMMIT one with some tables published."""

EPOCH = [
    ("barrier.begin", "before", 1),
    ("job.stage", "before", 2),
    ("table.build", "before", 2),
    ("branch.create", "before", 1),
    ("branch.write", "before", 2),
    ("changes.register", "before", 1),
    ("changes.write", "before", 1),
    ("table.processed", "before", 2),
    ("barrier.precommit", "before", 1),
    ("publish.table", "before", 1),
    ("table.written", "before", 5),
    ("barrier.commit", "before", 1),
    ("sweep.staging", "before", 1),
    ("sweep.changes", "after", 1),
    ("sweep.changelog", "before", 1),
    ("sweep.state", "before", 1),
    ("pins.move", "after", 4),
    ("table.compact", "before", 1),
    ("ledger.keep", "before", 1),
    ("table.expire", "before", 1),
    ("table.expire", "after", 1),
    ("ledger.forget", "before", 1),
    ("ledger.forget", "after", 1),
]
UNDO = [
    ("barrier.abort", "after", 1),
    ("sweep.branch", "before", 2),
    ("sweep.staging", "before", 2),
    ("sweep.changes", "after", 1),
]
REDO = [("table.written", "before", 3)]
PASSINGS: dict[str, Counter[str]] = {}
"""By state: how often a process passes each step, found out once."""

SHORT = [
    *(("start", *case) for case in EPOCH),
    *(("open", *case) for case in UNDO),
    *(("half", *case) for case in REDO),
]
MATRIX = ROUNDS * [
    (state, step, moment, 0)
    for state in STATES
    for step in STEPS
    for moment in ("before", "after")
]
"""0: at every passing."""


def test_the_short_list_kills_at_every_durable_step():
    assert {step for _, step, _, _ in SHORT} == set(STEPS)


@pytest.mark.parametrize(("state", "step", "moment", "nth"), MATRIX if ROUNDS else SHORT)
def test_a_killed_process_leaves_nothing_lost_doubled_mixed_or_behind(
    world, tally, state, step, moment, nth
):
    times = [nth] if nth else range(1, _passings(world, state)[f"{moment} {step}"] + 1)
    for one in times:
        assert kill_and_run_again(world, state, step, moment, one, own_spark=not nth), one
        tally[step] += 1
    if not times:
        pytest.skip("it does not pass there")


@pytest.mark.parametrize(("step", "nth"), [("branch.write", 1), ("publish.table", 3)])
def test_a_process_killed_with_its_spark_leaves_nothing_either(world, tally, step, nth):
    assert kill_and_run_again(world, "start", step, "after", nth, own_spark=True)
    tally[step] += 1


def kill_and_run_again(world, state, step, moment, nth, *, own_spark) -> bool:
    """Kill a process and check what any reader sees then, after recovery, and after a rerun.

    False when the process did not pass the step so often.
    """
    _put(world, state)
    if not world.kill(_task(state), step, moment, nth, own_spark=own_spark):
        return False
    forward = step in FORWARD or (step, moment) == ("barrier.precommit", "after")
    goes_on = state == "half" or (state == "start" and forward)
    expected = world.after if goes_on else world.before
    engine = world.engine()
    try:
        _check_dead(world, engine, expected)
        scenario.recover(engine)
        _check_at_rest(world, engine, expected)
        _check_recovered_once_is_enough(world, engine)
        scenario.epoch(engine)
        engine.sweep()
        _check_at_rest(world, engine, world.after)
        for name in world.after:
            assert engine.verify(f"{scenario.SCHEMA}.{name}") == []
        again = engine.advance()
        assert {report.mode for report in again.tables.values()} == {"noop"}
    finally:
        engine.close()
    return True


def _passings(world, state) -> Counter[str]:
    if state not in PASSINGS:
        _put(world, state)
        PASSINGS[state] = Counter(world.passings(_task(state)))
    return PASSINGS[state]


def _task(state) -> str:
    return "epoch" if state == "start" else "recover"


def _put(world, state) -> None:
    """The warehouse in a state that an earlier kill left, made once."""
    if not world.saved(state):
        world.restore("start")
        assert world.kill(*STATES[state])
        world.save(state)
    world.restore(state)


def _check_dead(world, engine, expected) -> None:
    """Nobody has cleaned up yet: readers see one barrier, except while one is half published."""
    unfinished = [barrier.state for barrier in engine.store.unfinished()]
    seen = world.tables()
    if unfinished == ["PRECOMMIT"]:
        assert expected == world.after
        for name, rows in seen.items():
            assert rows in (world.before.get(name), world.after[name]), name
        assert world.committed(engine) == world.before
        return
    assert seen == expected
    assert world.committed(engine) == expected


def _check_at_rest(world, engine, expected) -> None:
    assert world.leftovers(engine) == []
    assert world.unpinned(engine) == []
    assert world.tables() == expected
    assert world.committed(engine) == expected
    told = scenario.TOLD if expected == world.before else scenario.TOLD_AFTER
    assert world.changelogs() == {name: expected[name] for name in told}
    jobs = set(engine.store.jobs())
    states = {table for table in jobs if is_state_table(table)}
    assert jobs - states == {f"{scenario.SCHEMA}.{n}" for n in expected}
    assert len(states) == (len(scenario.STORED) if expected == world.before else 0)


def _check_recovered_once_is_enough(world, engine) -> None:
    recovered = world.fingerprint(engine)
    assert engine.sweep() == 0
    assert world.fingerprint(engine) == recovered
