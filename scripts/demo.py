"""`make demo`: a dbt project over real flights, and what its second run costs.

Makes the virtual environment if it is missing, builds the flights example in `.demo/`, lets a day
of December and late corrections arrive, and runs dbt again: from changes, then in full
(`--full-refresh`), each in a process of its own. Between them every view is compared with its
query. All that is played with the flights of one year, and with thirty years of them. Needs Python
and, the first time, PyPI and Maven Central; can be run again.

    python scripts/demo.py [--years 1 30]
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "integration_tests" / "flights"
DEMO = ROOT / ".demo"
DAY = dt.date(2013, 12, 1)
SEED = 7


@dataclass(frozen=True)
class Row:
    """One view in the second run, beside the same run in full."""

    view: str
    mode: str
    inserted: int
    deleted: int
    seconds: float
    full_seconds: float
    differing: int
    reason: str


@dataclass(frozen=True)
class Played:
    """What came of one size: its rows and the seconds of the two whole commands."""

    flights: int
    rows: list[Row]
    command: float
    full_command: float


def main() -> int:
    """Run the demo in the environment that has the project; return its exit code."""
    sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
    import bootstrap

    python = bootstrap.ensure()
    if Path(sys.prefix).resolve() != bootstrap.VENV:
        return subprocess.call([str(python), str(Path(__file__).resolve()), *sys.argv[1:]])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--years", type=int, nargs="+", default=[1, 30])
    return _demo(parser.parse_args().years)


def _demo(sizes: list[int]) -> int:
    from rich.console import Console

    # A pipe has no width; the table needs a little more than the 80 columns that rich assumes.
    console = Console(width=None if sys.stdout.isatty() else 100)
    started = time.monotonic()
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    (DEMO / ".gitignore").write_text("*\n")
    played = [_play(console, years) for years in sizes]
    for one in played:
        _show(console, one)
    wrong = sorted({row.view for one in played for row in one.rows if row.differing})
    console.print(f"\n{time.monotonic() - started:.0f} seconds in all; look around in {DEMO}")
    if wrong:
        console.print(f"[red]not equal to their query: {', '.join(wrong)}[/red]")
    return 1 if wrong else 0


def _play(console: Console, years: int) -> Played:
    from dbt_streamsql import Engine
    from integration_tests.flights import load

    project, landing = DEMO / f"flights-{years}", DEMO / "landing"
    leave = shutil.ignore_patterns("warehouse", "landing", "target", "logs", "__pycache__")
    shutil.copytree(EXAMPLE, project, ignore=leave)
    engine = Engine.open(warehouse=str(project / "warehouse"))
    try:
        what = (
            "the flights of 2013" if years == 1 else f"the same flights in each of {years} years"
        )
        _step(console, f"loading {what}, without December, into Iceberg tables")
        flights = load.base(engine.spark, landing, years)
        console.print(f"{flights:,} flights in lake.flights_raw.flights")

        _step(console, "dbt build: every view for the first time, and the tests of the project")
        _dbt(project, "build")

        _step(console, f"the flights of {DAY:%d %B} arrive as a file, and late corrections")
        console.print(f"{load.arrive(engine.spark, DAY, landing):>6,} flights arrived")
        for what, number in load.corrections(engine.spark, SEED).items():
            console.print(f"{number:>6,} {what}")

        _step(console, "dbt run: the same project again, from changes")
        # One thread: the seconds of a view are its own.
        changed, command = _timed(project, "run", "--threads", "1")

        _step(console, "each view compared with its query")
        views = {name: said for name, said in changed.items() if said.get("mode")}
        differing = {name: len(engine.verify(f"lake.flights.{name}")) for name in views}

        _step(console, "dbt run --full-refresh: what the same run costs without us")
        full, full_command = _timed(project, "run", "--full-refresh", "--threads", "1")
    finally:
        engine.close()
    rows = [
        Row(
            view=name,
            mode=said["mode"],
            inserted=int(said["rows_inserted"]),
            deleted=int(said["rows_deleted"]),
            seconds=float(said["seconds"]),
            full_seconds=float(full[name]["seconds"]),
            differing=differing[name],
            reason=said["reason"],
        )
        for name, said in views.items()
    ]
    return Played(flights, rows, command, full_command)


def _timed(project: Path, *arguments: str) -> tuple[dict[str, Any], float]:
    begun = time.monotonic()
    results = _dbt(project, *arguments)
    return results, time.monotonic() - begun


def _dbt(project: Path, *arguments: str) -> dict[str, Any]:
    """Run dbt in a process of its own and return what the adapter said of each node."""
    dbt = Path(sys.executable).with_name("dbt")
    flags = ["--no-send-anonymous-usage-stats"]
    flags += [] if sys.stdout.isatty() else ["--no-use-colors"]
    if subprocess.call([str(dbt), *flags, *arguments], cwd=project):
        sys.exit(f"dbt {arguments[0]} failed; its own words stand above")
    results = json.loads((project / "target" / "run_results.json").read_text(encoding="utf-8"))
    return {
        each["unique_id"].rpartition(".")[2]: each["adapter_response"]
        for each in results["results"]
    }


def _show(console: Console, played: Played) -> None:
    from rich.box import SIMPLE
    from rich.table import Table

    rows = played.rows
    kept = [row for row in rows if row.mode != "full"]
    seconds, full = sum(row.seconds for row in rows), sum(row.full_seconds for row in rows)
    table = Table(box=SIMPLE, show_footer=True, padding=0, pad_edge=False)
    for header, footer in (
        ("view", f"{len(kept)} of {len(rows)} from changes"),
        ("mode", ""),
        ("+ rows", ""),
        ("- rows", ""),
        ("seconds", f"{seconds:.1f}"),
        ("in full", f"{full:.1f}"),
        ("times", f"{full / seconds:.1f}"),
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
            f"{row.full_seconds / row.seconds:.1f}" if row.seconds else "",
            f"[red]{row.differing} differ[/red]" if row.differing else "equal",
        )
    console.print(
        f"\n{played.flights:,} flights: the second run of dbt, {played.command:.0f} s with the "
        f"start of Spark, beside `--full-refresh`, {played.full_command:.0f} s"
    )
    console.print(table)
    for row in rows:
        if row.mode == "full":
            console.print(f"{row.view}: {row.reason}", markup=False, highlight=False)


def _step(console: Console, text: str) -> None:
    console.print(f"\n[bold]>> {text}[/bold]")


if __name__ == "__main__":
    sys.exit(main())
