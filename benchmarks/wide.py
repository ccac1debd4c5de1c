"""A wide table: a small change of one of many branches, and what reusing the sink saves.

python -m benchmarks.wide --keys 1000000 --branches 30 --columns 300     (docs/benchmarks.md)

First the big table: 1,000 rows of one branch change, scattered over all keys or in the newest 1 %
of them, and the epoch takes turns with the unit, a plain append of 1,000 rows of the same width to
a copy of the table. Then small tables of 1, 5 and 20 branches, all of which change, with and
without `reuse_sink`. The first round of each warms up.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.data import World
from benchmarks.measure import jobs_so_far

WIDE = "lake.bench.wide"
COPY = "lake.bench.plain"
CHANGED = 1000
"""Rows of one change."""
SMALL = 100
"""Rows of a change where all branches change."""
APPENDS = 6
"""The target for an epoch, in plain appends."""


def main() -> int:
    """1 when a table is not what its branches say; a missed target is a figure, not an error."""
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="streamsql-wide-") as folder:
        world = data.open_world(Path(folder), with_delta=False)
        try:
            world.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
            differing = 0 if given.only == "reuse" else _one_of_many(world, given)
            differing += 0 if given.only == "change" else _reuse(world, given)
        finally:
            world.close()
    print(f"rows that differ from what the branches say: {differing}")
    return 1 if differing else 0


# -- one branch of many ---------------------------------------------------------------------------


def _one_of_many(world: World, given: argparse.Namespace) -> int:
    width = given.columns // given.branches
    _sources(world, given.branches, width, given.keys)
    seconds, _ = _timed(world, lambda: _define(world, given.branches, width))
    rows = world.spark.table(WIDE).count()
    print(
        f"{given.branches} branches, {given.branches * width} columns, {rows:,} keys: "
        f"filled in {seconds:.0f} s",
        flush=True,
    )
    properties = f"TBLPROPERTIES ({data.PROPERTIES})"
    some = f"SELECT * FROM {WIDE} WHERE k < {CHANGED}"
    world.spark.sql(f"CREATE TABLE {COPY} {properties} AS {some}")
    rows = world.spark.table(COPY)
    # Not a cache of the copy, which Spark would fill anew with every row that is appended.
    frame = world.spark.createDataFrame(rows.collect(), rows.schema).coalesce(1)
    frame.createOrReplaceTempView("some_rows")
    for keys in data.KEYS:
        epochs, units, jobs = [], [], 0
        for number in range(given.rounds + 1):
            branch = number % given.branches
            _change(world, branch, width, given.keys, number, keys)
            before = _snapshots(world)
            seconds, jobs = _timed(world, lambda: _advance(world))
            commits = _snapshots(world) - before
            unit, _ = _timed(
                world, lambda: world.spark.sql(f"INSERT INTO {COPY} SELECT * FROM some_rows")
            )
            if number:
                epochs.append(seconds)
                units.append(unit)
        epoch, unit = statistics.median(epochs), statistics.median(units)
        verdict = "met" if epoch <= APPENDS * unit else "missed"
        print(
            f"1,000 rows of one branch, {keys}: {epoch:.2f} s, {jobs} Spark jobs, "
            f"{commits} commits; a plain append {unit:.2f} s: {epoch / unit:.1f} appends "
            f"(target {APPENDS}: {verdict}); rows written {_written(world)}",
            flush=True,
        )
    return len(world.engine.verify(WIDE))


def _sources(world: World, branches: int, width: int, keys: int) -> None:
    for number in range(branches):
        values = ", ".join(_value(number, column, 0) for column in range(width))
        world.spark.sql(
            f"CREATE TABLE {_source(number)} TBLPROPERTIES ({data.PROPERTIES}) AS "
            f"SELECT id AS k, {values} FROM range(0, {keys}, 1, 2)"
        )


def _value(branch: int, column: int, salt: int) -> str:
    """A third of the columns are texts, a third decimals, and one value in ten is NULL."""
    drawn = f"pmod(xxhash64(id, {branch}, {column}, {salt}), 1000)"
    kinds = (drawn, f"CAST({drawn} AS DECIMAL(12,2))", f"concat('v', {drawn})")
    return f"IF({drawn} < 100, NULL, {kinds[column % 3]}) AS {_column(branch, column)}"


def _change(
    world: World,
    branch: int,
    width: int,
    keys: int,
    number: int,
    where: str = "scattered",
    size: int = CHANGED,
) -> None:
    """Rows of a branch are updated."""
    step = max(1, keys // size)
    first = number % step if where == "scattered" else keys - size
    step = step if where == "scattered" else 1
    names = [_column(branch, column) for column in range(width)]
    salt = number + 1 + 100 * (where == "recent")
    values = ", ".join(_value(branch, column, salt) for column in range(width))
    sets = ", ".join(f"t.{name} = s.{name}" for name in names)
    world.spark.sql(
        f"MERGE INTO {_source(branch)} t USING (SELECT id AS k, {values} FROM "
        f"(SELECT {first} + {step} * id AS id FROM range(0, {size}, 1, 1))) s "
        f"ON t.k = s.k WHEN MATCHED THEN UPDATE SET {sets}"
    )


# -- with and without reuse -----------------------------------------------------------------------


def _reuse(world: World, given: argparse.Namespace) -> int:
    differing = 0
    print("branches | sink reused | commits | Spark jobs | seconds")
    for branches in (1, 5, 20):
        for reuse in (True, False):
            _drop(world)
            _sources(world, branches, 3, given.small)
            _define(world, branches, 3, reuse=reuse)
            seconds, jobs, commits = [], 0, 0
            for number in range(given.rounds + 1):
                for branch in range(branches):
                    _change(world, branch, 3, given.small, number, size=SMALL)
                before = _snapshots(world)
                took, jobs = _timed(world, lambda: _advance(world))
                commits = _snapshots(world) - before
                if number:
                    seconds.append(took)
            told = "yes" if reuse else "no"
            print(
                f"{branches} | {told} | {commits} | {jobs} | {statistics.median(seconds):.2f}",
                flush=True,
            )
            differing += len(world.engine.verify(WIDE))
    return differing


def _define(world: World, branches: int, width: int, *, reuse: bool = True) -> None:
    written = [[_column(branch, column) for column in range(width)] for branch in range(branches)]
    world.engine.create_partial_update(
        WIDE,
        key="k",
        branches=[
            (f"SELECT k, {', '.join(names)} FROM {_source(branch)}", names, f"b{branch}")
            for branch, names in enumerate(written)
        ],
        reuse_sink=reuse,
        refresh_mode="incremental",
    )


def _advance(world: World) -> None:
    report = world.engine.advance().tables[WIDE]
    if report.mode != "incremental":
        raise SystemExit(f"{report.mode}, not incremental: {report.reason}")


def _drop(world: World) -> None:
    if world.engine.queries.knows(WIDE):
        world.engine.drop(WIDE)
    for number in range(100):
        world.spark.sql(f"DROP TABLE IF EXISTS {_source(number)}")


def _source(branch: int) -> str:
    return f"lake.bench.source_{branch:02d}"


def _column(branch: int, column: int) -> str:
    return f"c{branch:02d}_{column:02d}"


def _timed(world: World, run: Callable[[], Any]) -> tuple[float, int]:
    """Seconds of a call, and the Spark jobs that it started."""
    before, started = jobs_so_far(world), time.perf_counter()
    run()
    return time.perf_counter() - started, jobs_so_far(world) - before


def _snapshots(world: World) -> int:
    return int(world.spark.sql(f"SELECT count(*) FROM {WIDE}.snapshots").collect()[0][0])


def _written(world: World) -> str:
    """Rows that the last commit added and took away."""
    row = world.spark.sql(
        f"SELECT summary FROM {WIDE}.snapshots ORDER BY committed_at DESC LIMIT 1"
    ).collect()[0]

    def count(what: str) -> int:
        return int(row[0].get(what, "0"))

    # A deletion vector that is written anew tells of all its rows again.
    gone = count("added-position-deletes") - count("removed-position-deletes")
    return f"{count('added-records'):,} added, {gone:,} taken away"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.wide", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--keys", type=int, default=1_000_000, help="%(default)s")
    parser.add_argument("--branches", type=int, default=30, help="%(default)s")
    parser.add_argument("--columns", type=int, default=300, help="of all branches: %(default)s")
    parser.add_argument(
        "--small", type=int, default=100_000, help="keys beside reuse: %(default)s"
    )
    parser.add_argument("--rounds", type=int, default=5, help="changes: %(default)s")
    parser.add_argument("--only", choices=("change", "reuse"), help="one of the two parts")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
