"""A dbt run of 50 trivial views and tables: on the warm engine, and with dbt-spark's own session.

python -m benchmarks.warm --models 50 --rounds 3     (docs/benchmarks.md)

Both write Iceberg tables with the same jars and the same number of threads, in turns. Seconds are
of the whole command, from the shell. Also timed: a run with nothing to do, and `dbt show`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbt_streamsql.runtime.java import find_java, launch_home
from dbt_streamsql.runtime.session import SessionSettings, start_settings

BIN = Path(sys.executable).parent
VIEWS_OVER_CHANGES = 10


@dataclass(frozen=True)
class Timed:
    """One command: wall seconds, and seconds of the processors spent by dbt itself."""

    wall: float
    cpu: float


class Project:
    """A dbt project in a folder of its own."""

    def __init__(self, folder: Path, output: dict[str, Any]) -> None:
        self.folder = folder
        self._environment = {
            **os.environ,
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "JAVA_HOME": str(launch_home(find_java())),
        }
        (folder / "models").mkdir(parents=True, exist_ok=True)
        self.write("dbt_project.yml", "name: p\nversion: '1.0'\nprofile: p\n")
        # JSON is YAML too.
        self.write(
            "profiles.yml", json.dumps({"p": {"target": "dev", "outputs": {"dev": output}}})
        )

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def models(self, count: int) -> None:
        """Half of them tables, half views on the table before."""
        for number in range(0, count, 2):
            table = "{{ config(materialized='table') }} select " + f"{number} as id, 'x' as name"
            view = (
                "{{ config(materialized='view') }} select id from {{ ref('t" + f"{number}') }}}}"
            )
            self.write(f"models/t{number}.sql", table)
            self.write(f"models/v{number}.sql", view)

    def run(self, program: str, *arguments: str) -> Timed:
        """A command that must succeed."""
        before, started = os.times(), time.monotonic()
        done = subprocess.run(  # noqa: S603 - our own commands
            [str(BIN / program), *arguments],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        wall, after = time.monotonic() - started, os.times()
        if done.returncode:
            sys.exit(f"{program} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        cpu = after.children_user + after.children_system
        return Timed(wall, cpu - before.children_user - before.children_system)


def main() -> int:
    """1 when the warm engine is not the faster one."""
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="streamsql-warm-") as name:
        root = Path(name)
        ours = Project(root / "ours", {"type": "streamsql", "schema": "p", "threads": 4})
        theirs = Project(root / "theirs", _dbt_spark(root / "theirs" / "warehouse"))
        quiet = Project(root / "quiet", {"type": "streamsql", "schema": "q", "threads": 4})
        for project in (ours, theirs):
            project.models(given.models)
        _with_nothing_to_do(quiet)
        for project in (ours, quiet):
            project.run("streamsql", "server", "start")
        quiet.run("dbt", "seed")
        try:
            figures = _measure(ours, theirs, quiet, given.rounds)
        finally:
            for project in (ours, quiet):
                project.run("streamsql", "server", "stop", "--force")
    for what, timed in figures.items():
        wall = statistics.median(one.wall for one in timed)
        cpu = statistics.median(one.cpu for one in timed)
        print(f"{what:<42} {wall:6.1f} s   processors {cpu:5.1f} s")
    medians = {what: statistics.median(t.wall for t in timed) for what, timed in figures.items()}
    warm, session = list(medians.values())[:2]
    print(f"{given.models} models: the warm engine is {session / warm:.2f} times as fast")
    return 0 if warm < session else 1


def _measure(
    ours: Project, theirs: Project, quiet: Project, rounds: int
) -> dict[str, list[Timed]]:
    """Rounds in turns; the first is a warm-up of files, parsing and the engine's Java."""
    figures: dict[str, list[Timed]] = {}
    for number in range(rounds + 1):
        timed = {
            "dbt run, warm engine": ours.run("dbt", "run"),
            "dbt run, dbt-spark session": theirs.run("dbt", "run"),
            "dbt run, nothing to do, warm engine": quiet.run("dbt", "run"),
            "dbt show, warm engine": quiet.run("dbt", "show", "--inline", "select 1 as one"),
        }
        if number:
            for what, one in timed.items():
                figures.setdefault(what, []).append(one)
    return figures


def _with_nothing_to_do(project: Project) -> None:
    """Views over a seed, which `dbt run` leaves alone."""
    (project.folder / "seeds").mkdir()
    project.write("seeds/base.csv", "id,n\n1,2\n2,3\n")
    view = "{{ config(materialized='materialized_view') }} select id, sum(n) as n"
    for number in range(VIEWS_OVER_CHANGES):
        project.write(f"models/m{number}.sql", view + " from {{ ref('base') }} group by id")


def _dbt_spark(warehouse: Path) -> dict[str, Any]:
    # SQLite does not make folders.
    warehouse.mkdir(parents=True)
    started = start_settings(SessionSettings(warehouse=str(warehouse)))
    return {
        "type": "spark",
        "method": "session",
        "schema": "p",
        "host": "none",
        "threads": 4,
        "server_side_parameters": started,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.warm", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--models", type=int, default=50, help="views and tables: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
