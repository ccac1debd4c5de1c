"""Run the contestants against each other, round by round, on one set of tables."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import data
from benchmarks.contestants import Contestant
from benchmarks.data import World

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sample:
    """One timed run: wall seconds from call to return, and the Spark jobs that it started."""

    contestant: str
    keys: str
    round: int
    seconds: float
    jobs: int
    note: str = ""


@dataclass(frozen=True)
class Result:
    """All of one size. `differing` counts, per contestant, the rows that are wrong at the end."""

    groups: int
    samples: tuple[Sample, ...]
    differing: dict[str, int]


@dataclass(frozen=True)
class Options:
    """`rounds` include the first, which is a warm-up and not reported; `size` rows change."""

    rounds: int
    size: int
    seed: int


def run(
    world: World, groups: int, chosen: Sequence[Contestant], options: Options, say: Say
) -> Result:
    """Make the tables of one size, measure, compare the results, drop the tables."""
    names = {contestant.name for contestant in chosen}
    try:
        say(f"{groups:,} groups: making the tables")
        data.create_base(world.spark, groups, options.seed)
        if "epoch" in names:
            data.create_view(world.engine)
        if names & {"merge", "ranged"}:
            data.create_copy(world.spark)
        if "delta" in names:
            data.create_delta(world.session_of(data.DELTA))
        samples = []
        for position, keys in enumerate(data.KEYS):
            for number in range(options.rounds):
                change = data.Change(
                    keys, groups, options.size, position * options.rounds + number, options.seed
                )
                timed = _round(world, chosen, change, number)
                samples += timed
                shown = ", ".join(f"{s.contestant} {s.seconds:.2f}" for s in timed)
                say(f"{groups:,} groups, {keys}, round {number}: {shown}")
        say(f"{groups:,} groups: comparing the results")
        return Result(groups, tuple(samples), _compare(world, chosen))
    finally:
        data.drop_all(world)


def jobs_so_far(world: World) -> int:
    """How many Spark jobs this process has started, in whatever thread or session."""
    context: Any = world.spark.sparkContext._jsc  # noqa: SLF001 - no public counter
    return int(context.sc().dagScheduler().numTotalJobs())


def settle(world: World) -> None:
    """Leave nobody's garbage or unwritten pages to the next one."""
    jvm: Any = world.spark._jvm  # noqa: SLF001
    jvm.System.gc()
    if hasattr(os, "sync"):
        os.sync()


def _round(
    world: World, chosen: Sequence[Contestant], change: data.Change, number: int
) -> list[Sample]:
    samples = []
    with data.batch(world.sessions, change):
        for contestant in chosen:
            if contestant.prepare is not None:
                contestant.prepare(world)
            settle(world)
            before = jobs_so_far(world)
            started = time.perf_counter()
            note = contestant.run(world)
            seconds = time.perf_counter() - started
            jobs = jobs_so_far(world) - before
            samples.append(Sample(contestant.name, change.keys, number, seconds, jobs, note))
    return samples


def _compare(world: World, chosen: Sequence[Contestant]) -> dict[str, int]:
    """Our view against the query, everybody else against our view (or the query without it)."""
    query = f"({data.QUERY})"
    ours = any(contestant.name == "epoch" for contestant in chosen)
    return {
        contestant.name: data.differing(
            world.session_of(contestant.table),
            contestant.table,
            data.VIEW if ours and contestant.name != "epoch" else query,
        )
        for contestant in chosen
        if contestant.table
    }
