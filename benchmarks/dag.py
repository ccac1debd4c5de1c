"""Many views over few tables: an epoch without a change, and one of a small change.

python -m benchmarks.dag --views 50 --rows 1000000     (docs/benchmarks.md)
python -m benchmarks.dag --views 200 --tables 20 --rows 1000 --changed 1 --moved 2

Every second view groups a table, the other ones read such a view. The first epoch after the views
are made warms up. Beside each epoch stand the queries of the views that it moved, one after the
other.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks import data
from benchmarks.data import World
from dbt_streamsql import Engine
from dbt_streamsql.engine import TableReport

SCHEMA = "lake.bench"
EVENTS = f"{SCHEMA}.events"
"""The first table; the others have a number behind it."""
NOOP_MILLISECONDS = 5
"""The target for a view that nothing happened to."""


def main() -> int:
    """1 when a view is not its query; a missed target is a figure, not an error."""
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="streamsql-dag-") as folder:
        world = data.open_world(Path(folder), with_delta=False)
        try:
            views = make_views(world.engine, given.views, given.rows, given.tables)
            changed = [_change(world, number, given, views) for number in range(given.rounds + 1)]
            idle = [_timed(world)[0] for _ in range(20)]
            differing = sum(len(world.engine.verify(view)) for view in views)
        finally:
            world.close()
    idle_ms = 1000 * statistics.median(idle) / given.views
    verdict = "met" if idle_ms <= NOOP_MILLISECONDS else "missed"
    print(f"nothing changed: {idle_ms:.2f} ms a view (target {NOOP_MILLISECONDS} ms: {verdict})")
    for told in changed[1:]:
        print(told)
    print(f"rows that differ from the queries: {differing}")
    return 1 if differing else 0


def make_views(engine: Engine, views: int, rows: int, tables: int = 1) -> dict[str, str]:
    """So many tables and views, made in one epoch; the views' names and queries."""
    engine.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {SCHEMA}")
    for table in range(tables):
        engine.spark.sql(
            f"CREATE TABLE {_events(table)} TBLPROPERTIES ('format-version' = '3') AS "
            f"SELECT id, id % 1000 AS k, id % 97 AS v FROM range({rows})"
        )
    made = {}
    engine.begin()
    for number in range(views):
        source, least = _events(number // 2 % tables), number // 2 // tables
        grouped = f"SELECT k, count(*) AS n, sum(v) AS total FROM {source} WHERE v >= {least}"
        query = f"SELECT k, total FROM {SCHEMA}.v{number - 1:03d} WHERE total > {least}"
        name, text = f"{SCHEMA}.v{number:03d}", query if number % 2 else f"{grouped} GROUP BY k"
        engine.create_materialized_view(name, text)
        made[name] = text
    engine.publish()
    return made


def _events(table: int) -> str:
    return f"{EVENTS}{table or ''}"


def _change(world: World, number: int, given: argparse.Namespace, views: Mapping[str, str]) -> str:
    for source in range(given.moved):
        world.spark.sql(
            f"INSERT INTO {_events(source)} SELECT {given.rows + given.changed * number} + id, "
            f"id % 1000, 96 - id % 97 FROM range({given.changed})"
        )
    seconds, tables = _timed(world)
    modes = Counter(table.mode for table in tables)
    told = ", ".join(f"{count} {mode}" for mode, count in sorted(modes.items()))
    jobs = sum(table.jobs for table in tables)
    started = time.perf_counter()
    for table in tables:
        if table.mode != "noop":
            world.spark.sql(views[table.table]).toArrow()
    queries = time.perf_counter() - started
    return (
        f"{given.changed:,} rows changed: {seconds:.1f} s, {jobs} Spark jobs, {told}; "
        f"their queries {queries:.1f} s"
    )


def _timed(world: World) -> tuple[float, list[TableReport]]:
    started = time.perf_counter()
    report = world.engine.advance()
    return time.perf_counter() - started, list(report.tables.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.dag", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--views", type=int, default=50, help="%(default)s")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a table: %(default)s")
    parser.add_argument("--tables", type=int, default=1, help="%(default)s")
    parser.add_argument("--changed", type=int, default=1_000, help="rows: %(default)s")
    parser.add_argument("--moved", type=int, default=1, help="tables with them: %(default)s")
    parser.add_argument("--rounds", type=int, default=2, help="changes: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
