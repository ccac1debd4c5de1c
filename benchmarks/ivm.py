"""`make bench-ivm`: TPC-H as materialized views: an epoch of changes against the whole query.

python -m benchmarks.ivm --scale 10 --folder target/ivm     (docs/benchmarks.md)

The change is one pair of refresh functions: 0.1 % of the orders come, 0.1 % go, with their lines.
Each query has its turn: its view is made, the changes of the rounds are brought in one after the
other by `Engine.advance()`, the view is compared with its query, and then the query itself fills
a table.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import data, measure, report
from benchmarks.data import World
from benchmarks.progress import Progress
from benchmarks.tpch import data as tpch
from benchmarks.tpch import queries
from benchmarks.tpch.changes import Refresh
from benchmarks.tpch.timeline import Say, Timeline
from benchmarks.view import IDLE_LOAD
from dbt_streamsql.plan.definition.stored_part import STATES

MOST_ROUNDS = 10
VIEW, FULL = "lake.ivm.view", "lake.ivm.full"


@dataclass(frozen=True)
class Figure:
    """One query. Seconds of every round; the first epoch is a warm-up and not in `epoch`.

    `jobs` are the Spark jobs of a median epoch as its report counts them, `differing` the rows
    where the view is not its query in the end, `changed` those that the last epoch wrote.
    """

    query: str
    mode: str
    reason: str
    rows: int
    changed: int
    created: float
    epochs: tuple[float, ...]
    fulls: tuple[float, ...]
    jobs: int
    differing: int

    @property
    def epoch(self) -> float:
        return statistics.median(self.epochs[1:] or self.epochs)

    @property
    def full(self) -> float:
        return statistics.median(self.fulls)

    @property
    def ratio(self) -> float:
        return self.full / self.epoch


def main() -> int:
    """1 when a view is not its query."""
    given = _arguments()
    console = Console()
    say = Progress(console)
    given.folder.mkdir(parents=True, exist_ok=True)
    world = data.open_world((given.folder / "warehouse").resolve(), with_delta=False)
    try:
        facts = report.machine(world.spark)
        if (facts["load"] or 0) > IDLE_LOAD:
            say(f"the machine is not idle (load {facts['load']}): do not publish this run")
        name = f"tpch_{given.scale:g}_{given.seed}".replace(".", "_")
        timeline = Timeline(world.spark, name, Refresh(MOST_ROUNDS, seed=given.seed))
        files = functools.partial(tpch.generate, given.folder.resolve(), given.scale)
        timeline.prepare(files, given.rounds, say)
        figures = _measure(world, timeline, given, say)
        facts["peak_memory_gib"] = report.peak_memory_gib(world.spark)
    finally:
        world.close()
    facts["seconds"] = say.seconds
    _show(console, figures, f"TPC-H, scale {given.scale:g}: 0.1 % of the orders come and go")
    _write(given, figures, facts)
    console.print(f"\n{facts['seconds']} seconds in all; everything measured is in {given.json}")
    return 1 if any(figure.differing for figure in figures) else 0


def _measure(
    world: World, timeline: Timeline, given: argparse.Namespace, say: Say
) -> list[Figure]:
    world.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.ivm")
    place = queries.Place(timeline.schema, given.scale)
    figures = []
    for name in given.queries:
        _drop(world)
        try:
            figure = _figure(world, timeline, name, queries.text(name, place), given)
        finally:
            _drop(world)
        figures.append(figure)
        verdict = f"{figure.differing} ROWS DIFFER" if figure.differing else "equal"
        say(f"{name}: {figure.mode}, {figure.epoch:.2f} s of {figure.full:.2f} s, {verdict}")
    return figures


def _figure(
    world: World, timeline: Timeline, name: str, sql: str, given: argparse.Namespace
) -> Figure:
    """One query's turn: the view, the epochs, the comparison, the full refreshes."""
    timeline.go(0)
    created = world.engine.create_materialized_view(VIEW, sql, state=given.state)
    epochs, reports = [], []
    for number in range(1, given.rounds + 1):
        timeline.go(number)
        measure.settle(world)
        started = time.perf_counter()
        reports.append(world.engine.advance().tables[VIEW])
        epochs.append(time.perf_counter() - started)
    differing = len(world.engine.verify(VIEW))
    rows = world.engine.sql(f"SELECT count(*) FROM {VIEW}").collect()[0][0]
    fulls = []
    for _ in range(given.fulls):
        measure.settle(world)
        started = time.perf_counter()
        world.spark.sql(
            f"CREATE OR REPLACE TABLE {FULL} USING iceberg "
            f"TBLPROPERTIES ({data.PROPERTIES}) AS {sql}"
        )
        fulls.append(time.perf_counter() - started)
    last = reports[-1]
    modes = sorted({one.mode for one in reports[1:] or reports})
    return Figure(
        name,
        "/".join(modes),
        last.reason,
        rows,
        last.rows_inserted + last.rows_deleted,
        created.seconds,
        tuple(epochs),
        tuple(fulls),
        round(statistics.median(one.jobs for one in reports[1:] or reports)),
        differing,
    )


def _drop(world: World) -> None:
    if world.engine.queries.knows(VIEW):
        world.engine.drop(VIEW)
    world.spark.sql(f"DROP TABLE IF EXISTS {FULL} PURGE")


def geometric_mean(figures: Iterable[Figure]) -> float | None:
    """Of the ratios; None without any."""
    ratios = [figure.ratio for figure in figures]
    return statistics.geometric_mean(ratios) if ratios else None


def _means(figures: Sequence[Figure]) -> dict[str, float | None]:
    return {
        "all": geometric_mean(figures),
        "not full": geometric_mean(f for f in figures if "full" not in f.mode),
    }


def _show(console: Console, figures: Sequence[Figure], title: str) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("query")
    table.add_column("mode")
    headings = ("rows", "changed", "jobs", "epoch s", "full s", "times faster", "result")
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
            f"{figure.ratio:.1f}",
            f"[red]{figure.differing:,} differ[/red]" if figure.differing else "equal",
        )
    console.print(table)
    for figure in figures:
        if figure.reason:
            console.print(f"{figure.query}: {figure.reason}", highlight=False)
    for which, mean in _means(figures).items():
        if mean is not None:
            console.print(f"geometric mean of times faster, {which}: {mean:.2f}")


def _write(given: argparse.Namespace, figures: Sequence[Figure], facts: dict[str, Any]) -> None:
    body = {
        "facts": facts,
        "options": {
            "scale": given.scale,
            "rounds": given.rounds,
            "fulls": given.fulls,
            "seed": given.seed,
        },
        "figures": [
            {**asdict(f), "epoch": f.epoch, "full": f.full, "ratio": f.ratio} for f in figures
        ],
        "geometric_mean": _means(figures),
    }
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.ivm", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--scale", type=float, default=10, help="scale factor: %(default)s")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("target/ivm"),
        help="of the tables, which stay for the next run: %(default)s",
    )
    parser.add_argument(
        "--rounds", type=int, default=4, help="epochs, the first is a warm-up: %(default)s"
    )
    parser.add_argument("--fulls", type=int, default=3, help="full refreshes: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the changes: %(default)s")
    parser.add_argument(
        "--queries",
        type=_names,
        default=",".join(queries.NAMES),
        help="q03_all is q03 without its LIMIT: %(default)s",
    )
    parser.add_argument(
        "--json", type=Path, default=Path("target/ivm.json"), help="result: %(default)s"
    )
    what = "which parts of the queries are stored: %(default)s"
    parser.add_argument("--state", choices=STATES, default="auto", help=what)
    given = parser.parse_args()
    if not 2 <= given.rounds <= MOST_ROUNDS:
        parser.error(f"--rounds: 2 to {MOST_ROUNDS}, the first is not counted")
    return given


def _names(text: str) -> list[str]:
    names, known = text.split(","), queries.names()
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose among {', '.join(known)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
