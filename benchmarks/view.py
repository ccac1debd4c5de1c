"""`make bench`: seconds of a small change to a big aggregate view, in every way there is.

python -m benchmarks.view --rows 1000000,10000000 --rounds 5 --seed 1     (docs/benchmarks.md)
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import data, measure, report
from benchmarks.contestants import ALL, Contestant
from benchmarks.progress import Progress

IDLE_LOAD = 0.5
"""Load average above which the figures are somebody else's too."""


def main() -> int:
    """Run the benchmark; 1 when a result is wrong (a missed target is a figure, not an error)."""
    given = _arguments()
    options = measure.Options(given.rounds, given.change, given.seed)
    console = Console()
    say = Progress(console)
    results = []
    with tempfile.TemporaryDirectory(prefix="streamsql-bench-") as folder:
        delta = any(contestant.name == "delta" for contestant in given.chosen)
        world = data.open_world(Path(folder), delta)
        spark = world.spark
        try:
            facts = report.machine(spark)
            if (facts["load"] or 0) > IDLE_LOAD:
                say(f"the machine is not idle (load {facts['load']}): do not publish this run")
            for groups in given.rows:
                results.append(measure.run(world, groups, given.chosen, options, say))
                say(f"peak memory of the driver so far: {report.peak_memory_gib(spark)} GiB")
            facts["peak_memory_gib"] = report.peak_memory_gib(spark)
        finally:
            world.close()
    for result in results:
        report.show(console, result, options)
    facts["seconds"] = say.seconds
    given.json.parent.mkdir(parents=True, exist_ok=True)
    body = report.as_json(results, options, facts)
    given.json.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    console.print(f"\n{facts['seconds']} seconds in all; everything measured is in {given.json}")
    return 1 if any(rows for result in results for rows in result.differing.values()) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.view", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--rows", type=_sizes, default="1000000,10000000", help="groups of the view: %(default)s"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds, the first is a warm-up: %(default)s"
    )
    parser.add_argument("--change", type=int, default=1000, help="changed rows: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the data: %(default)s")
    parser.add_argument(
        "--only", type=_names, default=",".join(c.name for c in ALL), help="ways: %(default)s"
    )
    parser.add_argument("--no-delta", action="store_true", help="leave Delta and its jars out")
    parser.add_argument(
        "--json", type=Path, default=Path("target/bench.json"), help="result: %(default)s"
    )
    given = parser.parse_args()
    if given.rounds < 2:
        parser.error("--rounds: at least 2, the first is not counted")
    dropped = {"delta"} if given.no_delta else set()
    given.chosen = _chosen(given.only - dropped)
    return given


def _chosen(names: set[str]) -> tuple[Contestant, ...]:
    # The append is the change and the unit; the ranged MERGE starts from what the plain one left.
    needed = names | {"append"} | ({"merge"} if "ranged" in names else set())
    return tuple(contestant for contestant in ALL if contestant.name in needed)


def _sizes(text: str) -> list[int]:
    return [int(part.replace("_", "")) for part in text.split(",")]


def _names(text: str) -> set[str]:
    names, known = set(text.split(",")), {contestant.name for contestant in ALL}
    if names - known:
        raise argparse.ArgumentTypeError(f"choose among {', '.join(sorted(known))}")
    return names


if __name__ == "__main__":
    sys.exit(main())
