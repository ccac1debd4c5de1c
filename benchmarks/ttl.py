"""A year of history on one side of a join: what a TTL of a day on it saves.

python -m benchmarks.ttl --days 365 --rows 50000 --rounds 6     (docs/benchmarks.md)

Clicks were appended once a day, in a file each; orders name the click that they come of. The same
join is kept up twice, with and without `state_ttl: {joins: {clicks: 1 day}}`. In each round new
clicks and orders come, in every second one some of the last day's clicks are deleted too, and the
views take an epoch each, in turns. The first two rounds warm up.

Ages come from the times of commits, and Iceberg gives a commit no time but the present. So the
history is committed now, then the times of its snapshots in the table's metadata file are moved
back, a day each, and the file is registered under the name that the views read. Everything else
in it stays what Iceberg wrote, and the engine's clock is the machine's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import data
from benchmarks.data import World
from benchmarks.measure import settle
from benchmarks.progress import Progress
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import pointer

WRITTEN, CLICKS, ORDERS = (f"lake.bench.{name}" for name in ("written", "clicks", "orders"))
FORGETS, KEEPS = "lake.bench.forgets", "lake.bench.keeps"
QUERY = f"SELECT o.id, o.what, c.page, c.visitor FROM {ORDERS} o JOIN {CLICKS} c ON o.click = c.id"
DAY = 24 * 3600 * 1000
"""In milliseconds."""
PLACED = 1000
"""Orders of a round, half of them of clicks of any age."""
WARM_UP = 2


@dataclass(frozen=True)
class Sample:
    """An epoch of one view. `kind`: what the clicks did in it."""

    view: str
    kind: str
    bytes_read: int
    seconds: float
    jobs: int


def main() -> int:
    """1 when a view has other rows than it should have."""
    given = _arguments()
    say = Progress(Console())
    with tempfile.TemporaryDirectory(prefix="streamsql-ttl-") as folder:
        world = data.open_world(Path(folder), with_delta=False)
        try:
            _history(world, given.days, given.rows, say)
            _define(world)
            samples = [
                sample
                for number in range(given.rounds + WARM_UP)
                for sample in _round(world, given, number, say)
            ]
            differing = _differing(world, given)
        finally:
            world.close()
    _report([sample for sample in samples if sample.kind])
    for view, rows in differing.items():
        print(f"rows of {view} that differ from what they should be: {rows}")
    return 1 if any(differing.values()) else 0


# -- the tables -----------------------------------------------------------------------------------


def _history(world: World, days: int, rows: int, say: Progress) -> None:
    """One commit a day, the newest half a day old."""
    spark = world.spark
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
    columns = "id BIGINT, visitor BIGINT, page STRING, at BIGINT"
    spark.sql(f"CREATE TABLE {WRITTEN} ({columns}) TBLPROPERTIES ({data.PROPERTIES})")
    for day in range(days):
        _click(world, WRITTEN, day * rows, rows)
        if day % 100 == 99:
            say(f"{day + 1} days of clicks are written")
    written = TableName.parse(WRITTEN)
    old = Path(pointer.newest(spark, written).removeprefix("file:"))
    new = old.with_name(f"{days + 10:05d}-{uuid.uuid4()}.metadata.json")
    new.write_text(json.dumps(_moved_back(json.loads(old.read_text()))))
    pointer.add(spark, TableName.parse(CLICKS), str(new))
    columns = "id BIGINT, click BIGINT, what STRING"
    spark.sql(f"CREATE TABLE {ORDERS} ({columns}) TBLPROPERTIES ({data.PROPERTIES})")
    size = sum(file.stat().st_size for file in old.parent.parent.rglob("*.parquet"))
    print(f"{days} commits of {rows:,} clicks, {size / 1e6:,.0f} MB", flush=True)


def _moved_back(table: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a table whose newest commit is half a day old, and each other one a day
    older than its successor."""
    newest = int(time.time() * 1000) - DAY // 2
    order = sorted(table["snapshots"], key=lambda snapshot: -snapshot["sequence-number"])
    times = {found["snapshot-id"]: newest - age * DAY for age, found in enumerate(order)}
    for entry in (*table["snapshots"], *table["snapshot-log"]):
        entry["timestamp-ms"] = times[entry["snapshot-id"]]
    return {**table, "metadata-log": [], "last-updated-ms": newest}


def _click(world: World, table: str, first: int, rows: int) -> None:
    world.spark.sql(
        f"INSERT INTO {table} SELECT id, pmod(xxhash64(id), 100000), "
        "concat('/', substr(sha1(CAST(id AS STRING)), 1, 16)), xxhash64(id, 2) "
        f"FROM range({first}, {first + rows}, 1, 1)"
    )


def _define(world: World) -> None:
    for view, ttl in ((FORGETS, {"joins": {"c": "1 day"}}), (KEEPS, None)):
        world.engine.create_materialized_view(
            view, QUERY, state_ttl=ttl, refresh_mode="incremental"
        )


# -- the rounds -----------------------------------------------------------------------------------


def _round(world: World, given: argparse.Namespace, number: int, say: Progress) -> list[Sample]:
    kind = "deletes" if number % 2 else "appends"
    known, day = given.days * given.rows, (given.days - 1) * given.rows
    _click(world, CLICKS, known + number * given.rows, given.rows)
    if kind == "deletes":
        # Clicks of the last day that no order names: both views can tell what is right.
        world.spark.sql(f"DELETE FROM {CLICKS} WHERE id >= {day} AND id % 200 = {2 * number + 1}")
    recent, first = known + (number + 1) * given.rows - day, number * PLACED
    world.spark.sql(
        f"INSERT INTO {ORDERS} SELECT id, 2 * (IF(id % 2 = 0, pmod(xxhash64(id), {day}), "
        f"{day} + pmod(xxhash64(id), {recent})) DIV 2), concat('thing ', id) "
        f"FROM range({first}, {first + PLACED}, 1, 1)"
    )
    samples = []
    for view in (FORGETS, KEEPS) if number % 4 < 2 else (KEEPS, FORGETS):
        settle(world)
        started = time.perf_counter()
        report = world.engine.advance([view]).tables[view]
        seconds = time.perf_counter() - started
        if report.mode not in ("append", "incremental"):
            raise SystemExit(f"{report.mode}, not incremental: {report.reason}")
        counted = kind if number >= WARM_UP else ""
        samples.append(Sample(view, counted, report.bytes_read, seconds, report.jobs))
    shown = "; ".join(
        f"{_short(s.view)} {s.bytes_read / 1e6:.1f} MB, {s.seconds:.2f} s, {s.jobs} jobs"
        for s in samples
    )
    say(f"round {number}, {kind}: {shown}")
    return samples


def _differing(world: World, given: argparse.Namespace) -> dict[str, int]:
    """The view without TTL against its query, the other against the last day of it."""
    day = (given.days - 1) * given.rows
    wanted = {KEEPS: QUERY, FORGETS: f"{QUERY} WHERE c.id >= {day}"}
    return {
        _short(view): _rows_of_one(world, f"SELECT id, what, page, visitor FROM {view}", query)
        for view, query in wanted.items()
    }


def _rows_of_one(world: World, left: str, right: str) -> int:
    """Rows that only one of two queries has."""
    only = [f"({one} EXCEPT ALL {other})" for one, other in ((left, right), (right, left))]
    return len(world.spark.sql(" UNION ALL ".join(only)).take(1_000_000))


def _report(samples: list[Sample]) -> None:
    print("epoch | view | MB read | seconds | Spark jobs")
    for kind in ("appends", "deletes"):
        medians = {}
        for view in (KEEPS, FORGETS):
            found = [s for s in samples if (s.view, s.kind) == (view, kind)]
            if not found:
                continue
            read, seconds, jobs = (
                statistics.median(values)
                for values in zip(*((s.bytes_read, s.seconds, s.jobs) for s in found), strict=True)
            )
            medians[view] = read, seconds
            print(f"{kind} | {_short(view)} | {read / 1e6:.2f} | {seconds:.2f} | {jobs:.0f}")
        if len(medians) == 2:
            read, seconds = (
                without / with_ttl
                for without, with_ttl in zip(medians[KEEPS], medians[FORGETS], strict=True)
            )
            print(f"{kind} | without / with the TTL | {read:.0f} x | {seconds:.1f} x |")


def _short(view: str) -> str:
    return {FORGETS: "1 day", KEEPS: "no TTL"}[view]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.ttl", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--days", type=int, default=365, help="commits: %(default)s")
    parser.add_argument("--rows", type=int, default=50_000, help="of a commit: %(default)s")
    parser.add_argument("--rounds", type=int, default=6, help="that count: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
