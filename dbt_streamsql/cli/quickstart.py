"""`streamsql quickstart`: a project that runs by itself, and a page to watch it."""

from __future__ import annotations

import json
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click
import httpx

from dbt_streamsql.cli.common.options import errors_as_text
from dbt_streamsql.cli.serve import DEFAULT_PORT
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.client import local_tokens
from dbt_streamsql.quickstart import Background, Running, write_project

INTERVAL = "3s"
RUNNER, PAGE = "runner", "page"
_SERVICE = ("fastapi", "uvicorn", "prometheus_client")
_WAITS_SECONDS = 600
"""A first start downloads jars before it; a process that dies is noticed at once."""

Found = TypeVar("Found")


@click.command()
@click.argument("folder", default="shop", type=click.Path(file_okay=False, path_type=Path))
@click.option("--stop", is_flag=True, help="stop what an earlier quickstart has started")
@errors_as_text
def quickstart(folder: Path, stop: bool) -> None:
    """Write a small project into FOLDER [default: shop], and run it.

    A runner brings the views up to date every 3 seconds, and a web page shows what it does, until
    `streamsql quickstart --stop`. Call it again for a new sign-in link.
    """
    root = folder.absolute()
    if stop:
        _stop(root)
        return
    _check_packages()
    steps = _Steps()
    written = write_project(root)
    steps.done(f"wrote the project {folder} ({written} files)" if written else f"found {folder}")
    background = Background(root)
    with background.starting() as mine:
        if not mine:
            raise StreamSqlError(
                "CONFIG_INVALID", "another quickstart is starting this project", given=str(root)
            )
        page = _start(background, steps)
    steps.begin("waiting for the next change")
    _show(_until(lambda: _last_change(background), background, RUNNER))
    link = _until(lambda: _sign_in_link(page.port), background, PAGE)
    click.echo(_NEXT.format(link=link, folder=shlex.quote(str(folder))))


def _start(background: Background, steps: _Steps) -> Running:
    """Start what does not run yet, and wait until the views are there; the page."""
    if background.find(RUNNER) is None:
        steps.begin("starting Spark; the first time, it downloads 70 MB of jars")
        words = ("run", "--json", "--seeds", f"--interval={INTERVAL}")
        # Over the connection to a warm engine, small epochs take several times as long.
        background.start(RUNNER, _command(*words), STREAMSQL_SERVER="off")
        _until(lambda: _has(background, "leading"), background, RUNNER)
        steps.done("Spark is up")
    page = background.find(PAGE) or _serve(background)
    if not _has(background, "tick"):
        steps.begin("building the views")
        _until(lambda: _registered(background), background, RUNNER)
    steps.done("the views are published, and kept up to date")
    _until(lambda: _sign_in_link(page.port), background, PAGE)
    steps.done("the page is served")
    return page


_NEXT = """
Watch it; the link signs in one browser, once:
  {link}

README.md there says what to try. To stop it: streamsql quickstart {folder} --stop"""


class _Steps:
    """Lines with the seconds since the command began."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def begin(self, what: str) -> None:
        click.echo(f"         {what} …")

    def done(self, what: str) -> None:
        click.echo(f"{time.monotonic() - self._began:6.1f} s {what}")


def _check_packages() -> None:
    missing = [name for name in _SERVICE if find_spec(name) is None]
    if missing:
        raise StreamSqlError(
            "META_SERVICE",
            "packages that the page needs are missing",
            given=", ".join(missing),
            hint='pip install "dbt-streamsql[service]"',
        )


def _command(*words: str) -> list[str]:
    folders = ("--project-dir", ".", "--profiles-dir", ".")
    return [sys.executable, "-m", "dbt_streamsql.cli", *words, *folders]


def _has(background: Background, kind: str) -> bool:
    return any(event["event"] == kind for event in _events(background))


def _registered(background: Background) -> bool:
    """Whether the models have been run. Error: PROJECT_INVALID when one of them failed."""
    # An epoch that fails is repeated, and says when.
    told = [
        event
        for event in _events(background)
        if event["event"] == "project" or (event["event"] == "error" and "retry_in" not in event)
    ]
    if told and (told[-1]["event"] == "error" or told[-1]["failed"]):
        raise StreamSqlError(
            "PROJECT_INVALID",
            "the models could not be run",
            given=str(told[-1].get("message") or told[-1]["failed"]),
            hint="correct them: the runner goes on and reads the project when a file changes. "
            "`streamsql quickstart --stop` stops it",
        )
    return bool(told)


def _serve(background: Background) -> Running:
    port = _free_port()
    # Its Spark starts only when someone asks for rows.
    words = ("meta", "serve", "--quiet", "--queries", f"--port={port}")
    return background.start(PAGE, _command(*words), port)


def _free_port() -> int:
    """The usual port, or any other when it is taken."""
    for port in (DEFAULT_PORT, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise StreamSqlError("META_SERVICE", "no port of the loopback address is free")


def _sign_in_link(port: int) -> str:
    """A link that signs in once; '' while the service does not answer."""
    address = f"http://127.0.0.1:{port}/ui/"
    headers = {"Authorization": f"Bearer {local_tokens.find(port)}"}
    try:
        answer = httpx.post(f"{address}link", headers=headers, trust_env=False)
    except httpx.TransportError:
        return ""
    return f"{address}#code={answer.json()['code']}" if answer.is_success else ""


def _events(background: Background) -> Iterator[dict[str, Any]]:
    """What the runner has said so far."""
    for line in background.log(RUNNER).read_text(errors="replace").splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:  # it is still being written
                return


def _last_change(background: Background) -> dict[str, Any] | None:
    """The newest epoch that has applied changes."""
    found = None
    for event in _events(background):
        tables = event["tables"].values() if event["event"] == "tick" else ()
        if any(table["mode"] != "full" for table in tables):
            found = event
    return found


def _show(tick: dict[str, Any]) -> None:
    tables = tick["tables"]
    inserted = sum(table["rows_inserted"] for table in tables.values())
    deleted = sum(table["rows_deleted"] for table in tables.values())
    in_full = sum(table["last_full"] or 0.0 for table in tables.values())
    click.echo(
        f"\nBarrier {tick['barrier']}: {len(tables)} tables changed together, +{inserted} "
        f"-{deleted} rows, in {tick['seconds']:.1f} s. Building the views took {in_full:.1f} s."
    )


def _until(look: Callable[[], Found | None], background: Background, name: str) -> Found:
    """What `look` finds while the process runs."""
    end = time.monotonic() + _WAITS_SECONDS
    while not (found := look()):
        if background.find(name) is None or time.monotonic() > end:
            raise background.problem(name)
        time.sleep(0.2)
    return found


def _stop(root: Path) -> None:
    background = Background(root)
    if not background.exists:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "no quickstart has been started in the folder",
            given=str(root),
            hint="name the folder of its project",
        )
    stopped = [name for name in (RUNNER, PAGE) if background.stop(name)]
    click.echo(f"Stopped: {', '.join(stopped)}." if stopped else "Nothing was running.")
