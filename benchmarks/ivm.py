"""`make bench-ivm`: TPC-H as materialized views: an epoch of changes against the whole query.

python -m benchmarks.ivm --scale 10 --folder target/ivm     (docs/benchmarks.md)

The change is one pair of refresh functions: 0.1 % of the orders come, 0.1 % go, with their lines:
any of them, or with `--newest` those with the highest keys. With `--keys` the keys of TPC-H are
declared (docs/keys.md).
Each query has its turn: its view is made, the changes of the rounds are brought in one after the
other by `Engine.advance()`, the view is compared with its query, and then the query itself fills
a table; with `--duckdb` it does so in DuckDB too, over the files that the tables were loaded from.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

from benchmarks import data, measure, report
from benchmarks.data import World
from benchmarks.progress import Progress
from benchmarks.tpch import data as tpch
from benchmarks.tpch import queries
from benchmarks.tpch.changes import LAST_ORDER, Refresh
from benchmarks.tpch.keys import declared_keys
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
    duckdb: float | None

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
    warehouse = (given.folder / "warehouse").resolve()
    world = data.open_world(warehouse, with_delta=False, native=given.native)
    try:
        facts = report.machine(world.spark)
        if (facts["load"] or 0) > IDLE_LOAD:
            say(f"the machine is not idle (load {facts['load']}): do not publish this run")
        which = "newest" if given.newest else given.seed
        name = f"tpch_{given.scale:g}_{which}".replace(".", "_")
        last = int(LAST_ORDER * given.scale) if given.newest else 0
        refresh = Refresh(MOST_ROUNDS, seed=given.seed, last=last)
        timeline = Timeline(world.spark, name, refresh)
        files = functools.partial(tpch.generate, given.folder.resolve(), given.scale)
        timeline.prepare(files, given.rounds, say)
        duck = Duck(files()) if given.duckdb else None
        figures = _measure(world, timeline, given, say, duck)
        facts["peak_memory_gib"] = report.peak_memory_gib(world.spark)
    finally:
        world.close()
    facts["seconds"] = say.seconds
    orders = "newest orders" if given.newest else "orders"
    _show(console, figures, f"TPC-H, scale {given.scale:g}: 0.1 % of the {orders} come and go")
    _write(given, figures, facts)
    console.print(f"\n{facts['seconds']} seconds in all; everything measured is in {given.json}")
    return 1 if any(figure.differing for figure in figures) else 0


def _measure(
    world: World, timeline: Timeline, given: argparse.Namespace, say: Say, duck: Duck | None
) -> list[Figure]:
    world.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.ivm")
    place = queries.Place(timeline.schema, given.scale)
    figures = []
    for name in given.queries:
        _drop(world)
        try:
            figure = _figure(world, timeline, name, queries.text(name, place), given)
            if duck is not None:
                text = queries.text(name, queries.Place(duck.SCHEMA, given.scale))
                figure = replace(figure, duckdb=duck.seconds(text, given.fulls))
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
    keys = declared_keys(timeline.schema) if given.keys else ()
    created = world.engine.create_materialized_view(VIEW, sql, state=given.state, keys=keys)
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
        None,
    )


class Duck:
    """DuckDB over the generated files."""

    SCHEMA = "tpch"

    def __init__(self, files: Path) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"CREATE SCHEMA {self.SCHEMA}")
        for table in tpch.TABLES:
            self._connection.execute(
                f"CREATE VIEW {self.SCHEMA}.{table} AS FROM '{files / table}.parquet'"
            )

    def seconds(self, sql: str, rounds: int) -> float:
        """The median of filling a table."""
        took = []
        for _ in range(rounds):
            started = time.perf_counter()
            self._connection.execute(f"CREATE OR REPLACE TABLE answer AS {sql}")
            took.append(time.perf_counter() - started)
        return statistics.median(took)


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
            "newest": given.newest,
            "state": given.state,
            "keys": given.keys,
            "native": given.native,
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
    what = "the newest orders come and go, not any"
    parser.add_argument("--newest", action="store_true", help=what)
    parser.add_argument("--keys", action="store_true", help="declare the keys of TPC-H")
    what = "Spark runs native code: `native: true` of a profile"
    parser.add_argument("--native", action="store_true", help=what)
    what = "also fill a table by DuckDB, over the files that the tables were loaded from"
    parser.add_argument("--duckdb", action="store_true", help=what)
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
