"""`streamsql run`: the runner, as a live table on a terminal and elsewhere as JSON lines."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import click

from dbt_streamsql.adapter.dbt_commands import Invocation
from dbt_streamsql.adapter.profile.profiles import credentials_of
from dbt_streamsql.adapter.session.host import host_of_profile
from dbt_streamsql.cli.common.options import (
    FOLDER,
    engine_of_warehouse,
    errors_as_text,
    of_a_project,
)
from dbt_streamsql.cli.common.progress import told_on
from dbt_streamsql.durations import seconds_of
from dbt_streamsql.engine import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runner.events import Tell
from dbt_streamsql.runner.loop import Runner, Schedule
from dbt_streamsql.runner.project import DbtProject
from dbt_streamsql.runner.several import Child, Several
from dbt_streamsql.stop_signals import stop_on_signals

T = TypeVar("T")

FAILED = 1
"""Exit code of `--once` when something failed."""


@click.command()
@click.option(
    "--interval", default="10s", show_default=True, help="time between epochs: 500ms, 1m"
)
@click.option("--continuous", is_flag=True, help="start each epoch right after the previous one")
@click.option("--once", is_flag=True, help="run one epoch; exit code 1 if anything fails")
@click.option("-s", "--select", multiple=True, help="models to select, as in dbt")
@click.option("--exclude", multiple=True, help="models to exclude, as in dbt")
@click.option("--seeds", is_flag=True, help="load the seeds, now and when a CSV file changes")
@click.option("--json", "as_json", is_flag=True, help="print JSON lines even on a terminal")
@click.option("--warehouse", type=FOLDER, help="warehouse folder to use instead of a project")
@of_a_project
@click.option(
    "--target",
    "targets",
    multiple=True,
    help="profile target to use; several run in parallel, each with its own models: "
    "sales=path:models/sales",
)
@errors_as_text
def run(
    interval: str,
    continuous: bool,
    once: bool,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    seeds: bool,
    as_json: bool,
    warehouse: str | None,
    targets: tuple[str, ...],
    **named: str | None,
) -> int:
    """Keep the tables of a project up to date until stopped (Ctrl-C, SIGTERM).

    One process does so at a time; others stand by and take over when it exits or crashes.
    """
    if once and continuous:
        raise StreamSqlError("CONFIG_INVALID", "`--once` cannot be combined with `--continuous`")
    pace = Schedule(0.0 if continuous else seconds_of(interval, "--interval"), once)
    if warehouse is not None:
        if targets or any(named.values()) or select or exclude or seeds:
            raise StreamSqlError(
                "CONFIG_INVALID",
                "`--warehouse` cannot be combined with a project, a profile or models",
                hint="choose a warehouse, or a project and its models",
            )
        return _lead(engine_of_warehouse(warehouse), pace, as_json, None)
    chosen = dict(_target_and_models(word, select) for word in targets) or {None: select}
    project_dir, profiles_dir, profile = (
        named[name] for name in ("project_dir", "profiles_dir", "profile")
    )
    found = {
        target: credentials_of(project_dir, profiles_dir, profile, target) for target in chosen
    }
    _refuse_one_twice({target: each.meta_url(root) for target, (each, root) in found.items()})
    target, (credentials, root) = next(iter(found.items()))
    given = {"project-dir": str(root), "profiles-dir": profiles_dir, "profile": profile}
    flags = [f"--{name}={value}" for name, value in given.items() if value is not None]
    if len(found) > 1:
        rhythm = "--once" if once else "--continuous" if continuous else f"--interval={interval}"
        words = [rhythm, *flags, *(f"--exclude={each}" for each in exclude)]
        words += ["--seeds"] * seeds
        several = {
            str(target): _child(str(target), root, [*words, *(f"--select={m}" for m in models)])
            for target, models in chosen.items()
        }
        return _until_told(as_json, lambda tell, stop: Several(several, once, tell).run(stop))
    if target is not None:
        flags.append(f"--target={target}")
    models = tuple(word for each in chosen[target] for word in each.split())
    without = tuple(word for each in exclude for word in each.split())
    project = DbtProject(root, Invocation(tuple(flags), models, without), seeds=seeds)
    return _lead(host_of_profile(credentials, root).engine, pace, as_json, project)


def _target_and_models(word: str, select: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """`stock=path:models/stock`, or a target alone, which gets what is selected for all."""
    target, chooses, models = word.partition("=")
    if chooses and select:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "models are selected both by `--target` and by `--select`",
            given=f"`--target {word}` and `--select {select[0]}`",
            allowed="`--select` for all targets, or models for each target",
            hint="remove one of them",
        )
    return target, (models,) if chooses else select


def _refuse_one_twice(stores: Mapping[str | None, str]) -> None:
    """Two runners of one boundary would stand by for each other."""
    for one, other in combinations(stores, 2):
        if stores[one] == stores[other]:
            raise StreamSqlError(
                "CONFIG_INVALID",
                "two targets have the same topology",
                given=f"`--target {one} --target {other}`",
                allowed="targets with different boundaries or different stores",
                hint="give each a `boundary` in profiles.yml, or pass only one of them",
            )


def _child(target: str, root: Path, words: Sequence[str]) -> Child:
    # dbt writes its artifacts where no other process of this project does.
    places = {
        name: str(Path(os.environ.get(name, root / folder)) / target)
        for name, folder in (("DBT_TARGET_PATH", "target"), ("DBT_LOG_PATH", "logs"))
    }
    command = [sys.executable, "-m", "dbt_streamsql.cli", "run", "--json", *words]
    return Child((*command, f"--target={target}"), {**os.environ, **places})


def _lead(engine: Engine, pace: Schedule, as_json: bool, project: DbtProject | None) -> int:
    well = _until_told(as_json, lambda tell, stop: Runner(engine, pace, tell, project).run(stop))
    return FAILED if pace.once and not well else 0


def _until_told(as_json: bool, work: Callable[[Tell, threading.Event], T]) -> T:
    """The result of `work`; the first signal stops it, the second one interrupts it."""
    with stop_on_signals(again=_interrupt) as stop, told_on(as_json) as tell:
        return work(tell, stop)


def _interrupt() -> None:
    """What the epoch has staged is undone on the way out."""
    raise KeyboardInterrupt
