"""`streamsql run`: the runner, told on a terminal as a live table and elsewhere as JSON lines."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType

import click

from dbt_streamsql.adapter.host import host_of_profile
from dbt_streamsql.adapter.invoking import Invocation
from dbt_streamsql.adapter.profiles import credentials_of
from dbt_streamsql.cli.options import FOLDER, engine_of_warehouse, errors_as_text, of_a_project
from dbt_streamsql.cli.progress import told_on
from dbt_streamsql.durations import seconds_of
from dbt_streamsql.engine import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runner.loop import Pace, Runner
from dbt_streamsql.runner.project import DbtProject

FAILED = 1
"""Exit code of `--once` when something failed."""


@click.command()
@click.option("--interval", default="10s", show_default=True, help="between epochs: 500ms, 1m")
@click.option("--continuous", is_flag=True, help="one epoch after the other")
@click.option("--once", is_flag=True, help="one epoch; exit code 1 when something failed in it")
@click.option("-s", "--select", multiple=True, help="models, as dbt selects them")
@click.option("--exclude", multiple=True, help="models, as dbt excludes them")
@click.option("--json", "as_json", is_flag=True, help="JSON lines also on a terminal")
@click.option("--warehouse", type=FOLDER, help="a warehouse folder, instead of a project")
@of_a_project
@errors_as_text
def run(
    interval: str,
    continuous: bool,
    once: bool,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    as_json: bool,
    warehouse: str | None,
    **named: str | None,
) -> int:
    """Keep the tables of a project up to date until it is told to stop (Ctrl-C, SIGTERM).

    One process does so at a time; others stand by, and take over when it ends or dies.
    """
    if once and continuous:
        raise StreamSqlError("CONFIG_INVALID", "`--once` and `--continuous` exclude each other")
    pace = Pace(0.0 if continuous else seconds_of(interval, "--interval"), once)
    if warehouse is not None:
        if any(named.values()) or select or exclude:
            raise StreamSqlError(
                "CONFIG_INVALID",
                "`--warehouse` stands alone",
                hint="name a warehouse, or a project and what is selected of it",
            )
        return _run(engine_of_warehouse(warehouse), pace, as_json, None)
    credentials, root = credentials_of(
        *(named[name] for name in ("project_dir", "profiles_dir", "profile", "target"))
    )
    flags = [f"--project-dir={root}"]
    flags += [
        f"--{name.replace('_', '-')}={value}"
        for name, value in named.items()
        if value is not None and name != "project_dir"
    ]
    words = tuple(word for each in select for word in each.split())
    without = tuple(word for each in exclude for word in each.split())
    project = DbtProject(Path(root), Invocation(tuple(flags), words, without))
    return _run(host_of_profile(credentials, root).engine, pace, as_json, project)


def _run(engine: Engine, pace: Pace, as_json: bool, project: DbtProject | None) -> int:
    stop = threading.Event()

    def asked(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's signature
        if stop.is_set():
            # The second time: what the epoch has staged is undone on the way out.
            raise KeyboardInterrupt
        stop.set()

    before = {each: signal.signal(each, asked) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        with told_on(as_json) as tell:
            well = Runner(engine, pace, tell, project).run(stop)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    return FAILED if pace.once and not well else 0
