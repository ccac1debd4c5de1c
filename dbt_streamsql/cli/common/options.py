"""What commands share: which warehouse is meant, errors as text, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from pyspark.errors import PySparkException

from dbt_streamsql.adapter.common.error_messages import cause_of
from dbt_streamsql.adapter.session.host import SparkHost, host_of, host_of_profile
from dbt_streamsql.engine import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.addresses import STORE_FILE, in_file
from dbt_streamsql.runtime.spark.settings import SessionSettings

FOLDER = click.Path(file_okay=False)
_FOLDERS = (
    click.option("--profile", help="profile to use instead of the project's"),
    click.option("--profiles-dir", type=FOLDER, help="folder of profiles.yml, as in dbt"),
    click.option("--project-dir", type=FOLDER, help="folder of dbt_project.yml, as in dbt"),
)
PROJECT = (click.option("--target", help="profile target to use"), *_FOLDERS)
"""How dbt finds a profile: the parameters `project_dir`, `profiles_dir`, `profile`, `target`."""


def of_a_project(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that select the project and profile, without the target."""
    for option in _FOLDERS:
        command = option(command)
    return command


def errors_as_text(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command's result is the exit code (None: 0); an error is text and exit code 2."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            sys.exit(command(*arguments, **options) or 0)
        except StreamSqlError as error:
            click.echo(str(error), err=True)
            sys.exit(2)

    return run


def for_one_warehouse(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that select the warehouse; the command receives its settings."""
    return _choosing(_settings, command)


def for_one_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same; the command receives the store's address and the token for a MetaService."""
    return _choosing(_meta, command)


def for_one_host(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same; the command receives the host, whose Spark starts when its engine is used."""
    return _choosing(_host, command)


def for_one_engine(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same; the command receives an open engine: Spark starts."""

    @wraps(command)
    def run(host: SparkHost, **options: Any) -> Any:
        try:
            return command(host.engine, **options)
        except PySparkException as error:
            raise StreamSqlError("SQL_INVALID", cause_of(error)) from error

    return _choosing(_host, run)


def _choosing(choose: Callable[..., Any], command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def run(
        warehouse: str | None,
        project_dir: str | None,
        profiles_dir: str | None,
        profile: str | None,
        target: str | None,
        **options: Any,
    ) -> Any:
        named = (project_dir, profiles_dir, profile, target)
        if warehouse is not None and any(named):
            raise StreamSqlError(
                "CONFIG_INVALID",
                "`--warehouse` cannot be combined with a project or a profile",
                hint="choose a warehouse, or a project and its profile",
            )
        folder = Path(warehouse).expanduser().resolve() if warehouse is not None else None
        return command(choose(folder, *named), **options)

    wrapped = errors_as_text(run)
    for option in (
        click.option("--json", "as_json", is_flag=True, help="print JSON"),
        *PROJECT,
        click.option(
            "--warehouse", type=FOLDER, help="warehouse folder to use instead of a profile"
        ),
    ):
        wrapped = option(wrapped)
    return wrapped


def print_json(body: dict[str, Any]) -> None:
    click.echo(json.dumps(body))


def _settings(warehouse: Path | None, *named: str | None) -> SessionSettings:
    if warehouse is not None:
        return SessionSettings(warehouse=str(warehouse))
    from dbt_streamsql.adapter.profile.profiles import settings_of

    return settings_of(*named)


def engine_of_warehouse(folder: str) -> Engine:
    """The engine of a warehouse folder without a project: Spark starts."""
    return _host(Path(folder).expanduser().resolve()).engine


def _host(warehouse: Path | None, *named: str | None) -> SparkHost:
    if warehouse is not None:
        meta, _ = _meta(warehouse)
        return host_of(SessionSettings(warehouse=str(warehouse)), meta)
    from dbt_streamsql.adapter.profile.profiles import credentials_of

    credentials, root = credentials_of(*named)
    return host_of_profile(credentials, root)


def _meta(warehouse: Path | None, *named: str | None) -> tuple[str, str]:
    if warehouse is not None:
        return in_file(warehouse / STORE_FILE), ""
    from dbt_streamsql.adapter.profile.profiles import meta_of

    return meta_of(*named)
