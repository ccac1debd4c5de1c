"""What dbt's commands cost in projects of many views that have nothing to do.

python -m benchmarks.project --models 100 300     (docs/benchmarks.md)

The views group ten tables of one row. `dbt run` has built them once before anything is timed, the
engine is warm. Beside it dbt-spark's own session (a Spark of its own a command) over the same
models as plain SQL views, for the commands that build nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.dbt_projects import Project, dbt_spark

TABLES = 10
COMMANDS: dict[str, list[str]] = {
    "parse": ["parse", "--no-partial-parse"],
    "run": ["run"],
    "run -s of three": ["run", "-s", "m0", "m1", "m2"],
    "show --inline": ["show", "--inline", "select 1 as one"],
    "compile": ["compile"],
    "docs generate": ["docs", "generate"],
}
BUILDS = ("run", "run -s of three")


def main() -> int:
    given = _arguments()
    print(f"{'models':>7} {'command':<18}{'dbt-streamsql s':>16}{'dbt-spark s':>13}")
    for count in given.models:
        with tempfile.TemporaryDirectory(prefix="streamsql-project-") as name:
            _measure(Path(name), count, given.alone)
    return 0


def _measure(root: Path, count: int, alone: bool) -> None:
    ours = _project(root / "ours", {"type": "streamsql", "schema": "p", "threads": 4})
    _models(ours, count, "materialized_view")
    theirs = None
    if not alone:
        theirs = _project(root / "theirs", dbt_spark(root / "theirs" / "warehouse"))
        _models(theirs, count, "view")
        theirs.run("dbt", "build")
    ours.run("streamsql", "spark", "start")
    try:
        ours.run("dbt", "build")
        for what, command in COMMANDS.items():
            seconds = f"{ours.run('dbt', *command).wall:16.1f}"
            if theirs is not None and what not in BUILDS:
                seconds += f"{theirs.run('dbt', *command).wall:13.1f}"
            print(f"{count:>7} {what:<18}{seconds}", flush=True)
    finally:
        ours.run("streamsql", "spark", "stop", "--force")


def _project(folder: Path, output: dict[str, Any]) -> Project:
    project = Project(folder, output)
    (folder / "seeds").mkdir(exist_ok=True)
    for number in range(TABLES):
        project.write(f"seeds/base{number}.csv", "id,n\n1,2\n")
    return project


def _models(project: Project, count: int, kind: str) -> None:
    for number in range(count):
        config = "{{ config(materialized='" + kind + "') }}"
        source = "{{ ref('base" + str(number % TABLES) + "') }}"
        query = f"select id, sum(n) + {number} as n from {source} group by id"
        project.write(f"models/m{number}.sql", f"{config}\n{query}\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.project", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--models", type=int, nargs="+", default=[100, 300], help="views: %(default)s"
    )
    parser.add_argument("--alone", action="store_true", help="without dbt-spark")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
