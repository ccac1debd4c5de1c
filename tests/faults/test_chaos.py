"""A share of `make chaos`: faults of all kinds, each in the middle of another piece of work.

More scenarios: an entry in `fault_scenarios.py`, and a fault or two here.
"""

from __future__ import annotations

import pytest

from tests.faults.fault_campaign import WEIGHTS, Fault, Met, Tally, draw
from tests.faults.fault_disk import unavailable
from tests.faults.fault_kinds import KINDS, ON_A_DISK, kill_at
from tests.faults.fault_scenarios import SCENARIOS
from tests.faults.test_kills import ROUNDS
from tests.support.product import DROP_STEPS, REVISION_STEPS, STREAM_STEPS

pytestmark = [pytest.mark.spark, pytest.mark.processes]

SHARE = """
kill/first/1 kill/diamond/2 kill/redefine/3 kill/rebuild/4 kill/plain/5 kill/undo/6 kill/revise/8
kill/stream/9 kill/store/1 kill/share/2 kill/unshare/3 kill/decide/4 kill/undecide/5
kill-twice/stream/4 kill-twice/diamond/1
zombie/first/1 zombie/maintain/2 zombie/diamond/3 zombie/drop/5 zombie/finish/7 zombie/stream/8
zombie/share/3
pause/diamond/1 pause/plain/2
full/first/1 full/maintain/2 full/diamond/3 full/plain/5 full/finish/6 full/correct/7
read-only/first/1 read-only/maintain/2 read-only/redefine/3 read-only/undo/5
""".split()  # noqa: SIM905 - a line for each kind


@pytest.mark.parametrize("text", SHARE)
def test_a_fault_leaves_nothing_lost_doubled_mixed_or_behind(stages, faults, text):
    fault = Fault.parse(text)
    if fault.impossible:
        pytest.skip(fault.impossible)
    faults.count(Met(text, fault.run(stages)))


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", DROP_STEPS)
def test_a_drop_whose_process_died_can_be_asked_for_again(stages, faults, step, moment):
    kill_at(stages, "drop", stages.known("drop").trace.index((step, moment)))
    faults.count(Met("kill/drop/0", f"{moment} {step}"))


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", REVISION_STEPS)
def test_a_correction_whose_process_died_can_be_asked_for_again(stages, faults, step, moment):
    kill_at(stages, "correct", stages.known("correct").trace.index((step, moment)))
    faults.count(Met("kill/correct/0", f"{moment} {step}"))


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STREAM_STEPS)
def test_a_stream_is_read_once_by_whoever_comes_after(stages, faults, step, moment):
    kill_at(stages, "stream", stages.known("stream").trace.index((step, moment)))
    faults.count(Met("kill/stream/0", f"{moment} {step}"))


ALL_STATES = ["store", "share", "unshare", "decide", "undecide"]


@pytest.mark.parametrize("name", ALL_STATES if ROUNDS else ["unshare"])
def test_state_tables_outlive_a_process_that_dies_at_any_step(stages, faults, name):
    trace = stages.known(name).trace
    swept = [at for at, (step, _) in enumerate(trace) if step == "sweep.state"]
    for at in range(len(trace)) if ROUNDS else swept:
        kill_at(stages, name, at)
        faults.count(Met(f"kill/{name}/0", " ".join(reversed(trace[at]))))
    assert swept or ROUNDS


def test_the_share_has_every_kind_and_every_scenario():
    shared = [Fault.parse(text) for text in SHARE]
    # Kills with a Spark of their own are in test_kills.py.
    assert {fault.kind for fault in shared} == set(KINDS) - {"kill-spark"}
    assert {fault.scenario for fault in shared} == set(SCENARIOS)


def test_a_campaign_is_the_same_for_the_same_seed_and_draws_all_kinds():
    assert list(draw(7, 300)) == list(draw(7, 300))
    assert {fault.kind for fault in draw(7, 300)} == set(WEIGHTS) == set(KINDS)
    assert [Fault.parse(str(fault)) for fault in draw(7, 30)] == list(draw(7, 30))


def test_where_nothing_can_be_mounted_the_tally_says_so(monkeypatch):
    monkeypatch.setattr(
        "tests.faults.fault_disk.unavailable", lambda: "mounting a tmpfs is refused"
    )
    tally = Tally()
    for kind in ON_A_DISK:
        tally.count(Fault(kind, "first", 1).meet(stages=None))
    assert tally.met == 0
    assert "full: mounting a tmpfs is refused 1" in str(tally)


def test_a_disk_that_is_full_takes_no_more_and_one_that_is_protected_nothing(tmp_path):
    if unavailable():
        pytest.skip(unavailable())
    from tests.faults.fault_disk import mounted

    with mounted(tmp_path / "disk") as disk:
        file = disk.folder / "file"
        disk.fill(4096)
        with pytest.raises(OSError, match="No space left"):
            file.write_bytes(b"x" * 10_000)
        disk.empty()
        file.write_bytes(b"x" * 10_000)
        disk.protect()
        with pytest.raises(OSError, match="Read-only"):
            (disk.folder / "another").write_bytes(b"x")
        disk.release()
        (disk.folder / "another").write_bytes(b"x")
    assert not file.exists()
