"""`streamsql sinks`: what is delivered to external systems, and how far. No Spark starts."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import click

from dbt_streamsql.cli.common.tables import console, print_table
from dbt_streamsql.cli.status import of_one_store
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore, Sink
from dbt_streamsql.meta.model.stored_definition import stored_sink


@click.command()
@click.option("--drop", metavar="NAME", help="stop delivering to this sink")
@of_one_store
def sinks(store: MetaStore, as_json: bool, drop: str | None) -> None:
    """List the sinks, or drop one. Delivered data stays in the target."""
    found = store.sinks()
    if drop is not None:
        names = {sink.name for sink in found}
        if drop not in names:
            raise StreamSqlError(
                "DEFINITION_MISSING",
                f"{drop} is not a sink",
                allowed=", ".join(sorted(names)) or "there are no sinks",
            )
        fence = store.acquire(wait=True)
        try:
            store.drop_sink(fence, drop)
        finally:
            store.release(fence)
        click.echo(json.dumps({"dropped": drop}) if as_json else f"{drop} is dropped")
        return
    if as_json:
        click.echo(json.dumps([asdict(sink) for sink in found]))
        return
    latest = store.latest_all()
    heads = ("sink", "table", "connector", "barrier", "behind", "delivered", "problem")
    rows = []
    for sink in found:
        version = latest.get(sink.table)
        behind = version is not None and version.barrier > sink.delivered
        rows.append(_row(sink, "behind" if behind else ""))
    print_table(console(), heads, rows)


def _row(sink: Sink, behind: str) -> tuple[str, ...]:
    at = sink.delivered_at
    return (
        sink.name,
        sink.table,
        str(stored_sink(sink).target.get("connector")),
        str(sink.delivered or ""),
        behind,
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else "",
        sink.problem.splitlines()[0] if sink.problem else "",
    )
