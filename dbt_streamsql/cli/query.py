"""`streamsql query` and `wait`: one consistent cut, for scripts and for a look."""

from __future__ import annotations

import json
import sys
from contextlib import closing

import click

from dbt_streamsql.adapter.host import Host
from dbt_streamsql.cli.options import for_one_engine, for_one_host
from dbt_streamsql.cli.tables import console, print_table
from dbt_streamsql.durations import seconds_of
from dbt_streamsql.engine import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import LEVELS, MetaStore
from dbt_streamsql.meta.waiting import wait_for, wait_for_lag, wait_for_table
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.columns import collected


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
    rows = collected(frame.limit(limit))
    if as_json:
        for row in rows:
            click.echo(json.dumps(row.asDict(recursive=True), default=str))
        return
    shown = [["NULL" if value is None else str(value) for value in row] for row in rows]
    print_table(console(), frame.columns, shown)


@click.command()
@click.option("--for", "table", help="a maintained table, instead of all that are published")
@click.option("--barrier", type=click.IntRange(min=1), help="this one or a later one")
@click.option("--lag", help="with --for: until it is no older: 30s, 5 minutes. Spark starts")
@click.option("--timeout", default="5 minutes", show_default=True, help="how long, at most")
@for_one_host
def wait(
    host: Host,
    as_json: bool,
    table: str | None,
    barrier: int | None,
    lag: str | None,
    timeout: str,
) -> None:
    """Wait until a barrier, or a later one, is published: then its changes can be read.

    With `--for` until a table holds all that its sources held at the barrier, or until the oldest
    change that it does not hold is no older than `--lag`. Exit code 2 when the time is over.
    """
    if (barrier is None) == (lag is None) or (lag is not None and table is None):
        raise StreamSqlError(
            "CONFIG_INVALID",
            "it is not said what to wait for",
            allowed="`--barrier N`, `--for TABLE --barrier N`, or `--for TABLE --lag 30s`",
        )
    seconds = seconds_of(timeout, "--timeout")
    name = str(TableName.parse(table, host.settings.catalog)) if table is not None else ""
    if lag is not None:
        at_most = seconds_of(lag, "--lag")
        now = wait_for_lag(lambda: host.engine.lag(name), name, at_most, seconds)
        click.echo(
            json.dumps({"table": name, "lag": now}) if as_json else f"{name}: a lag of {now:.1f} s"
        )
        return
    assert barrier is not None
    with closing(MetaStore.open(host.meta, token=host.meta_token)) as store:
        if name:
            last = wait_for_table(store, name, barrier, seconds)
        else:
            last = wait_for(store, barrier, seconds)
    told = f"{name} is at barrier {last}" if name else f"barrier {last} is published"
    click.echo(json.dumps({"barrier": last}) if as_json else told)
