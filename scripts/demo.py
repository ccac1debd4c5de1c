"""`make demo`: a dbt project over real flights, and what its second run costs.

Makes the virtual environment if it is missing, builds the flights example in `.demo/`, lets a day
of December and late corrections arrive, runs dbt again and prints for every view: what the run
did, how long it took, how long a full refresh takes on the same session, and whether the view
equals its query. Needs Python and, the first time, PyPI and Maven Central; can be run again.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from dbt_streamsql import Engine

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "integration_tests" / "flights"
DEMO = ROOT / ".demo"
DAY = dt.date(2013, 12, 1)
SEED = 7


@dataclass(frozen=True)
class Row:
    """One view in the second run: what dbt reported, beside a full refresh and `verify`."""

    view: str
    mode: str
    inserted: int
    deleted: int
    seconds: float
    full_seconds: float
    differing: int
    reason: str


def main() -> int:
    """Run the demo in the environment that has the project; return its exit code."""
    sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
    import bootstrap

    python = bootstrap.ensure()
    if Path(sys.prefix).resolve() != bootstrap.VENV:
        return subprocess.call([str(python), str(Path(__file__).resolve())])
    return _demo()


def _demo() -> int:
    from rich.console import Console

    from dbt_streamsql import Engine
    from integration_tests.flights import load

    # A pipe has no width; the table needs a little more than the 80 columns that rich assumes.
    console = Console(width=None if sys.stdout.isatty() else 100)
    started = time.monotonic()
    project, landing = DEMO / "flights", DEMO / "landing"
    shutil.rmtree(DEMO, ignore_errors=True)
    leave = shutil.ignore_patterns("warehouse", "landing", "target", "logs", "__pycache__")
    shutil.copytree(EXAMPLE, project, ignore=leave)
    (DEMO / ".gitignore").write_text("*\n")
    os.chdir(project)

    _step(console, "starting Spark")
    engine = Engine.open(warehouse=str(project / "warehouse"))
    try:
        _step(console, "loading the flights of January to November 2013 into Iceberg tables")
        flights = load.base(engine.spark, landing)
        console.print(f"{flights:,} flights in lake.flights_raw.flights")

        _step(console, "dbt build: every view for the first time, and the tests of the project")
        _dbt("build")

        _step(console, f"the flights of {DAY:%d %B} arrive as a file, and late corrections")
        console.print(f"{load.arrive(engine.spark, DAY, landing):>6,} flights arrived")
        for what, number in load.corrections(engine.spark, SEED).items():
            console.print(f"{number:>6,} {what}")

        _step(console, "dbt run: the same project again")
        # One thread: the seconds of a view are its own, like those of its full refresh.
        second = _dbt("run", "--threads", "1")

        _step(console, "each view once more in full, and compared with its query")
        rows = _compare(console, engine, second)
        _show(console, rows)
    finally:
        engine.close()
    wrong = [row.view for row in rows if row.differing]
    console.print(f"\n{time.monotonic() - started:.0f} seconds in all; look around in {project}")
    if wrong:
        console.print(f"[red]not equal to their query: {', '.join(wrong)}[/red]")
    return 1 if wrong else 0


def _dbt(*arguments: str) -> list[Any]:
    """Run dbt in this process, with its own output, and return the results of its nodes."""
    from dbt.cli.main import dbtRunner

    flags = ["--no-send-anonymous-usage-stats"]
    flags += [] if sys.stdout.isatty() else ["--no-use-colors"]
    done = dbtRunner().invoke([*flags, *arguments])
    if not done.success:
        sys.exit(f"dbt {arguments[0]} failed; its own words stand above")
    return list(getattr(done.result, "results", []))


def _compare(console: Console, engine: Engine, results: list[Any]) -> list[Row]:
    engine.spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.demo_full")
    rows = []
    for result in results:
        node, said = result.node, result.adapter_response
        if node.config.materialized != "materialized_view":
            continue
        console.print(f"  {node.name}")
        begun = time.monotonic()
        engine.spark.sql(
            f"CREATE OR REPLACE TABLE lake.demo_full.{node.name} USING iceberg"
            f" TBLPROPERTIES ('format-version' = '3') AS {node.compiled_code}"
        )
        full = time.monotonic() - begun
        rows.append(
            Row(
                view=node.name,
                mode=said["mode"],
                inserted=int(said["rows_inserted"]),
                deleted=int(said["rows_deleted"]),
                seconds=float(said["seconds"]),
                full_seconds=full,
                differing=len(engine.verify(f"lake.flights.{node.name}")),
                reason=said["reason"],
            )
        )
    return rows


def _show(console: Console, rows: list[Row]) -> None:
    from rich.box import SIMPLE
    from rich.table import Table

    kept = [row for row in rows if row.mode != "full"]
    table = Table(box=SIMPLE, show_footer=True, padding=0, pad_edge=False)
    for header, footer in (
        ("view", f"{len(kept)} from changes"),
        ("mode", ""),
        ("+ rows", ""),
        ("- rows", ""),
        ("seconds", f"{sum(row.seconds for row in kept):.1f}"),
        ("in full", f"{sum(row.full_seconds for row in kept):.1f}"),
        ("verify", ""),
    ):
        right = header not in ("view", "mode", "verify")
        table.add_column(header, footer, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        table.add_row(
            row.view,
            row.mode,
            f"{row.inserted:,}",
            f"{row.deleted:,}",
            f"{row.seconds:.2f}",
            f"{row.full_seconds:.2f}",
            f"[red]{row.differing} differ[/red]" if row.differing else "equal",
        )
    console.print("\nThe second dbt run, and the seconds that a full refresh of the view takes:")
    console.print(table)
    for row in rows:
        if row.mode == "full":
            console.print(f"{row.view}: {row.reason}", markup=False, highlight=False)


def _step(console: Console, text: str) -> None:
    console.print(f"\n[bold]>> {text}[/bold]")


if __name__ == "__main__":
    sys.exit(main())
