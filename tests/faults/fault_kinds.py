"""The kinds of faults: each meets a process in the middle of a scenario, and then checks."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random

from dbt_streamsql import Engine
from dbt_streamsql.errors import StreamSqlError
from tests.faults import fault_disk
from tests.faults import fault_scenario as shop
from tests.faults.fault_child import ANY, FAILED
from tests.faults.fault_stages import (
    Contents,
    Held,
    Passing,
    Ready,
    Stages,
    check_clean,
    check_readers,
    check_rest,
    opened,
)
from tests.faults.fault_world import World, wait_until_stopped
from tests.support import patience

RECOVERY = 12
"""Steps of a recovery that can be the last one."""


def kill_at(
    stages: Stages, name: str, at: int, *, own_spark: bool = False, again: int = 0
) -> None:
    """SIGKILL at a place in the trace, and `again` after so many steps of the recovery."""
    ready, world = stages.ready(name), stages.world
    with opened(world) as engine:
        held = Held(engine)
        process = world.start(name, *_nth(ready, at), own_spark=own_spark)
        assert world.finish(process, -signal.SIGKILL), "it did not come so far"
        if again:
            world.kill("recover", ANY, "", again)
        _recover(world, engine, ready, ready.trace[: at + 1])
        ready.scenario.task(engine)
        _check_done(world, engine, ready, held)


def kill(stages: Stages, name: str, rng: Random) -> str:
    """SIGKILL before or after a step."""
    at, where = _point(stages.known(name), rng)
    kill_at(stages, name, at)
    return where


def kill_with_spark(stages: Stages, name: str, rng: Random) -> str:
    """The same, and the process has a Spark of its own, whose statements end with it."""
    at, where = _point(stages.known(name), rng)
    kill_at(stages, name, at, own_spark=True)
    return where


def kill_twice(stages: Stages, name: str, rng: Random) -> str:
    """SIGKILL, and the recovery dies as well."""
    at, where = _point(stages.known(name), rng)
    kill_at(stages, name, at, again=1 + rng.randrange(RECOVERY))
    return where


def zombie(stages: Stages, name: str, rng: Random) -> str:
    """SIGSTOP; the lock is lost, a successor recovers and does the work; then SIGCONT."""
    ready = stages.ready(name)
    at, where = _point(ready, rng)
    world = stages.world
    with opened(world) as engine, _stopped(world, ready, name, at) as process:
        held = Held(engine)
        _lose_locks(world)
        _recover(world, engine, ready, ready.trace[: at + 1])
        ready.scenario.task(engine)
        before = world.recorded(engine)
        os.kill(process.pid, signal.SIGCONT)
        assert world.ends(process) in (0, FAILED), world.said
        assert world.recorded(engine) == before, "a zombie has written to MetaService"
        _check_done(world, engine, ready, held)
    return where


def pause(stages: Stages, name: str, rng: Random) -> str:
    """SIGSTOP; a second run waits, or does not disturb the first one; then SIGCONT."""
    ready = stages.ready(name)
    at, where = _point(ready, rng)
    world = stages.world
    with opened(world) as engine, _stopped(world, ready, name, at) as process:
        held = Held(engine)
        second = threading.Thread(target=shop.recover, args=(engine,), name="second run")
        second.start()
        second.join(1)
        locked = world.store().fence().owner != ""
        assert second.is_alive() or not locked, "a stopped process has lost its lock"
        os.kill(process.pid, signal.SIGCONT)
        assert world.ends(process) == 0, world.said
        patience.join(second)
        _check_done(world, engine, ready, held)
    return where


def full_disk(stages: Stages, name: str, rng: Random) -> str:
    """The disk is full at a random byte of what the process writes; then there is room again."""
    ready, world = stages.known(name), stages.world
    with _on_a_disk(stages, name) as disk, opened(world) as engine:
        held = Held(engine)
        disk.fill(rng.randrange(max(ready.taken, 1)))
        failed = world.finish(world.start(name, "", ""))
        passed = world.told().trace
        _check_told(world, failed=failed)
        check_readers(world, engine, *_around(ready, passed), writable=False)
        held.check()
        disk.empty()
        _recover(world, engine, ready, passed)
        ready.scenario.task(engine)
        _check_done(world, engine, ready, held, refused=True)
    return _last(passed) if failed else "it had room"


def read_only(stages: Stages, name: str, rng: Random) -> str:
    """The disk becomes read-only while the process is at a step; then it can be written again."""
    ready, world = stages.known(name), stages.world
    at, where = _point(ready, rng)
    with _on_a_disk(stages, name) as disk, opened(world) as engine:
        with _stopped(world, ready, name, at) as process:
            held = Held(engine)
            disk.protect()
            os.kill(process.pid, signal.SIGCONT)
            failed = world.finish(process)
        passed = world.told().trace
        _check_told(world, failed=failed)
        check_readers(world, engine, *_around(ready, passed), writable=False)
        held.check()
        disk.release()
        _recover(world, engine, ready, passed, partial(insist, shop.recover))
        insist(ready.scenario.task, engine)
        insist(engine.sweep)
        _check_done(world, engine, ready, held, refused=True)
    return where


KINDS: dict[str, Callable[[Stages, str, Random], str]] = {
    "kill": kill,
    "kill-spark": kill_with_spark,
    "kill-twice": kill_twice,
    "zombie": zombie,
    "pause": pause,
    "full": full_disk,
    "read-only": read_only,
}
"""By the name that repeats one; each returns the step that it met."""

ON_A_DISK = {"full", "read-only"}
"""Kinds that need `fault_disk.py`."""


def _point(ready: Ready, rng: Random) -> tuple[int, str]:
    """A random passing of the scenario: its place in the trace, and its name."""
    at = rng.randrange(len(ready.trace))
    step, moment = ready.trace[at]
    return at, f"{moment} {step}"


def _nth(ready: Ready, at: int) -> tuple[str, str, int]:
    step, moment = ready.trace[at]
    return step, moment, ready.trace[: at + 1].count((step, moment))


def _last(passed: list[Passing]) -> str:
    step, moment = passed[-1] if passed else ("anything", "before")
    return f"{moment} {step}"


@contextmanager
def _stopped(world: World, ready: Ready, name: str, at: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has stopped itself at a passing; it is dead after the block."""
    process = world.start(name, *_nth(ready, at), sends=signal.SIGSTOP)
    try:
        wait_until_stopped(process)
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def _on_a_disk(stages: Stages, name: str) -> Iterator[fault_disk.Disk]:
    with fault_disk.mounted(stages.world.disk) as disk:
        stages.ready(name)
        yield disk


def _lose_locks(world: World) -> None:
    """What a lock on a network file system or a broken connection comes to: a successor gets it."""
    for file in (*world.warehouse.glob("*.lock"), *world.warehouse.glob("*.owner-*")):
        file.unlink()


def _around(ready: Ready, passed: Sequence[Passing]) -> tuple[Contents, Contents]:
    """The tables at the stage of a process that has passed these, and those of the one before."""
    stage = ready.stage_after(passed)
    return ready.contents[max(stage - 1, 0)], ready.contents[stage]


def insist(call: Callable[..., object], *given: object) -> None:
    """Who came while the disk was read-only may be refused once more, then not again."""
    try:
        call(*given)
    except StreamSqlError as error:
        if error.code not in ("STORAGE_REFUSED", "META_UNREACHABLE"):
            raise
        call(*given)


def _recover(
    world: World,
    engine: Engine,
    ready: Ready,
    passed: Sequence[Passing],
    recover: Callable[[Engine], object] = shop.recover,
) -> None:
    """What readers see of a dead process, and after the recovery by the next one."""
    old, new = _around(ready, passed)
    check_readers(world, engine, old, new)
    recover(engine)
    check_rest(world, engine, new)


def _check_done(
    world: World, engine: Engine, ready: Ready, held: Held, *, refused: bool = False
) -> None:
    """The task has been done in the end, once, and what was kept for a reader is given back."""
    held.check()
    held.close()
    check_rest(world, engine, ready.contents[-1])
    check_clean(world, engine, refused=refused)
    if ready.scenario.after is None:
        again = engine.advance()
        assert {report.mode for report in again.tables.values()} <= {"noop"}


def _check_told(world: World, *, failed: bool) -> None:
    """An error of the disk is told as one: a code, what it was, and what to do."""
    error = world.told().error
    assert (error is not None) == failed
    if error is not None:
        assert error["code"], f"{error['kind']}: {error['text']}\n{world.said}"
        assert "  do: " in error["text"], error["text"]
