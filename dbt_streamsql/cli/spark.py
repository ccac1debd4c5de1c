"""`streamsql spark`: the warm engine of a warehouse."""

from __future__ import annotations

import time
from typing import Any

import click

from dbt_streamsql.cli.common.options import errors_as_text, for_one_warehouse, print_json
from dbt_streamsql.runtime.spark import jars
from dbt_streamsql.runtime.spark.settings import SessionSettings
from dbt_streamsql.warm import lifecycle
from dbt_streamsql.warm.record import Record, State

NOT_RUNNING = 3
"""Exit code of `status`, as for service managers."""
_MIB = 1 << 20


@click.group()
def spark() -> None:
    """Manage the warm engine: a local Spark that stays running between dbt commands."""


@spark.command()
@click.option(
    "--idle-minutes",
    type=click.FloatRange(min=0),
    default=240,
    show_default=True,
    help="stop after this time without use; 0: never",
)
@for_one_warehouse
def start(settings: SessionSettings, as_json: bool, idle_minutes: float) -> None:
    """Start the engine unless it is running."""
    began = time.monotonic()
    record, started = lifecycle.start(settings, idle_minutes * 60)
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        print_json({**_public(record), "started": started, "seconds": seconds})
        return
    said = f"started in {seconds} s" if started else "is already running"
    click.echo(f"The warm engine of {record.warehouse} {said} (process {record.pid}).")
    click.echo("`dbt` uses it from now on; `streamsql spark stop` stops it.")


@spark.command()
@click.option("--force", is_flag=True, help="stop it even if runs are using it; these runs fail")
@for_one_warehouse
def stop(settings: SessionSettings, as_json: bool, force: bool) -> None:
    """Stop the engine if it is running and not in use."""
    state = lifecycle.stop(settings, force=force)
    if as_json:
        print_json({"stopped": state is not None, "sessions": state.sessions if state else 0})
        return
    where = f"The warm engine of {settings.warehouse}"
    click.echo(f"{where} has stopped." if state else f"{where} is not running.")


@spark.command()
@for_one_warehouse
def status(settings: SessionSettings, as_json: bool) -> int:
    """Show whether the engine is running, and its state. Exit code 3 if it is not running."""
    found = lifecycle.status(settings)
    if found is None:
        if as_json:
            print_json({"running": False, "warehouse": settings.warehouse})
        else:
            click.echo(f"The warm engine of {settings.warehouse} is not running.")
        return NOT_RUNNING
    record, state, problem = found
    if as_json:
        told = _public(record) | (_of_state(state) if state else {})
        print_json({"running": True, "usable": not problem, "problem": problem, **told})
        return 0
    click.echo(f"The warm engine of {record.warehouse}")
    lines = {"process": record.pid, "port": f"{record.port} on the loopback address"}
    lines["uptime"] = _duration(time.time() - record.since)
    if state is not None:
        lines["sessions"] = f"{state.sessions}, {state.statements} statements running"
        lines["memory"] = f"{state.memory_used // _MIB} of {state.memory_limit // _MIB} MiB"
        lines["idle for"] = _duration(state.idle)
    lines["usable"] = problem or "yes"
    for name, text in lines.items():
        click.echo(f"  {name:<9} {text}")
    return 0


@spark.command("jars")
@click.argument("connectors", nargs=-1, type=click.Choice(jars.CONNECTORS), metavar="[CONNECTOR]…")
@click.option("--iceberg", default="", help="as `iceberg` of the profile")
@click.option("--native", is_flag=True, help="with those of `native: true`")
@errors_as_text
def fetch(connectors: tuple[str, ...], iceberg: str, native: bool) -> None:
    """Download the jars of a profile with these connectors, for an image: no Spark starts.

    Connectors: avro, delta, gcs, glue, kafka, postgres, s3.
    """
    files = jars.ensure(jars.wanted(connectors, native=native, iceberg=iceberg))
    total = sum(file.stat().st_size for file in files)
    click.echo(f"{len(files)} jars, {total / 1e6:.0f} MB, in {files[0].parent}")


def _public(record: Record) -> dict[str, Any]:
    return {
        "pid": record.pid,
        "port": record.port,
        "warehouse": record.warehouse,
        "versions": record.versions,
        "uptime_seconds": round(time.time() - record.since, 1),
    }


def _of_state(state: State) -> dict[str, Any]:
    return {
        "sessions": state.sessions,
        "statements": state.statements,
        "memory_used_bytes": state.memory_used,
        "memory_limit_bytes": state.memory_limit,
        "idle_seconds": round(state.idle, 1),
    }


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min {rest} s" if hours else f"{minutes} min {rest} s"
