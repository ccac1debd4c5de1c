"""A plain table is replaced: ours against what dbt-spark's `table` sends, for Iceberg and Delta.

python -m benchmarks.replace --rows 5000000 --rounds 5     (docs/benchmarks.md)

The ways take turns in one process on the same rows; each replaces a table of its own. Ours stages,
writes down what it stages, checks, and publishes; dbt-spark sends `CREATE OR REPLACE TABLE … AS`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import data
from benchmarks.measure import jobs_so_far, settle
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.publish.plain_tables import Build
from dbt_streamsql.storage.iceberg.staging import create_schema
from dbt_streamsql.storage.staged_table import TableSpec

SLOWER = 1.1
"""The target: ours takes at most this share of the time of dbt-spark's statement on Iceberg."""

OURS, ICEBERG, DELTA = "ours", "dbt-spark, Iceberg", "dbt-spark, Delta"
TABLES = {
    OURS: "lake.bench.replaced_by_us",
    ICEBERG: "lake.bench.replaced",
    DELTA: "spark_catalog.default.replaced",
}
QUERY = (
    "SELECT id AS k, xxhash64(id) AS v, xxhash64(id, 1) % 1000 AS w, concat('row ', id) AS name "
    "FROM range(0, {rows}, 1, 4)"
)


def main() -> int:
    """1 when the tables differ; a missed target is a figure, not an error."""
    given = _arguments()
    query = QUERY.format(rows=given.rows)
    with tempfile.TemporaryDirectory(prefix="streamsql-replace-") as folder:
        world = data.open_world(Path(folder), with_delta=True)
        try:
            seconds, jobs = _measure(world, query, given.rounds)
            counts = {way: _rows(_session(world, way), TABLES[way]) for way in TABLES}
        finally:
            world.close()
    medians = {way: statistics.median(timed[1:]) for way, timed in seconds.items()}
    print(f"a table of {given.rows:,} rows is replaced, medians of {given.rounds - 1} rounds:")
    for way, timed in seconds.items():
        spread = f"{min(timed[1:]):.2f} - {max(timed[1:]):.2f}"
        print(f"  {way:<20} {medians[way]:6.2f} s  ({spread})  {jobs[way]} jobs")
    ratio = medians[OURS] / medians[ICEBERG]
    verdict = "met" if ratio <= SLOWER else "missed"
    print(f"ours / dbt-spark on Iceberg: {ratio:.2f} (target {SLOWER}: {verdict})")
    print(f"ours / dbt-spark on Delta: {medians[OURS] / medians[DELTA]:.2f}")
    return 0 if set(counts.values()) == {given.rows} else 1


def _measure(
    world: data.World, query: str, rounds: int
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds by way and round, and Spark jobs by way; the first round makes the tables."""
    ways: dict[str, Callable[[], object]] = {
        OURS: lambda: world.engine.create_table_as(
            Build(
                TableSpec(TableName.parse(TABLES[OURS]), properties={"format-version": "3"}), query
            )
        ),
        ICEBERG: lambda: world.spark.sql(
            f"CREATE OR REPLACE TABLE {TABLES[ICEBERG]} USING iceberg "
            f"TBLPROPERTIES ('format-version' = '3') AS {query}"
        ),
        DELTA: lambda: _session(world, DELTA).sql(
            f"CREATE OR REPLACE TABLE {TABLES[DELTA]} USING delta AS {query}"
        ),
    }
    create_schema(world.spark, "lake", "bench")
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    jobs: dict[str, int] = {}
    for number in range(rounds):
        for way, replace in ways.items():
            settle(world)
            before, started = jobs_so_far(world), time.perf_counter()
            replace()
            seconds[way].append(time.perf_counter() - started)
            jobs[way] = jobs_so_far(world) - before
        shown = ", ".join(f"{way} {timed[-1]:.2f}" for way, timed in seconds.items())
        print(f"round {number}: {shown}", flush=True)
    return seconds, jobs


def _session(world: data.World, way: str) -> SparkSession:
    if way != DELTA:
        return world.spark
    assert world.delta is not None
    return world.delta


def _rows(spark: SparkSession, table: str) -> int:
    return int(spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.replace", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the table: %(default)s")
    parser.add_argument(
        "--rounds", type=int, default=6, help="the first is not counted: %(default)s"
    )
    given = parser.parse_args()
    if given.rounds < 2:
        parser.error("--rounds: at least 2, the first is not counted")
    return given


if __name__ == "__main__":
    sys.exit(main())
