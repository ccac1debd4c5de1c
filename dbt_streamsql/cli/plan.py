"""`streamsql plan`: plan files, in which people set how long each operator keeps state."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from dbt_streamsql.adapter.dbt_commands import Invocation
from dbt_streamsql.adapter.plan_files import file_of
from dbt_streamsql.adapter.profile.profiles import credentials_of
from dbt_streamsql.adapter.session.host import SparkHost, host_of_profile
from dbt_streamsql.cli.common.options import (
    PROJECT,
    errors_as_text,
    for_one_engine,
    for_one_host,
    print_json,
)
from dbt_streamsql.engine import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.inspect.topology_text import printable
from dbt_streamsql.plan.document import PlanDocument, differences
from dbt_streamsql.plan.explained import explain as explained
from dbt_streamsql.plan.explained import kept_for_ever
from dbt_streamsql.storage.text_files import Session, read_text, write_text

DIFFERENT = 1
"""Exit code of `plan diff` when there are differences, as in `diff`."""


@click.group()
def plan() -> None:
    """Work with plan files: compiled views as JSON, in which you can change state TTLs.

    PLAN is a path, or a URI of any file system that Spark can reach (file:, s3a:, hdfs: …).
    """


@plan.command(name="compile")
@click.argument("model")
@click.option("--to", help="path or URI to write to, instead of target/plans/MODEL.json")
@errors_as_text
def compile_plan(model: str, to: str | None, **named: str | None) -> None:
    """Write the plan file of one MODEL in the project, as `dbt compile` does."""
    credentials, root = credentials_of(
        named["project_dir"], named["profiles_dir"], named["profile"], named["target"]
    )
    flags = {**named, "project_dir": str(root)}
    words = tuple(f"--{k.replace('_', '-')}={v}" for k, v in flags.items() if v is not None)
    file = _compiled(model, root, Invocation(words))
    if to is not None:
        host = host_of_profile(credentials, root)
        write_text(to, file.read_text(encoding="utf-8"), lambda: host.spark)
    click.echo(printable(to or str(file)))


for option in PROJECT:
    option(compile_plan)


def _compiled(model: str, root: Path, invocation: Invocation) -> Path:
    nodes = [node for node in invocation.compile(model) if node.resource_type == "model"]
    if len(nodes) != 1:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "`plan compile` needs exactly one model",
            given=f"`{model}` selects {len(nodes)} models",
            allowed="the name of one materialized view in the project",
            hint="`dbt compile` writes the plan files of all views",
        )
    node = nodes[0]
    # dbt writes <target>/compiled/<package>/<file>.
    beside = len(Path(node.original_file_path).parts) + 1
    file = file_of(node, (root / node.compiled_path).parents[beside])
    if not file.exists():
        raise StreamSqlError(
            "PLAN_MISMATCH",
            "the model has no plan",
            given=f"{node.name}, materialized: {node.config.materialized}",
            allowed="a materialized view whose inputs exist",
            hint="build its inputs (`dbt run --select +MODEL`), then compile it again",
        )
    return file


@plan.command()
@click.argument("plan")
@for_one_host
def explain(host: SparkHost, as_json: bool, plan: str) -> None:
    """Print the operators of PLAN: the state of each, its TTL, and which state is unbounded."""
    document = _read(plan, lambda: host.spark)
    if as_json:
        print_json({"plan": asdict(document), "kept_for_ever": kept_for_ever(document)})
    else:
        click.echo(printable(explained(document)))


@plan.command()
@click.argument("old")
@click.argument("new")
@for_one_host
def diff(host: SparkHost, as_json: bool, old: str, new: str) -> int:
    """Print the differences between plans OLD and NEW. Exit code 1 if there are any."""
    found = differences(*(_read(place, lambda: host.spark) for place in (old, new)))
    if as_json:
        print_json({"differences": found})
    elif found:
        click.echo(printable("\n".join(found)))
    return DIFFERENT if found else 0


@plan.command()
@click.argument("plan")
@for_one_engine
def validate(engine: Engine, as_json: bool, plan: str) -> None:
    """Check that PLAN is readable, and is the plan of its query over the current tables."""
    document = _read(plan, lambda: engine.spark)
    engine.tables.validate_plan(document)
    if as_json:
        print_json({"table": document.table, "valid": True})
    else:
        click.echo(printable(f"{plan} is the plan of {document.table or 'its query'}"))


@plan.command()
@click.argument("plan")
@click.option("--into", help="table (schema.name) to use instead of the plan's")
@for_one_engine
def execute(engine: Engine, as_json: bool, plan: str, into: str | None) -> None:
    """Execute PLAN: define its table by the file from now on, and bring the table up to date."""
    report = engine.execute(_read(plan, lambda: engine.spark), into=into or "")
    if as_json:
        print_json(asdict(report))
    else:
        click.echo(
            printable(
                f"{report.table}: {report.mode} +{report.rows_inserted} "
                f"-{report.rows_deleted}, barrier {report.barrier}"
            )
        )


def _read(place: str, spark: Session) -> PlanDocument:
    return PlanDocument.from_json(read_text(place, spark))
