"""A view is maintained for hundreds of epochs: what reading it costs then, and the last epochs.

python -m benchmarks.wear --rows 1000000 --epochs 300     (docs/benchmarks.md)

Every epoch brings rows of 1,000 scattered keys. In the end the view is read in turns with a fresh
copy of its rows, and compared with its query. With `--state` the groups of the keys are a state
table, and the view counts them by their size; the state table is what is read.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import contestants, data, report
from benchmarks.data import Change, World
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import metadata

FRESH = "lake.bench.fresh"
SLOWER = 1.3
"""The target: reading the view takes at most this many times as long as reading the copy."""

_READS = 15
_AROUND = 10
"""Epochs whose median is shown."""


def main() -> int:
    """1 when the view is not its query; a missed target is a figure, not an error."""
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="streamsql-wear-") as folder:
        world = data.open_world(Path(folder), with_delta=False)
        try:
            data.create_base(world.spark, given.rows, given.seed)
            table = _with_state(world) if given.state else data.VIEW
            if not given.state:
                data.create_view(world.engine)
            seconds = _epochs(world, given, table)
            worn, fresh = _read(world, table)
            differing = len(world.engine.verify(data.VIEW))
            memory = report.peak_memory_gib(world.spark)
        finally:
            world.close()
    early = statistics.median(seconds[_AROUND // 2 : _AROUND // 2 + _AROUND])
    late = statistics.median(seconds[-_AROUND:])
    verdict = "met" if worn / fresh <= SLOWER else "missed"
    print(f"epochs around the {_AROUND}th {early:.2f} s, the last ones {late:.2f} s")
    print(
        f"the slowest after the {_AROUND}th, compaction included: {max(seconds[_AROUND:]):.2f} s"
    )
    print(f"reading {table} {worn:.3f} s, a fresh copy {fresh:.3f} s")
    print(f"worn / fresh: {worn / fresh:.2f} (target {SLOWER}: {verdict})")
    print(f"rows that differ from the query: {differing}; peak memory {memory} GiB")
    return 1 if differing else 0


def _with_state(world: World) -> str:
    """A view over the groups of all keys; returns the table that stores these."""
    groups = f"SELECT n, count(*) AS keys, sum(total) AS total FROM ({data.QUERY}) GROUP BY n"
    before = world.engine.queries.views()
    world.engine.create_materialized_view(data.VIEW, groups, state="all")
    (table,) = world.engine.queries.views() - before - {data.VIEW}
    return table


def _epochs(world: World, given: argparse.Namespace, table: str) -> list[float]:
    seconds = []
    for number in range(given.epochs):
        with data.batch([world.spark], Change("scattered", given.rows, 1000, number, given.seed)):
            contestants.append(world)
            started = time.perf_counter()
            contestants.epoch(world)
            seconds.append(time.perf_counter() - started)
        if (number + 1) % 25 == 0:
            last = statistics.median(seconds[-25:])
            print(f"{number + 1} epochs: {last:.2f} s, {_state(world, table)}")
    return seconds


def _state(world: World, table: str) -> str:
    meta = metadata.load(world.spark, TableName.parse(table))
    assert meta is not None
    assert meta.current is not None
    current = meta.snapshots[meta.current]
    files, deletes = current.count("total-data-files"), current.count("total-position-deletes")
    return f"{files} files, {deletes:,} deleted rows in them, {len(meta.snapshots)} snapshots"


def _read(world: World, table: str) -> tuple[float, float]:
    """Median seconds of reading a table and a fresh copy, in turns."""
    key = "k" if table == data.VIEW else "c0"
    world.spark.sql(
        f"CREATE TABLE {FRESH} USING iceberg TBLPROPERTIES ({data.PROPERTIES}) "
        f"AS SELECT * FROM {table} SORT BY {key}"
    )
    timed: dict[str, list[float]] = {table: [], FRESH: []}
    for _ in range(_READS):
        for name, seconds in timed.items():
            started = time.perf_counter()
            world.spark.sql(f"SELECT max(xxhash64(*)) FROM {name}").collect()
            seconds.append(time.perf_counter() - started)
    return statistics.median(timed[table][3:]), statistics.median(timed[FRESH][3:])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.wear", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the view: %(default)s")
    parser.add_argument("--epochs", type=int, default=300, help="%(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the data: %(default)s")
    parser.add_argument("--state", action="store_true", help="the groups are a state table")
    given = parser.parse_args()
    if given.epochs < 2 * _AROUND:
        parser.error(f"--epochs: at least {2 * _AROUND}")
    return given


if __name__ == "__main__":
    sys.exit(main())
