"""`streamsql query` and `wait`: one consistent cut, for scripts and for ad hoc use."""

from __future__ import annotations

import json
import sys
from contextlib import closing

import click

from dbt_streamsql.adapter.session.host import SparkHost
from dbt_streamsql.cli.common.options import for_one_engine, for_one_host
from dbt_streamsql.cli.common.tables import console, print_table
from dbt_streamsql.durations import seconds_of
from dbt_streamsql.engine import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import LEVELS, open_store
from dbt_streamsql.meta.inspect.wait import wait_for, wait_for_lag, wait_for_table
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.columns import collected


@click.command()
@click.argument("sql")
@click.option("-c", "--consistency", type=click.Choice(LEVELS), help="[default: the profile's]")
@click.option("--barrier", type=click.IntRange(min=1), help="read no barrier newer than this one")
@click.option(
    "--max-staleness", help="fail if the data is staler than this: 30 seconds, 5 minutes"
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=500,
    show_default=True,
    help="maximum rows to print",
)
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
    """Run a query over one consistent cut, and print its rows (`--json`: one line per row).

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
@click.option("--for", "table", help="maintained table to wait for, instead of all published ones")
@click.option("--barrier", type=click.IntRange(min=1), help="wait for this barrier or a later one")
@click.option("--lag", help="with --for: maximum lag (30s, 5 minutes); starts Spark")
@click.option("--timeout", default="5 minutes", show_default=True, help="maximum time to wait")
@for_one_host
def wait(
    host: SparkHost,
    as_json: bool,
    table: str | None,
    barrier: int | None,
    lag: str | None,
    timeout: str,
) -> None:
    """Wait until a barrier, or a later one, is published and its changes can be read.

    With `--for`, wait until a table holds everything that its sources held at the barrier, or
    until the oldest change that it lacks is no older than `--lag`. Exit code 2 on timeout.
    """
    if (barrier is None) == (lag is None) or (lag is not None and table is None):
        raise StreamSqlError(
            "CONFIG_INVALID",
            "pass either `--barrier` or `--lag`, and `--for` with `--lag`",
            allowed="`--barrier N`, `--for TABLE --barrier N`, or `--for TABLE --lag 30s`",
        )
    seconds = seconds_of(timeout, "--timeout")
    name = str(TableName.parse(table, host.settings.catalog)) if table is not None else ""
    if lag is not None:
        at_most = seconds_of(lag, "--lag")
        now = wait_for_lag(lambda: host.engine.lag(name), name, at_most, seconds)
        click.echo(
            json.dumps({"table": name, "lag": now}) if as_json else f"{name}: lag {now:.1f} s"
        )
        return
    assert barrier is not None
    with closing(open_store(host.meta, token=host.meta_token)) as store:
        if name:
            last = wait_for_table(store, name, barrier, seconds)
        else:
            last = wait_for(store, barrier, seconds)
    told = f"{name} is at barrier {last}" if name else f"barrier {last} is published"
    click.echo(json.dumps({"barrier": last}) if as_json else told)
