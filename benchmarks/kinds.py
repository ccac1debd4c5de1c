"""A hundred small views of all kinds: an epoch beside their queries, by each way and by choice.

python -m benchmarks.kinds --views 100 --rows 20000     (docs/benchmarks.md)

Five tables, of which 120 rows change before every epoch. All views are made in one epoch. Then
epochs go by the given ways in turns, `auto` (the choice), `changes` or `compare`; between them the
queries of all views are run one after the other, and their rows fetched. At the end every view is
compared with its query.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks import data
from benchmarks.data import World
from dbt_streamsql.tuning import Tuning

SCHEMA = "lake.kinds"
BIG, SMALL = ("orders", "visits"), ("people", "shops", "goods")
KINDS = """
SELECT k, v, w FROM {big} WHERE v > {n}
SELECT k, upper(t) AS t, v * {n} AS x FROM {big} WHERE k % 3 = 1
SELECT g, count(*) AS n, sum(v) AS total, avg(w) AS mean FROM {big} WHERE v <> {n} GROUP BY g
SELECT g, min(v) AS least, max(w) AS most FROM {big} GROUP BY g HAVING count(*) > {n}
SELECT g, count(DISTINCT v) AS n, stddev(w) AS s FROM {big} WHERE k > {n} GROUP BY g
SELECT DISTINCT g, v FROM {big} WHERE w > {n}
SELECT b.k, b.v, s.t FROM {big} b JOIN {small} s ON b.g = s.k WHERE b.v > {n}
SELECT b.k, s.v, b.w FROM {big} b LEFT JOIN {small} s ON b.v = s.k AND s.w > {n}
SELECT b.k, s.k AS j, b.v FROM {big} b FULL JOIN {small} s ON b.k = s.k AND b.w > s.w + {n}
SELECT a.k, b.v, c.w FROM {small} a LEFT JOIN {other} b ON a.g = b.k LEFT JOIN {big} c ON c.k = a.k + {n}
SELECT s.t, sum(b.v) AS total FROM {big} b JOIN {small} s ON b.g = s.k WHERE b.w > {n} GROUP BY s.t
SELECT k, v FROM {big} b WHERE EXISTS (SELECT 1 FROM {small} s WHERE s.k = b.v AND s.w > {n})
SELECT k, v FROM {small} s WHERE NOT EXISTS (SELECT 1 FROM {big} b WHERE b.k = s.k AND b.w < {n})
SELECT s.k, (SELECT max(v) FROM {big} b WHERE b.g = s.g AND b.w > {n}) AS most FROM {small} s
SELECT g, k, row_number() OVER (PARTITION BY g ORDER BY v, k) AS n FROM {small} WHERE w > {n}
SELECT g, k, sum(v) OVER (PARTITION BY g ORDER BY at, k) AS running FROM {big} WHERE k % 20 = {n} % 20
SELECT window.start AS at, g, count(*) AS n FROM {big} WHERE v > {n} GROUP BY window(at, '6 hours'), g
SELECT g, v, k FROM {big} WHERE w <> {n} ORDER BY v DESC, k LIMIT 50
SELECT k, v FROM {small} WHERE v > {n} UNION ALL SELECT k, v FROM {other} WHERE w > {n}
SELECT g FROM {big} WHERE v > {n} EXCEPT SELECT k FROM {small}
""".strip().splitlines()  # noqa: E501
WAYS = {
    "auto": Tuning(),
    "changes": Tuning(compared_rows=-1),
    "compare": Tuning(comparing=0.0),
}


@dataclass(frozen=True)
class Epoch:
    """One timed epoch; `strategies` counts the views by what was done."""

    way: str
    seconds: float
    jobs: int
    strategies: Counter[str]

    def __str__(self) -> str:
        told = ", ".join(f"{count} {what}" for what, count in self.strategies.most_common())
        return f"{self.way:8} {self.seconds:6.1f} s {self.jobs:5} jobs: {told}"


def main() -> int:
    """1 when a view is not its query; how long it takes is a figure, not an error."""
    given = _arguments()
    rng = random.Random(given.seed)  # noqa: S311
    with tempfile.TemporaryDirectory(prefix="streamsql-kinds-") as folder:
        world = data.open_world(Path(folder), with_delta=False)
        try:
            views = make(world, given.views, given.rows)
            for number in range(given.rounds):
                for way in given.ways.split(","):
                    change(world, rng, given.rows)
                    print(_epoch(world, way), flush=True)
                _queries(world, views, number)
            differing = sum(len(world.engine.verify(view)) for view in views)
        finally:
            world.close()
    print(f"rows that differ from the queries: {differing}")
    return 1 if differing else 0


def make(world: World, views: int, rows: int) -> dict[str, str]:
    spark = world.spark
    spark.sql(f"CREATE NAMESPACE {SCHEMA}")
    for table in (*BIG, *SMALL):
        size = 5 * rows if table in BIG else rows
        spark.sql(
            f"CREATE TABLE {SCHEMA}.{table} TBLPROPERTIES ('format-version' = '3') AS "
            "SELECT id AS k, id % 997 AS g, id * 7919 % 1009 AS v, id * 104729 % 211 AS w, "
            "concat('t', id % 89) AS t, timestamp_seconds(1700000000 + id * 60) AS at "
            f"FROM range({size})"
        )
    made = {}
    world.engine.begin()
    for number in range(views):
        turn = number // len(KINDS)
        names = {
            "big": BIG[turn % 2],
            "small": SMALL[turn % 3],
            "other": SMALL[(turn + 1) % 3],
        }
        tables = {role: f"{SCHEMA}.{name}" for role, name in names.items()}
        text = KINDS[number % len(KINDS)].format(n=turn + 1, **tables)
        name = f"{SCHEMA}.v{number:03d}"
        world.engine.create_materialized_view(name, text)
        made[name] = text
    world.engine.publish()
    return made


def change(world: World, rng: random.Random, rows: int) -> None:
    """24 rows of every table: 8 come, 8 go, 8 are others."""
    for table in (*BIG, *SMALL):
        name, size = f"{SCHEMA}.{table}", 5 * rows if table in BIG else rows
        at = rng.randrange(1, size - 20)
        world.spark.sql(f"DELETE FROM {name} WHERE k BETWEEN {at} AND {at + 7}")
        world.spark.sql(f"UPDATE {name} SET v = v + 1 WHERE k BETWEEN {at + 8} AND {at + 15}")
        world.spark.sql(
            f"INSERT INTO {name} SELECT {rng.randrange(size)} + id, id, id * 3, id, 'new', "
            "timestamp_seconds(1700000000 + id) FROM range(8)"
        )


def _epoch(world: World, way: str) -> Epoch:
    world.engine.warehouse.tuning = WAYS[way]
    started = time.perf_counter()
    tables = world.engine.advance().tables.values()
    seconds = time.perf_counter() - started
    strategies = Counter(
        table.mode if table.mode == "noop" else table.strategy for table in tables
    )
    return Epoch(way, seconds, sum(table.jobs for table in tables), strategies)


def _queries(world: World, views: dict[str, str], number: int) -> None:
    took = []
    for text in views.values():
        started = time.perf_counter()
        world.spark.sql(text).toArrow()
        took.append(time.perf_counter() - started)
    middle = statistics.median(took)
    told = f"{sum(took):6.1f} s one after the other, the middle one {middle:.2f} s"
    print(f"queries  {told} (round {number + 1})", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.kinds", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--views", type=int, default=100, help="%(default)s")
    parser.add_argument(
        "--rows", type=int, default=20_000, help="of three tables, of two five times: %(default)s"
    )
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    parser.add_argument("--ways", default="auto", help="of auto,changes,compare: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="%(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
