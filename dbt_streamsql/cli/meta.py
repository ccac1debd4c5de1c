"""`streamsql meta`: MetaService's store itself."""

from __future__ import annotations

from dataclasses import asdict

import click

from dbt_streamsql.cli.common.options import for_one_engine, print_json
from dbt_streamsql.engine import Engine
from dbt_streamsql.meta.inspect.topology_text import printable


@click.group()
def meta() -> None:
    """Serve the MetaService store, or rebuild it when it is lost."""


@meta.command()
@click.option("--store", default="", help="id of the lost store, if its address was different")
@click.option("--dry-run", is_flag=True, help="print what would be done; change nothing")
@for_one_engine
def rebuild(engine: Engine, as_json: bool, store: str, dry_run: bool) -> None:
    """Rebuild a lost store from the metadata of the catalog's tables. It must be empty."""
    found = engine.rebuild(store, dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, **asdict(found)})
        return
    verb = "would be" if dry_run else "was"
    click.echo(
        f"store {found.store} {verb} rebuilt: {found.barriers} barriers up to {found.barrier}, "
        f"{len(found.tables)} tables"
    )
    for table in found.published:
        click.echo(printable(f"  {table}: its staged version {verb} published"))
    for table, reason in sorted(found.tables.items()):
        how = f"with a full refresh: {reason}" if reason else "from changes"
        click.echo(printable(f"  {table}: continues {how}"))
    for table, reason in sorted(found.left.items()):
        click.echo(printable(f"  {table}: not recovered, `dbt run` redefines it: {reason}"))
