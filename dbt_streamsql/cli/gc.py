"""`streamsql gc`: remove everything that is no longer needed."""

from __future__ import annotations

from dataclasses import asdict

import click

from dbt_streamsql.cli.common.options import for_one_engine, print_json
from dbt_streamsql.cli.common.tables import console, print_table
from dbt_streamsql.engine import Engine, Garbage

_COUNTS = ("snapshots", "change folders", "orphans", "files", "bytes")


@click.command()
@click.option("--dry-run", is_flag=True, help="print what would be removed; change nothing")
@click.option(
    "--orphans-older-than",
    default="3 days",
    show_default=True,
    help="remove orphan files older than this (minimum 1 day); `never` keeps them",
)
@for_one_engine
def gc(engine: Engine, as_json: bool, dry_run: bool, orphans_older_than: str) -> None:
    """Remove data of barriers older than `retain`, leftovers of crashed runs, and orphan files.

    Waits for a run in progress. Keeps everything that a reader holds or a view has yet to read.
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
    would = "would be removed" if found.dry_run else "removed"
    out.print(
        f"barriers from {found.kept_from} on stay readable; older data {would}: "
        f"{rows.barriers:,} barriers, {rows.versions:,} versions, {rows.pins:,} pins, "
        f"{rows.entries:,} audit log lines"
    )
    out.print(
        f"leftovers of crashed runs, and staging data no longer needed: {found.left:,} {would}"
    )
