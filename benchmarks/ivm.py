"""`make bench-ivm`: TPC-H as materialized views: an epoch of changes against the whole query.

python -m benchmarks.ivm --scale 10 --folder target/ivm     (docs/benchmarks.md)

The change is one pair of refresh functions: 0.1 % of the orders come, 0.1 % go, with their lines
(`--orders`: so many, at any scale).
`--changes`: those with the highest keys (newest), any of them (scattered), both written by others;
or any of them, by streaming tables with keys (streams), whose own time is not counted: what they
read before the view begins, and their upkeep after the barrier is published. With
`--keys` the keys of TPC-H are declared (docs/keys.md).
Each query has its turn: its view is made, the changes of the rounds are brought in one after the
other by `Engine.advance()`, first of one kind, then of the next, and then the query itself fills a
table, with which the view is compared; with `--duckdb` it does so in DuckDB too, over the files
that the tables were loaded from.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console

from benchmarks import data, measure, report
from benchmarks.data import World
from benchmarks.progress import Progress
from benchmarks.tpch import data as tpch
from benchmarks.tpch import queries
from benchmarks.tpch.changes import BUCKETS, LAST_ORDER, ORDERS, Refresh
from benchmarks.tpch.figures import Figure, means, show, stored_bytes
from benchmarks.tpch.keys import declared_keys
from benchmarks.tpch.streams import EPOCHS, Streams
from benchmarks.tpch.timeline import Say, Timeline
from benchmarks.view import IDLE_LOAD
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.definition.stored_part import State, state_of

ROUNDS = 5
"""Epochs of each kind that the tables are made for."""
CHANGES = ("newest", "scattered", "streams")
VIEW, FULL = "lake.ivm.view", "lake.ivm.full"


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
        files = functools.partial(tpch.generate, given.folder.resolve(), given.scale)
        duck = Duck(files()) if given.duckdb else None
        figures: list[Figure] = []
        facts["bytes"] = {}
        for tables in _tables(world, files, given, say):
            base = sum(_bytes(world, f"{tables.schema}.{table}") for table in tpch.TABLES)
            measured = list(_measure(world, tables, given, say, duck))
            facts["bytes"][tables.schema] = {"tables": base, "stored": stored_bytes(measured)}
            figures += measured
        facts["peak_memory_gib"] = report.peak_memory_gib(world.spark)
    finally:
        world.close()
    facts["seconds"] = say.seconds
    for kind in given.changes:
        share = f"{given.orders:,}" if given.orders else "0.1 %"
        title = f"TPC-H, scale {given.scale:g}, {share} of the orders come and go: {kind}"
        show(console, [figure for figure in figures if figure.changes == kind], title)
    for schema, sizes in facts["bytes"].items():
        share = sizes["stored"] / sizes["tables"]
        console.print(f"{schema}: {sizes['stored']:,} bytes are stored, {share:.0%} of the tables")
    _write(given, figures, facts)
    console.print(f"\n{facts['seconds']} seconds in all; everything measured is in {given.json}")
    return 1 if any(figure.differing for figure in figures) else 0


def _tables(
    world: World, files: Callable[[], Path], given: argparse.Namespace, say: Say
) -> Iterator[Timeline | Streams]:
    """The tables, loaded, for the kinds of changes that are asked for."""
    buckets = round(ORDERS * given.scale / given.orders) if given.orders else BUCKETS
    name = f"tpch_{given.scale:g}_{given.seed}".replace(".", "_")
    name += f"_of_{buckets}" if buckets != BUCKETS else ""
    if set(given.changes) - {"streams"}:
        last = int(LAST_ORDER * given.scale)
        newest = Refresh(ROUNDS, seed=given.seed, last=last, buckets=buckets)
        others = last * (buckets - 2 * ROUNDS) // buckets
        scattered = Refresh(ROUNDS, seed=given.seed, upto=others, buckets=buckets)
        refreshes = {"newest": newest, "scattered": scattered}
        timeline = Timeline(world.spark, name, refreshes)
        timeline.prepare(files, say)
        yield timeline
    if "streams" in given.changes:
        name = f"{name}_streams"
        refresh = Refresh(EPOCHS, seed=given.seed, buckets=buckets)
        streams = Streams(world.engine, name, given.folder.resolve() / name, files(), refresh)
        streams.prepare(say)
        yield streams


def _measure(
    world: World,
    tables: Timeline | Streams,
    given: argparse.Namespace,
    say: Say,
    duck: Duck | None,
) -> Iterator[Figure]:
    world.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.ivm")
    place = queries.Place(tables.schema, given.scale)
    for name in given.queries:
        _drop(world)
        try:
            figures = _figures(world, tables, name, queries.text(name, place), given)
        finally:
            _drop(world)
        seconds = None
        if duck is not None:
            text = queries.text(name, queries.Place(duck.SCHEMA, given.scale))
            seconds = duck.seconds(text, given.fulls)
        for figure in figures:
            verdict = f"{figure.differing} ROWS DIFFER" if figure.differing else "equal"
            took = f"{figure.epoch:.2f} s of {figure.full:.2f} s"
            say(f"{name}, {figure.changes}: {figure.mode}, {took}, {verdict}")
            yield replace(figure, duckdb=seconds)


def _figures(
    world: World, tables: Timeline | Streams, name: str, sql: str, given: argparse.Namespace
) -> list[Figure]:
    """One query's turn: the view, the epochs, the full refreshes, the comparison."""
    tables.begin()
    keys = declared_keys(tables.schema) if given.keys else ()
    before = world.engine.queries.views()
    created = world.engine.create_materialized_view(VIEW, sql, state=given.state, keys=keys)
    states = world.engine.queries.views() - before - {VIEW}
    stored = {name: _bytes(world, name) for name in sorted(states)}
    figures = []
    # In the order of the tables: no state of theirs can follow a later one.
    for kind in (kind for kind in tables.kinds if kind in given.changes):
        epochs, reports = [], []
        for number in range(1, given.rounds + 1):
            tables.bring(kind, number)
            measure.settle(world)
            started = time.time()
            ran = world.engine.advance()
            ended = time.time()
            done = ran.tables
            reports.append(done[VIEW])
            if tables.fed:
                # Between the streams' own part and their upkeep.
                fed = (done[table] for table in tables.fed)
                started = max((one.started_at or 0.0) + one.seconds for one in fed)
                ended = _published(world, ran.barrier)
            epochs.append(ended - started)
        last, counted = reports[-1], reports[1:] or reports
        modes = "/".join(sorted({one.mode for one in counted}))
        changed = last.rows_inserted + last.rows_deleted
        jobs = round(statistics.median(one.jobs for one in counted))
        figures.append(
            Figure(name, kind, modes, last.reason, changed, created.seconds, tuple(epochs), jobs)
        )
    fulls = []
    for _ in range(given.fulls):
        measure.settle(world)
        started = time.perf_counter()
        world.spark.sql(
            f"CREATE OR REPLACE TABLE {FULL} USING iceberg "
            f"TBLPROPERTIES ({data.PROPERTIES}) AS {sql}"
        )
        fulls.append(time.perf_counter() - started)
    rows, differing = _compared(world)
    return [
        replace(figure, fulls=tuple(fulls), rows=rows, differing=differing, stored=stored)
        for figure in figures
    ]


def _published(world: World, barrier: int) -> float:
    """When a barrier was published (seconds since 1970)."""
    found = world.engine.store.barrier(barrier)
    assert found is not None
    assert found.ended_at is not None
    return found.ended_at


def _bytes(world: World, table: str) -> int:
    """The size of the data files of a table."""
    (row,) = world.spark.sql(f"SELECT sum(file_size_in_bytes) FROM {table}.files").collect()
    return row[0] or 0


def _compared(world: World) -> tuple[int, int]:
    """The rows of the view, and those of it or of the filled table that the other one lacks."""
    names = ", ".join(world.spark.table(FULL).columns)
    view, full = (f"SELECT {names} FROM {table}" for table in (VIEW, FULL))
    (counted,) = world.spark.sql(
        f"SELECT (SELECT count(*) FROM {VIEW}), "
        f"(SELECT count(*) FROM ({view} EXCEPT ALL {full})) + "
        f"(SELECT count(*) FROM ({full} EXCEPT ALL {view}))"
    ).collect()
    return counted[0], counted[1]


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


def _write(given: argparse.Namespace, figures: Sequence[Figure], facts: dict[str, Any]) -> None:
    body = {
        "facts": facts,
        "options": {
            "scale": given.scale,
            "rounds": given.rounds,
            "fulls": given.fulls,
            "seed": given.seed,
            "changes": given.changes,
            "orders": given.orders,
            "state": given.state,
            "keys": given.keys,
            "native": given.native,
        },
        "figures": [
            {**asdict(f), "epoch": f.epoch, "full": f.full, "ratio": f.ratio} for f in figures
        ],
        "geometric_mean": {
            kind: means([figure for figure in figures if figure.changes == kind])
            for kind in given.changes
        },
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
        "--rounds",
        type=int,
        default=4,
        help="epochs of each kind, the first is a warm-up: %(default)s",
    )
    parser.add_argument("--fulls", type=int, default=3, help="full refreshes: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the changes: %(default)s")
    what = "which orders come and go, and who writes them: %(default)s"
    parser.add_argument("--changes", type=_kinds, default="newest,scattered", help=what)
    what = "how many orders come, and how many go, in an epoch: 0.1 %% of them"
    parser.add_argument("--orders", type=int, default=0, help=what)
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
    what = "which parts of the queries are stored, a word or numbers (6,12): %(default)s"
    parser.add_argument("--state", type=_state, default="auto", help=what)
    given = parser.parse_args()
    if not 2 <= given.rounds <= ROUNDS:
        parser.error(f"--rounds: 2 to {ROUNDS}, the first is not counted")
    return given


def _names(text: str) -> list[str]:
    return _known(text, queries.names())


def _state(text: str) -> State:
    numbers = text.split(",")
    given = [int(number) for number in numbers] if all(map(str.isdigit, numbers)) else text
    try:
        return state_of(given, Place("--state"))
    except StreamSqlError as error:
        raise argparse.ArgumentTypeError(error.message) from error


def _kinds(text: str) -> list[str]:
    return _known(text, CHANGES)


def _known(text: str, known: Collection[str]) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose among {', '.join(known)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
