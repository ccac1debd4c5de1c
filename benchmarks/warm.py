"""A dbt run of 50 trivial views and tables: on the warm engine, and with dbt-spark's own session.

python -m benchmarks.warm --models 50 --rounds 3     (docs/benchmarks.md)

Both write Iceberg tables with the same jars and the same number of threads, in turns. Seconds are
of the whole command, from the shell. Also timed: a run with nothing to do, and `dbt show`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.dbt_projects import Project, Timed, dbt_spark

VIEWS_OVER_CHANGES = 10


def main() -> int:
    """1 when the warm engine is not the faster one."""
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="streamsql-warm-") as name:
        root = Path(name)
        ours = Project(root / "ours", {"type": "streamsql", "schema": "p", "threads": 4})
        theirs = Project(root / "theirs", dbt_spark(root / "theirs" / "warehouse"))
        quiet = Project(root / "quiet", {"type": "streamsql", "schema": "q", "threads": 4})
        for project in (ours, theirs):
            _tables_and_views(project, given.models)
        _with_nothing_to_do(quiet)
        for project in (ours, quiet):
            project.run("streamsql", "spark", "start")
        quiet.run("dbt", "seed")
        try:
            figures = _measure(ours, theirs, quiet, given.rounds)
        finally:
            for project in (ours, quiet):
                project.run("streamsql", "spark", "stop", "--force")
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


def _tables_and_views(project: Project, count: int) -> None:
    """Half of them tables, half views on the table before."""
    for number in range(0, count, 2):
        table = "{{ config(materialized='table') }} select " + f"{number} as id, 'x' as name"
        view = "{{ config(materialized='view') }} select id from {{ ref('t" + f"{number}') }}}}"
        project.write(f"models/t{number}.sql", table)
        project.write(f"models/v{number}.sql", view)


def _with_nothing_to_do(project: Project) -> None:
    """Views over a seed, which `dbt run` leaves alone."""
    (project.folder / "seeds").mkdir()
    project.write("seeds/base.csv", "id,n\n1,2\n2,3\n")
    view = "{{ config(materialized='materialized_view') }} select id, sum(n) as n"
    for number in range(VIEWS_OVER_CHANGES):
        project.write(f"models/m{number}.sql", view + " from {{ ref('base') }} group by id")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.warm", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--models", type=int, default=50, help="views and tables: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
