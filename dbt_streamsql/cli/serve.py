"""`streamsql meta serve`: MetaService, for processes that reach a store over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from dbt_streamsql.adapter.common import secrets
from dbt_streamsql.cli.common.options import PROJECT, errors_as_text
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.client.open_store import open_database
from dbt_streamsql.meta.model.addresses import STORE_FILE, file_of, in_file
from dbt_streamsql.meta.model.tokens import Tokens
from dbt_streamsql.meta.store.sql.database import redact

if TYPE_CHECKING:
    from fastapi import APIRouter

    from dbt_streamsql.engine.reads.limited_queries import LimitedQueries
    from dbt_streamsql.meta import MetaReader
    from dbt_streamsql.web.access import Sees
    from dbt_streamsql.web.queries import Ask

DEFAULT_PORT = 8123
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--store",
    envvar="STREAMSQL_STORE",
    help="SQLite file, folder for one, or SQLAlchemy URL to use instead of a profile",
)
@click.option("--port", type=click.IntRange(0, 65535), help="[default: the profile's, or 8123]")
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on")
@click.option("--name", "names", multiple=True, help="additional host name that clients use")
@click.option(
    "--token-file", type=_FILE, help="[default: next to a SQLite store; created if missing]"
)
@click.option("--tls-cert", type=_FILE, help="TLS certificate chain (PEM)")
@click.option("--tls-key", type=_FILE, help="TLS private key (PEM)")
@click.option("--quiet", is_flag=True, help="do not log requests")
@click.option(
    "--queries",
    is_flag=True,
    help="let the pages run queries, on a Spark that the first one starts",
)
@errors_as_text
def serve(
    store: str | None,
    port: int | None,
    host: str,
    names: tuple[str, ...],
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    quiet: bool,
    queries: bool,
    project_dir: str | None,
    profiles_dir: str | None,
    profile: str | None,
    target: str | None,
) -> None:
    """Serve a MetaService store, so that a profile can set `meta: http://127.0.0.1:8123`.

    The store is `--store`, or that of the project's profile. Press Ctrl-C to stop.
    """
    try:
        from dbt_streamsql import web
        from dbt_streamsql.meta import service
    except ModuleNotFoundError as error:
        raise StreamSqlError(
            "META_SERVICE",
            "a package that the service needs is missing",
            given=str(error.name),
            hint='pip install "dbt-streamsql[service]"',
        ) from error
    if queries and store is not None:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "`--queries` needs the profile, which says where the tables are",
            given="a store without a profile",
            hint="leave out `--store`, and unset STREAMSQL_STORE",
        )
    if store is None:
        url, known_port = _of_profile(project_dir, profiles_dir, profile, target)
    else:
        _refuse_password(store)
        url, known_port = _url_of(store), DEFAULT_PORT
    listening = known_port if port is None else port
    address = service.Address(host, listening, tls_cert, tls_key, names)
    address.check()
    tokens = token_file or _beside(url)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("dbt_streamsql.meta").setLevel(logging.WARNING if quiet else logging.INFO)

    def started(where: str) -> None:
        click.echo(f"MetaService of {redact(url)}")
        click.echo(f"  meta: {where}")
        click.echo(f"  pages: {where}{web.access.PATH}/")
        click.echo(f"  token file: {tokens}")
        click.echo("Press Ctrl-C to stop.")

    named = (project_dir, profiles_dir, profile, target)
    opened = open_database(url)
    asked = _queries(opened, url, *named) if queries else None

    def pages(known: Tokens, stopping: Callable[[], bool]) -> APIRouter:
        def verify(token: str) -> web.Sees | None:
            identity = known.find(token)
            return identity.sees if identity is not None else None

        ask = _as_data(asked) if asked is not None else None
        return web.router(opened, verify, stopping=stopping, ask=ask)

    try:
        service.serve(opened, address, tokens, started, pages, web.PUBLIC)
    finally:
        if asked is not None:
            asked.close()
        opened.close()
    click.echo("MetaService has stopped.")


for _option in PROJECT:
    serve = _option(serve)


def _of_profile(*named: str | None) -> tuple[str, int]:
    """The store and the port of a project's profile."""
    from dbt_streamsql.adapter.profile.profiles import credentials_of

    credentials, root = credentials_of(*named)
    url = credentials.meta_url(root)
    if not url.startswith(("http://", "https://")):
        return _url_of(url), DEFAULT_PORT
    return _url_of(credentials.meta_file(root)), urlsplit(url).port or DEFAULT_PORT


def _queries(store: MetaReader, url: str, *named: str | None) -> LimitedQueries:
    """Queries of a project's profile; Spark starts with the first one. The store is read
    directly, not through the service that is about to run."""
    from dbt_streamsql.adapter.profile.profiles import credentials_of
    from dbt_streamsql.adapter.session.host import host_of
    from dbt_streamsql.engine.reads.limited_queries import LimitedQueries

    credentials, root = credentials_of(*named)
    settings = credentials.settings(root)
    # Not the warm engine: a query that takes all memory would end the runs that use it.
    host = host_of(settings, url, server=False, options=credentials.engine_options)
    return LimitedQueries(store, lambda: host.engine, settings.catalog)


def _as_data(queries: LimitedQueries) -> Ask:
    def ask(sql: str, barrier: int | None, sees: Sees) -> dict[str, Any]:
        return asdict(queries.ask(sql, barrier, sees))

    return ask


def _url_of(store: str) -> str:
    """The SQLAlchemy URL of a store; creates the folder of a SQLite file."""
    named = file_of(store)
    if "://" in store and named is None:
        return store
    file = (named or Path(store)).expanduser().absolute()
    if file.is_dir() or not (file.exists() or file.suffix):
        file /= STORE_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    return in_file(file)


def _refuse_password(store: str) -> None:
    context = click.get_current_context()
    on_line = context.get_parameter_source("store") is ParameterSource.COMMANDLINE
    if on_line and secrets.in_url(store):
        raise StreamSqlError(
            "META_SERVICE",
            "passwords on a command line are visible to every user of this machine",
            given=redact(store),
            hint="set the URL in the environment variable STREAMSQL_STORE, or in a profile",
        )


def _beside(url: str) -> Path:
    file = file_of(url)
    if file is not None:
        return file.with_name(f"{file.name}.token")
    raise StreamSqlError(
        "META_SERVICE",
        "a token file is needed",
        given=redact(url),
        hint="set `--token-file`; a missing file is created with a new token",
    )
