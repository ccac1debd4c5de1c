"""The command `streamsql`: what is not dbt's. `dbt` itself stays the way to run models."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from dbt_streamsql import cli_status
from dbt_streamsql.__version__ import version
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.session import SessionSettings
from dbt_streamsql.server import control
from dbt_streamsql.server.record import Record, State

NOT_RUNNING = 3
"""Exit code of `status`, as service managers have it."""
_MIB = 1 << 20


@click.group()
@click.version_option(version, prog_name="streamsql")
def main() -> None:
    """Materialized views for dbt on Spark: what dbt has no command for."""


cli_status.register(main)


@main.group()
def server() -> None:
    """The warm engine: a local Spark that stays up between dbt commands, used by itself."""


def _for_one_engine(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which warehouse is meant, and errors as text with exit code 2."""

    @wraps(command)
    def run(
        warehouse: str | None,
        project_dir: str | None,
        profiles_dir: str | None,
        profile: str | None,
        target: str | None,
        **options: Any,
    ) -> None:
        try:
            named = (project_dir, profiles_dir, profile, target)
            sys.exit(command(_settings(warehouse, *named), **options) or 0)
        except StreamSqlError as error:
            click.echo(str(error), err=True)
            sys.exit(2)

    folder = click.Path(file_okay=False)
    for option in (
        click.option("--json", "as_json", is_flag=True, help="print JSON"),
        click.option("--target", help="of the profile"),
        click.option("--profile", help="instead of the project's"),
        click.option("--profiles-dir", type=folder, help="folder of profiles.yml, as dbt's"),
        click.option("--project-dir", type=folder, help="folder of dbt_project.yml, as dbt's"),
        click.option("--warehouse", type=folder, help="a warehouse folder, instead of a profile"),
    ):
        run = option(run)
    return run


@server.command()
@click.option(
    "--idle-minutes",
    type=click.FloatRange(min=0),
    default=240,
    show_default=True,
    help="end after so long without use; 0: never",
)
@_for_one_engine
def start(settings: SessionSettings, as_json: bool, idle_minutes: float) -> None:
    """Start the engine, unless it runs."""
    began = time.monotonic()
    record, started = control.start(settings, idle_minutes * 60)
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        _print({**_public(record), "started": started, "seconds": seconds})
        return
    said = f"started in {seconds} s" if started else "runs already"
    click.echo(f"The warm engine of {record.warehouse} {said} (process {record.pid}).")
    click.echo("`dbt` uses it from now on; `streamsql server stop` ends it.")


@server.command()
@click.option("--force", is_flag=True, help="end it even if runs are using it: they fail")
@_for_one_engine
def stop(settings: SessionSettings, as_json: bool, force: bool) -> None:
    """End the engine, if it runs and nobody is using it."""
    state = control.stop(settings, force=force)
    if as_json:
        _print({"stopped": state is not None, "sessions": state.sessions if state else 0})
        return
    where = f"The warm engine of {settings.warehouse}"
    click.echo(f"{where} has ended." if state else f"{where} does not run.")


@server.command()
@_for_one_engine
def status(settings: SessionSettings, as_json: bool) -> int:
    """Tell whether the engine runs, and what it does. Exit code 3 when it does not run."""
    found = control.status(settings)
    if found is None:
        if as_json:
            _print({"running": False, "warehouse": settings.warehouse})
        else:
            click.echo(f"The warm engine of {settings.warehouse} does not run.")
        return NOT_RUNNING
    record, state, problem = found
    if as_json:
        told = _public(record) | (_of_state(state) if state else {})
        _print({"running": True, "usable": not problem, "problem": problem, **told})
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


def _settings(warehouse: str | None, *named: str | None) -> SessionSettings:
    if warehouse is not None:
        if any(named):
            raise StreamSqlError(
                "CONFIG_INVALID",
                "`--warehouse` stands alone",
                hint="name a warehouse, or a project and its profile",
            )
        return SessionSettings(warehouse=str(Path(warehouse).expanduser().resolve()))
    from dbt_streamsql.adapter.profiles import settings_of

    return settings_of(*named)


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


def _print(body: dict[str, Any]) -> None:
    click.echo(json.dumps(body))


if __name__ == "__main__":
    main()
