"""`streamsql meta`: MetaService's store itself."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import click

from dbt_streamsql.cli.common.options import errors_as_text, for_one_engine, print_json
from dbt_streamsql.engine import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.inspect.topology_text import printable

MONITORING = ("alerts.yml", "dashboard.json")


@click.group()
def meta() -> None:
    """Serve the MetaService store, monitor it, or rebuild it when it is lost."""


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


@meta.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@errors_as_text
def monitoring(folder: Path) -> None:
    """Write alert rules for Prometheus and a dashboard for Grafana into FOLDER [default: .]."""
    shipped = files("dbt_streamsql.web") / "monitoring"
    found = [folder / name for name in MONITORING if (folder / name).exists()]
    if found:
        raise StreamSqlError(
            "FILE_UNREADABLE",
            "files that exist are not overwritten",
            given=", ".join(map(str, found)),
            hint="name another folder, or remove them",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name in MONITORING:
        (folder / name).write_bytes((shipped / name).read_bytes())
        click.echo(f"wrote {folder / name}")
