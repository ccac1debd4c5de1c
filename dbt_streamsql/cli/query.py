"""`streamsql query` and `wait`: one consistent cut, for scripts and for a look."""

from __future__ import annotations

import json
import sys
from contextlib import closing

import click

from dbt_streamsql.cli.options import for_one_engine, for_one_store
from dbt_streamsql.cli.tables import console, print_table
from dbt_streamsql.durations import seconds_of
from dbt_streamsql.engine import Engine
from dbt_streamsql.meta import LEVELS, MetaStore
from dbt_streamsql.meta.waiting import wait_for


@click.command()
@click.argument("sql")
@click.option("-c", "--consistency", type=click.Choice(LEVELS), help="[default: the profile's]")
@click.option("--barrier", type=click.IntRange(min=1), help="none newer than this one")
@click.option("--max-staleness", help="refuse what is staler: 30 seconds, 5 minutes")
@click.option("--limit", type=click.IntRange(min=0), default=500, show_default=True, help="rows")
@for_one_engine
def query(
    engine: Engine,
    as_json: bool,
    sql: str,
    consistency: str | None,
    barrier: int | None,
    max_staleness: str | None,
    limit: int,
) -> None:
    """Run a query over one consistent cut, and print its rows (`--json`: one line each).

    `-` reads the query from standard input.
    """
    text = sys.stdin.read() if sql == "-" else sql
    bound = seconds_of(max_staleness, "--max-staleness") if max_staleness else None
    frame = engine.sql(text.strip().rstrip(";"), consistency, barrier, bound)
    rows = frame.limit(limit).collect()
    if as_json:
        for row in rows:
            click.echo(json.dumps(row.asDict(recursive=True), default=str))
        return
    shown = [["NULL" if value is None else str(value) for value in row] for row in rows]
    print_table(console(), frame.columns, shown)


@click.command()
@click.option("--barrier", type=click.IntRange(min=1), required=True)
@click.option("--timeout", default="5 minutes", show_default=True, help="how long, at most")
@for_one_store
def wait(where: tuple[str, str], as_json: bool, barrier: int, timeout: str) -> None:
    """Wait until a barrier, or a later one, is published: then its changes can be read."""
    url, token = where
    seconds = seconds_of(timeout, "--timeout")
    with closing(MetaStore.open(url, token=token)) as store:
        last = wait_for(store, barrier, seconds)
    click.echo(json.dumps({"barrier": last}) if as_json else f"barrier {last} is published")
