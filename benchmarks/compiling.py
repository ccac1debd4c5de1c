"""How long the compiler takes for queries that are wide or deep, beside Spark's own analysis.

python -m benchmarks.compiling --sizes 1 10 100     (docs/benchmarks.md)

Each shape is compiled once before anything is timed. A size takes the least of `--rounds` rounds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import data
from dbt_streamsql import StreamSqlError
from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.engine.reads.spark_catalog import SparkCatalog

TABLE = "lake.bench.t"
RATIO, SECONDS = 3, 0.02
"""The target: so many times Spark's own analysis, and so many seconds more."""


def branches(size: int) -> str:
    return " UNION ALL ".join(
        f"SELECT k, v + {n} AS v FROM {TABLE} WHERE v > {n}" for n in range(size)
    )


def joins(size: int) -> str:
    shown = "".join(f", t{n}.v AS v{n}" for n in range(size))
    more = "".join(f" JOIN {TABLE} t{n} ON t{n}.k = t0.k" for n in range(1, size))
    return f"SELECT t0.k{shown} FROM {TABLE} t0{more}"


def full_joins(size: int) -> str:
    shown = "".join(f", t{n}.v AS v{n}" for n in range(size))
    more = "".join(
        f" FULL JOIN (SELECT k, v FROM {TABLE} WHERE v > {n}) t{n} USING (k)"
        for n in range(1, size)
    )
    return f"SELECT k{shown} FROM {TABLE} t0{more}"


def ctes(size: int) -> str:
    """A chain, each read twice by the next: the tables that are read double with every one."""
    parts = [f"c0 AS (SELECT k, v FROM {TABLE})"]
    parts += [
        f"c{n} AS (SELECT a.k, a.v + b.v AS v FROM c{n - 1} a JOIN c{n - 1} b ON a.k = b.k)"
        for n in range(1, size + 1)
    ]
    return f"WITH {', '.join(parts)} SELECT k, v FROM c{size}"


def terms(size: int) -> str:
    either = " OR ".join(f"v = {n}" for n in range(size))
    return f"SELECT k, {' + '.join(['v'] * size)} AS s FROM {TABLE} WHERE {either}"


def sums(size: int) -> str:
    calls = ", ".join(f"sum(v + {n}) AS s{n}" for n in range(size))
    return f"SELECT k, {calls} FROM {TABLE} GROUP BY k"


SHAPES: dict[str, tuple[Callable[[int], str], int]] = {
    "UNION ALL branches": (branches, 1000),
    "inner joins": (joins, 100),
    "FULL JOIN … USING": (full_joins, 40),
    "CTEs, each read twice": (ctes, 6),
    "terms of + and OR": (terms, 1000),
    "sums": (sums, 1000),
}
"""Each shape with the size beyond which Spark itself takes minutes, or the memory."""


def main() -> int:
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="streamsql-compiling-") as folder:
        world = data.open_world(Path(folder), with_delta=False)
        try:
            world.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
            world.spark.sql(f"CREATE TABLE {TABLE} (k INT, v INT)")
            known = world.engine.tables.known
            print(f"{'shape':24}{'size':>6}{'Spark s':>10}{'compiler s':>12}{'ratio':>8}  target")
            for name, (shape, most) in SHAPES.items():
                compile_view(shape(1), known, table="lake.bench.v")
                for size in sorted({min(size, most) for size in given.sizes}):
                    _told(name, shape(size), size, known, given.rounds)
        finally:
            world.close()
    return 0


def _told(name: str, sql: str, size: int, known: SparkCatalog, rounds: int) -> None:
    spark = min(_seconds(lambda: known.schema(sql)) for _ in range(rounds))
    try:
        ours = min(
            _seconds(lambda: compile_view(sql, known, table="lake.bench.v")) for _ in range(rounds)
        )
    except StreamSqlError as error:
        print(f"{name:24}{size:>6}{spark:>10.2f}  {error.code}: {error.message[:60]}", flush=True)
        return
    verdict = "met" if ours <= RATIO * spark + SECONDS else "missed"
    print(
        f"{name:24}{size:>6}{spark:>10.2f}{ours:>12.2f}{ours / spark:>8.1f}  {verdict}", flush=True
    )


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
