"""One view, one change: what the engine chooses beside each way that it has, over many sizes.

python -m benchmarks.heat --rows 1000 100000 --changes 1 0.1 0.3     (docs/benchmarks.md)

Over a table of so many rows, and a tenth of it as another one, four copies of each view: the one
of the engine's choice, and one for each way (from the changes, the query compared with what is
stored, in full). A share of the rows is updated, or so many of them, or (`name`) one row of the
other table that a third of them read; then each copy alone is brought up to date, in turns. Before
that all views have been through an epoch of one row. A square is green where the choice takes at
most 1.1 times the cheapest way and 0.1 s. At the end every copy is compared with its query.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import data, measure
from benchmarks.data import World
from dbt_streamsql.tuning import Tuning

SCHEMA = "lake.heat"
KINDS = {
    "filter": "SELECT k, v * 2 AS twice, t FROM {facts} WHERE v > 100",
    "group": "SELECT g, count(*) AS n, sum(v) AS total FROM {facts} GROUP BY g",
    "join": "SELECT f.k, f.v, d.t FROM {facts} f JOIN {names} d ON f.d = d.k",
    "latest": "SELECT k, d, v FROM {facts} "
    "QUALIFY row_number() OVER (PARTITION BY d ORDER BY v DESC, k) = 1",
}
CHOICE = "choice"
NEVER, ALWAYS = Tuning(compared_rows=-1), Tuning(compared_rows=sys.maxsize, comparing=0.0)
WAYS = {
    CHOICE: (Tuning(), "auto"),
    "changes": (NEVER, "incremental_strict"),
    "compare": (ALWAYS, "auto"),
    "full": (NEVER, "full"),
}
NAME = "name"
TIMES, SECONDS = 1.1, 0.1
"""How much dearer than the cheapest way the choice may be."""


@dataclass(frozen=True)
class Cell:
    """The seconds of each way, medians of the rounds, and what the choice was."""

    seconds: Mapping[str, float]
    chosen: str

    @property
    def least(self) -> float:
        return min(seconds for way, seconds in self.seconds.items() if way != CHOICE)

    @property
    def is_met(self) -> bool:
        return self.seconds[CHOICE] <= TIMES * self.least + SECONDS

    def __str__(self) -> str:
        color = "🟩" if self.is_met else "🟨" if self.seconds[CHOICE] <= 2 * self.least else "🟥"
        ways = " / ".join(f"{self.seconds[way]:.2f}" for way in WAYS if way != CHOICE)
        return f"{color} {self.seconds[CHOICE]:.2f} {self.chosen} ({ways})"


def main() -> int:
    """1 when a view is not its query; how long it takes is a figure, not an error."""
    given = _arguments()
    cells: dict[tuple[str, int, str], Cell] = {}
    differing = 0
    for rows in given.rows:
        with tempfile.TemporaryDirectory(prefix="streamsql-heat-") as folder:
            world = data.open_world(Path(folder), with_delta=False)
            try:
                make(world, rows, given.kinds)
                for turn, share in enumerate(["1", *given.changes]):
                    found = _measure(world, given.kinds, rows, share, given.rounds)
                    for kind, cell in found.items():
                        if turn:
                            cells[kind, rows, share] = cell
                            print(f"{kind:8}{rows:>12,}{share:>8}  {cell}", flush=True)
                differing += sum(len(world.engine.verify(view)) for view in _views(given.kinds))
            finally:
                world.close()
    _print(cells, given)
    print(f"\nrows that differ from the queries: {differing}")
    return 1 if differing else 0


def make(world: World, rows: int, kinds: Sequence[str]) -> None:
    world.spark.sql(f"CREATE NAMESPACE {SCHEMA}")
    few = max(1, rows // 10)
    for table, size in (("facts", rows), ("names", few)):
        world.spark.sql(
            f"CREATE TABLE {SCHEMA}.{table} TBLPROPERTIES ('format-version' = '3', "
            "'write.update.mode' = 'merge-on-read') AS "
            f"SELECT id AS k, if(id % 3 = 0, 0, id * 7919 % {few}) AS d, "
            "id % 997 AS g, id * 104729 % 1009 AS v, "
            f"concat('t', id % 89) AS t FROM range({size})"
        )
    tables = {"facts": f"{SCHEMA}.facts", "names": f"{SCHEMA}.names"}
    for kind in kinds:
        for way, (_, mode) in WAYS.items():
            query = KINDS[kind].format(**tables)
            world.engine.create_materialized_view(
                f"{SCHEMA}.{kind}_{way}", query, refresh_mode=mode
            )


def _measure(
    world: World, kinds: Sequence[str], rows: int, change: str, rounds: int
) -> dict[str, Cell]:
    """Each kind that a change reaches, by each way."""
    if change == NAME:
        kinds = [kind for kind in kinds if "{names}" in KINDS[kind]]
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    chosen = {}
    for number in range(rounds):
        if change == NAME:
            world.spark.sql(f"UPDATE {SCHEMA}.names SET t = concat(t, 'x') WHERE k = 0")
        else:
            some = _some(rows, float(change))
            world.spark.sql(f"UPDATE {SCHEMA}.facts SET v = (v + 1) % 1009 WHERE {some}")
        for kind in kinds:
            ways = list(WAYS)
            for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
                measure.settle(world)
                took, strategy = _epoch(world, f"{SCHEMA}.{kind}_{way}", WAYS[way][0])
                seconds[kind, way].append(took)
                if way == CHOICE:
                    chosen[kind] = strategy
    return {
        kind: Cell({way: statistics.median(seconds[kind, way]) for way in WAYS}, chosen[kind])
        for kind in kinds
    }


def _some(rows: int, share: float) -> str:
    """A condition for so large a share of the rows, or for so many, all over the table."""
    if share >= 1:
        step = max(1, rows // int(share))
        return f"k % {step} = {step // 2} AND k < {step * int(share)}"
    return f"k * 7919 % 1000 < {1000 * share}"


def _epoch(world: World, view: str, tuning: Tuning) -> tuple[float, str]:
    world.engine.warehouse.tuning = tuning
    started = time.perf_counter()
    report = world.engine.advance([view]).tables[view]
    return time.perf_counter() - started, report.strategy


def _views(kinds: Sequence[str]) -> list[str]:
    return [f"{SCHEMA}.{kind}_{way}" for kind in kinds for way in WAYS]


def _print(cells: Mapping[tuple[str, int, str], Cell], given: argparse.Namespace) -> None:
    print("\nchosen (changes / compare / full), seconds")
    for kind in given.kinds:
        print(f"\n| {kind} | {' | '.join(given.changes)} |")
        print("|---" * (1 + len(given.changes)) + "|")
        for rows in given.rows:
            line = [str(cells.get((kind, rows, share), "")) for share in given.changes]
            print(f"| {rows:,} | " + " | ".join(line) + " |")
    met = sum(cell.is_met for cell in cells.values())
    print(f"\n{met} of {len(cells)} within {TIMES} times the cheapest way and {SECONDS} s")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.heat", description=(__doc__ or "").split("\n")[0]
    )
    add = parser.add_argument
    sizes, changes = (
        [1_000, 10_000, 100_000, 1_000_000],
        ["1", "0.001", "0.01", "0.1", "0.3", NAME],
    )
    add("--rows", type=int, nargs="+", default=sizes, help="sizes of the table: %(default)s")
    what = "shares of it that are updated (from 1 on: so many rows), `name`: %(default)s"
    add("--changes", nargs="+", default=changes, help=what)
    add("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="%(default)s")
    add("--rounds", type=int, default=3, help="of which the median counts: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
