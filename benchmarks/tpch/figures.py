"""What `benchmarks.ivm` has measured, and how it is shown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One query and kind of changes.

    Seconds of every round; the first epoch is a warm-up and not in `epoch`. `jobs` are the Spark
    jobs of a median epoch as its report counts them, `changed` the rows that the last one wrote,
    `differing` the rows where the view is not its query in the end, `stored` the state tables that
    the view reads, with the bytes of their files.
    """

    query: str
    changes: str
    mode: str
    reason: str
    changed: int
    created: float
    epochs: tuple[float, ...]
    jobs: int
    fulls: tuple[float, ...] = ()
    rows: int = 0
    differing: int = 0
    duckdb: float | None = None
    stored: Mapping[str, int] = field(default_factory=dict)

    @property
    def epoch(self) -> float:
        return statistics.median(self.epochs[1:] or self.epochs)

    @property
    def full(self) -> float:
        return statistics.median(self.fulls)

    @property
    def ratio(self) -> float:
        return self.full / self.epoch


def stored_bytes(figures: Iterable[Figure]) -> int:
    """Of all state tables, each of which counts once however many queries read it."""
    states: dict[str, int] = {}
    for figure in figures:
        states |= figure.stored
    return sum(states.values())


def geometric_mean(figures: Iterable[Figure]) -> float | None:
    """Of the ratios; None without any."""
    ratios = [figure.ratio for figure in figures]
    return statistics.geometric_mean(ratios) if ratios else None


def means(figures: Sequence[Figure]) -> dict[str, float | None]:
    """The geometric mean of all, and of those that were not refreshed in full."""
    return {
        "all": geometric_mean(figures),
        "not full": geometric_mean(f for f in figures if "full" not in f.mode),
    }


def show(console: Console, figures: Sequence[Figure], title: str) -> None:
    """Print a table of the figures, and the geometric means."""
    table = Table(title=title, title_justify="left")
    table.add_column("query")
    table.add_column("mode")
    headings = (
        "rows",
        "changed",
        "jobs",
        "epoch s",
        "full s",
        "DuckDB s",
        "times faster",
        "result",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    for figure in figures:
        table.add_row(
            figure.query,
            figure.mode,
            f"{figure.rows:,}",
            f"{figure.changed:,}",
            str(figure.jobs),
            f"{figure.epoch:.2f}",
            f"{figure.full:.2f}",
            "" if figure.duckdb is None else f"{figure.duckdb:.2f}",
            f"{figure.ratio:.1f}",
            f"[red]{figure.differing:,} differ[/red]" if figure.differing else "equal",
        )
    console.print(table)
    for figure in figures:
        if figure.reason:
            console.print(f"{figure.query}: {figure.reason}", highlight=False)
    for which, mean in means(figures).items():
        if mean is not None:
            console.print(f"geometric mean of times faster, {which}: {mean:.2f}")
