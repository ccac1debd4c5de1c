"""Many seeds, their tally, and how a failing one is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.simulator.sim_runtime import substituted
from tests.simulator.sim_world import PLACES, Outcome, simulate

CHUNK = 500
ENOUGH = 10_000
"""Seeds that meet every fault at every step."""

SHOWN = 1
"""Failing seeds that are told in full."""


@dataclass
class Tally:
    """What many seeds came to; `met` counts faults by kind and place, `trace` is the last one's."""

    seeds: int = 0
    points: int = 0
    barriers: int = 0
    met: Counter[str] = field(default_factory=Counter)
    failed: list[Outcome] = field(default_factory=list)
    trace: tuple[str, ...] = ()

    def add(self, outcome: Outcome) -> None:
        self.trace = outcome.trace
        self.seeds += 1
        self.points += outcome.points
        self.barriers += outcome.barriers
        self.met.update(outcome.faults)
        if outcome.broken:
            self.failed.append(outcome)

    def merge(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.points += other.points
        self.barriers += other.barriers
        self.met.update(other.met)
        self.failed += other.failed
        self.trace = other.trace

    def unmet(self) -> list[str]:
        """The faults that no seed has met, of those that every durable step is to meet."""
        kinds = (("crash", "before"), ("crash", "after"), ("zombie", "after"))
        every = [f"{kind} {moment} {step}" for step in PLACES for kind, moment in kinds]
        return [fault for fault in every if not self.met[fault]]

    def __str__(self) -> str:
        kinds: Counter[str] = Counter()
        for place, count in self.met.items():
            kinds[place.partition(" ")[0]] += count
        faults = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        return (
            f"{self.seeds:,} seeds, {self.barriers:,} barriers, {self.points:,} points; "
            f"faults met: {faults}, at {len(self.met)} different points; "
            f"{len(self.failed)} seeds failed"
        )


def campaign(seeds: Iterable[int]) -> Tally:
    """Run seeds in this process."""
    tally = Tally()
    with substituted():
        for seed in seeds:
            tally.add(simulate(seed))
    return tally


def campaigns(first: int, count: int, jobs: int) -> Iterable[Tally]:
    """The tallies of chunks of seeds, side by side in `jobs` processes."""
    chunks = [
        range(at, min(at + CHUNK, first + count)) for at in range(first, first + count, CHUNK)
    ]
    if jobs == 1:
        yield from map(campaign, chunks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(campaign, chunks)


def told(outcome: Outcome) -> str:
    """A failing seed for a person: what broke, how it came to that, and how to see it again."""
    return "\n".join(
        [
            *outcome.trace,
            "",
            f"seed {outcome.seed} broke",
            *(f"  {text}" for text in outcome.broken),
            f"again: make simulate SEED={outcome.seed} SEEDS=1",
        ]
    )
