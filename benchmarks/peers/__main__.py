"""`make bench WHAT=peers`: Nexmark in slices of ten seconds, beside Flink and other Sparks.

python -m benchmarks.peers --sizes 10000,100000,1000000     (docs/benchmarks.md)

Each system keeps one query at a time up to date over the same files. What is looked for is the
largest slice that is in the result before the next one comes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks import data, report
from benchmarks.peers import compare, outcome, queries
from benchmarks.peers.flink import Flink
from benchmarks.peers.outcome import Outcome
from benchmarks.peers.pipelines import Pipelines
from benchmarks.peers.slices import Feed
from benchmarks.peers.spark import FullRefresh, Merge, Ours
from benchmarks.peers.system import System, Task
from benchmarks.progress import Progress
from benchmarks.view import IDLE_LOAD

SYSTEMS: dict[str, type[System]] = {
    one.name: one for one in (Ours, FullRefresh, Merge, Pipelines, Flink)
}
OUTSIDE = (Flink.name, Pipelines.name)
"""Those with a Java of their own: they run before the Spark of the others is there."""

Say = Callable[[str], None]


def main() -> int:
    """Run the benchmark; 1 when a system's rows are not the query's."""
    given = _arguments()
    console = Console()
    say = Progress(console)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0
    if load > IDLE_LOAD:
        say(f"the machine is not idle (load {load:.1f}): do not publish this run")
    for size in given.sizes:
        say(f"slices of {size:,} events: making the files, unless they are there")
        _feed(given, size).make()
    shutil.rmtree(given.folder / "answers", ignore_errors=True)
    outcomes: list[Outcome] = []
    for name in OUTSIDE:
        if name in given.systems:
            system = Flink(given.folder, given.flink_state) if name == "flink" else Pipelines()
            outcomes += _play(system, given, say)
    folder = given.folder / "warehouse"
    shutil.rmtree(folder, ignore_errors=True)
    world = data.open_world(folder, with_delta="merge" in given.systems)
    try:
        facts = {**report.machine(world.spark), "load": round(load, 2)}
        for kind in (Ours, FullRefresh, Merge):
            if kind.name in given.systems:
                outcomes += _play(kind(world), given, say)
        say("comparing the rows")
        outcomes = [_compared(world, one, given) for one in outcomes]
    finally:
        world.close()
    facts["seconds"] = say.seconds
    facts["flink"] = Flink.label
    shown = {n: (s.label, s.cannot) for n, s in SYSTEMS.items() if n in given.systems}
    outcome.show(console, outcomes, shown, given.queries, given.freshness)
    _write(given, outcomes, facts)
    console.print(f"\n{facts['seconds']} seconds in all; everything measured is in {given.json}")
    return 1 if any(one.differing for one in outcomes) else 0


def _play(system: System, given: argparse.Namespace, say: Say) -> list[Outcome]:
    """One system, query after query, each with the sizes that are needed to find its largest."""
    found: list[Outcome] = []

    def attempt(query: str, size: int) -> bool:
        task = Task(
            query,
            _feed(given, size),
            given.freshness,
            given.folder / "work" / f"{system.name}_{query}_{size}",
            _answer(given, system.name, query, size),
        )
        taken = system.take(task)
        late = [seconds for seconds in taken.counted if seconds > given.freshness]
        sustained = taken.last == given.slices and not late
        found.append(Outcome(system.name, query, size, taken, sustained))
        shown = " ".join(f"{seconds:.2f}" for seconds in taken.seconds)
        say(f"{system.name}, {query}, {size:,} events: history {taken.history:.1f}, {shown}")
        return sustained

    try:
        for query in given.queries:
            if query not in system.cannot:
                outcome.search(given.sizes, partial(attempt, query), system.cold)
    finally:
        system.close()
    return found


def _compared(world: data.World, one: Outcome, given: argparse.Namespace) -> Outcome:
    answer = _answer(given, one.system, one.query, one.size)
    known = given.folder / "answers" / "expected"
    feed = _feed(given, one.size)
    rows = compare.differing(world.spark, one.query, feed, one.taken.last, answer, known)
    return replace(one, differing=rows)


def _feed(given: argparse.Namespace, size: int) -> Feed:
    return Feed(given.folder, given.history, size, given.slices, given.seed)


def _answer(given: argparse.Namespace, system: str, query: str, size: int) -> Path:
    folder: Path = given.folder / "answers" / system / f"{query}_{size}"
    return folder


def _write(given: argparse.Namespace, outcomes: list[Outcome], facts: dict[str, object]) -> None:
    body = {
        "facts": facts,
        "options": {
            name: getattr(given, name)
            for name in ("history", "sizes", "slices", "freshness", "seed", "flink_state")
        },
        "cannot": {name: system.cannot for name, system in SYSTEMS.items() if system.cannot},
        "outcomes": outcome.as_json(outcomes),
    }
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.peers", description=(__doc__ or "").split("\n")[0]
    )
    option = parser.add_argument
    option(
        "--sizes", type=_sizes, default="10000,100000,1000000", help="events a slice: %(default)s"
    )
    option("--history", type=int, default=1_000_000, help="events before them: %(default)s")
    option(
        "--slices", type=int, default=3, help="of each size, the first is a warm-up: %(default)s"
    )
    option(
        "--freshness", type=float, default=10, help="seconds that a slice may take: %(default)s"
    )
    option("--seed", type=int, default=1, help="of the events: %(default)s")
    option(
        "--queries",
        type=lambda text: _chosen(text, queries.NAMES),
        default=",".join(queries.DEFAULT),
        help=f"of {', '.join(queries.NAMES)}: %(default)s",
    )
    option(
        "--systems",
        type=lambda text: _chosen(text, tuple(SYSTEMS)),
        default=",".join(SYSTEMS),
        help="%(default)s",
    )
    option(
        "--flink-state",
        choices=("hashmap", "rocksdb"),
        default="hashmap",
        help="where Flink keeps its state: %(default)s",
    )
    option(
        "--folder",
        type=lambda text: Path(text).resolve(),
        default="target/peers",
        help="of the events and of Flink, which stay for the next run: %(default)s",
    )
    option("--json", type=Path, default=Path("target/peers.json"), help="result: %(default)s")
    given = parser.parse_args()
    if given.slices < 2:
        parser.error("--slices: at least 2, the first is not counted")
    return given


def _sizes(text: str) -> list[int]:
    return [int(part.replace("_", "")) for part in text.split(",")]


def _chosen(text: str, known: tuple[str, ...]) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose among {', '.join(known)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
