"""Fifty views over one table: an epoch without a change, and one of a change of a thousand rows.

python -m benchmarks.dag --views 50 --rows 1000000     (docs/benchmarks.md)

Every second view groups the table, the other ones read such a view. The first epoch after the
views are made warms up.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks import data
from benchmarks.data import World
from dbt_streamsql import Engine
from dbt_streamsql.engine import TableReport

EVENTS = "lake.bench.events"
NOOP_MILLISECONDS = 5
"""The target for a view that nothing happened to."""


def main() -> int:
    """1 when a view is not its query; a missed target is a figure, not an error."""
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="streamsql-dag-") as folder:
        world = data.open_world(Path(folder), with_delta=False)
        try:
            views = make_views(world.engine, given.views, given.rows)
            changed = [_change(world, number, given.rows) for number in range(given.rounds + 1)]
            idle = [_timed(world)[0] for _ in range(20)]
            differing = sum(len(world.engine.verify(view)) for view in views)
        finally:
            world.close()
    idle_ms = 1000 * statistics.median(idle) / given.views
    verdict = "met" if idle_ms <= NOOP_MILLISECONDS else "missed"
    print(f"nothing changed: {idle_ms:.2f} ms a view (target {NOOP_MILLISECONDS} ms: {verdict})")
    for seconds, jobs, modes in changed[1:]:
        print(f"1,000 rows changed: {seconds:.1f} s, {jobs} Spark jobs, {modes}")
    print(f"rows that differ from the queries: {differing}")
    return 1 if differing else 0


def make_views(engine: Engine, views: int, rows: int) -> list[str]:
    """A table `lake.bench.events` and so many views, made in one epoch; their names."""
    engine.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
    engine.spark.sql(
        f"CREATE TABLE {EVENTS} TBLPROPERTIES ('format-version' = '3') AS "
        f"SELECT id, id % 1000 AS k, id % 97 AS v FROM range({rows})"
    )
    names = [f"lake.bench.v{number:02d}" for number in range(views)]
    engine.begin()
    for number, name in enumerate(names):
        grouped = f"SELECT k, count(*) AS n, sum(v) AS total FROM {EVENTS} WHERE v >= {number}"
        query = f"SELECT k, total FROM {names[number - 1]} WHERE n > {number}"
        text = query if number % 2 else f"{grouped} GROUP BY k"
        engine.create_materialized_view(name, text)
    engine.publish()
    return names


def _change(world: World, number: int, rows: int) -> tuple[float, int, str]:
    world.spark.sql(
        f"INSERT INTO {EVENTS} SELECT {rows + 1000 * number} + id, id % 1000, id % 97 "
        "FROM range(1000)"
    )
    seconds, tables = _timed(world)
    modes = Counter(table.mode for table in tables)
    told = ", ".join(f"{count} {mode}" for mode, count in sorted(modes.items()))
    return seconds, sum(table.jobs for table in tables), told


def _timed(world: World) -> tuple[float, list[TableReport]]:
    started = time.perf_counter()
    report = world.engine.advance()
    return time.perf_counter() - started, list(report.tables.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.dag", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--views", type=int, default=50, help="%(default)s")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table: %(default)s")
    parser.add_argument("--rounds", type=int, default=2, help="changes: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
