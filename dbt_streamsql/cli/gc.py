"""`streamsql gc`: all at once goes what nobody can need any more."""

from __future__ import annotations

from dataclasses import asdict

import click

from dbt_streamsql.cli.options import for_one_engine, print_json
from dbt_streamsql.cli.tables import console, print_table
from dbt_streamsql.engine import Engine, Garbage

_COUNTS = ("snapshots", "change folders", "orphans", "files", "bytes")


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
    out = console()
    rows_of = []
    for of in found.tables:
        counts = (of.snapshots, of.changes, of.orphans, of.files, of.bytes)
        if any(counts):
            shown = ("" if count is None else f"{count:,}" for count in counts)
            rows_of.append((of.table, *shown))
    if rows_of:
        print_table(out, ("table", *_COUNTS), rows_of, numbers=_COUNTS)
    rows = found.ledger
    would = "would go" if found.dry_run else "went"
    out.print(
        f"barriers from {found.kept_from} on can be read; of older ones {would}: "
        f"{rows.barriers:,} barriers, {rows.versions:,} versions, {rows.pins:,} pins, "
        f"{rows.entries:,} lines of the audit log"
    )
    out.print(f"left by dead runs, and read by all: {found.left:,} things {would}")
