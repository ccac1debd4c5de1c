"""Figures of the comparison: what is looked for, and how it is shown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.system import Taken


@dataclass(frozen=True)
class Outcome:
    """One system on one query with slices of `size` events.

    `sustained`: every slice was in the result before the next one would come. `differing` are the
    rows of its answer that are not the query's.
    """

    system: str
    query: str
    size: int
    taken: Taken
    sustained: bool
    differing: int = 0

    @property
    def rate(self) -> float:
        """Events per second, over the counted slices."""
        return self.size * len(self.taken.counted) / sum(self.taken.counted)

    @property
    def seconds(self) -> float:
        """Of a median slice."""
        return statistics.median(self.taken.counted)

    @property
    def startup(self) -> float:
        """Seconds of a median slice that went into starting a process."""
        return statistics.median(self.taken.startup) if self.taken.startup else 0.0


def search(sizes: Sequence[int], attempt: Callable[[int], bool], cold: bool) -> None:
    """Try sizes until the largest is known that can be sustained, with few attempts.

    The largest first, which most can, then the smallest, then halves of what is between; of a
    system that is `cold` at every slice the smallest first, because it may not manage any.
    """
    low, high = 0, len(ordered := sorted(sizes)) - 1
    for end in (low, high) if cold else (high, low):
        if attempt(ordered[end]) == (end == high) or low == high:
            return
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if attempt(ordered[middle]) else (low, middle)


def best(outcomes: Iterable[Outcome], system: str, query: str) -> Outcome | None:
    """The largest that was sustained, or else the smallest that was tried; None without any."""
    tried = [one for one in outcomes if (one.system, one.query) == (system, query)]
    sustained = [one for one in tried if one.sustained]
    if sustained:
        return max(sustained, key=lambda one: one.size)
    return min(tried, key=lambda one: one.size, default=None)


def show(
    console: Console,
    outcomes: Sequence[Outcome],
    systems: dict[str, tuple[str, dict[str, str]]],
    wanted: Sequence[str],
    limit: float,
) -> None:
    """A row for each query and system; `systems` are labels, and what they cannot, by name."""
    console.print()
    for name, (label, _) in systems.items():
        console.print(f"{name}: {label}", highlight=False)
    table = Table(title=f"Nexmark at a freshness of {limit:g} s", title_justify="left")
    table.add_column("query", no_wrap=True)
    table.add_column("system", no_wrap=True)
    for heading in ("events/s", "slice", "seconds", "start-up"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("rows", no_wrap=True)
    table.add_column("how")
    for query in wanted:
        for position, name in enumerate(systems):
            found = best(outcomes, name, query)
            cells = ["-"] * 6 if found is None else _cells(found)
            table.add_row(query, name, *cells, end_section=position == len(systems) - 1)
    console.print(table)
    console.print(f"over: even the smallest slices that were tried took more than {limit:g} s")
    for name, (_, cannot) in systems.items():
        for query in (query for query in wanted if query in cannot):
            console.print(f"{name}, {query}: cannot: {cannot[query]}", highlight=False)


def _cells(found: Outcome) -> list[str]:
    return [
        f"{found.rate:,.0f}" if found.sustained else "[red]over[/red]",
        f"{found.size:,}",
        f"{found.seconds:.2f}",
        f"{found.startup:.2f}" if found.taken.startup else "-",
        f"[red]{found.differing:,} differ[/red]" if found.differing else "equal",
        found.taken.mode,
    ]


def as_json(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Everything that was measured."""
    return [
        {**asdict(one), "rate": one.rate, "median": one.seconds, "startup": one.startup}
        for one in outcomes
    ]
