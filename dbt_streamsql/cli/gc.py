"""`streamsql gc`: all at once goes what nobody can need any more."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dbt_streamsql.cli.options import for_one_engine, print_json
from dbt_streamsql.engine import Engine, Garbage
from dbt_streamsql.meta.draw import printable


@click.command()
@click.option("--dry-run", is_flag=True, help="only tell what would go")
@click.option(
    "--orphans-older-than",
    default="3 days",
    show_default=True,
    help="age of a file that nothing names, at least a day; `never` leaves them",
)
@for_one_engine
def gc(engine: Engine, as_json: bool, dry_run: bool, orphans_older_than: str) -> None:
    """Remove what barriers older than `retain` have, what dead runs left, and orphaned files.

    Waits for a run that is under way. What a reader holds, or a view has yet to read, stays.
    """
    age = None if orphans_older_than == "never" else orphans_older_than
    found = engine.gc(dry_run=dry_run, orphans_older_than=age)
    if as_json:
        print_json(asdict(found))
    else:
        _tell(found)


def _tell(found: Garbage) -> None:
    console = Console(highlight=False, markup=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("table", "snapshots", "change folders", "orphans", "files", "bytes"):
        table.add_column(name, justify="left" if name == "table" else "right")
    for of in found.tables:
        counts = (of.snapshots, of.changes, of.orphans, of.files, of.bytes)
        if any(counts):
            shown = ("" if count is None else f"{count:,}" for count in counts)
            table.add_row(printable(of.table), *shown)
    if table.row_count:
        console.print(table)
    rows = found.ledger
    would = "would go" if found.dry_run else "went"
    console.print(
        f"barriers from {found.kept_from} on can be read; of older ones {would}: "
        f"{rows.barriers:,} barriers, {rows.versions:,} versions, {rows.pins:,} pins, "
        f"{rows.entries:,} lines of the audit log"
    )
    console.print(f"left by dead runs, and read by all: {found.left:,} things {would}")
