"""`streamsql revise`: recompute a table and all downstream from an earlier barrier."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dbt_streamsql.cli.common.options import for_one_engine, print_json
from dbt_streamsql.engine import Engine
from dbt_streamsql.engine.revisions import lines_after, lines_before
from dbt_streamsql.meta.inspect.topology_text import printable
from dbt_streamsql.runtime.revise.revision_plan import MODES, Mode, RevisionPlan

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("table")
@click.option("--to-barrier", type=click.IntRange(min=1), help="barrier to go back to")
@click.option("--sql", "file", type=_FILE, help="SQL file with a correction or a new query")
@click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True)
@click.option("--dry-run", is_flag=True, help="print what would be done; change nothing")
@for_one_engine
def revise(
    engine: Engine,
    as_json: bool,
    table: str,
    to_barrier: int | None,
    file: Path | None,
    mode: Mode,
    dry_run: bool,
) -> None:
    """Redo TABLE (schema.name) and everything downstream, and publish it as one barrier.

    With --to-barrier, a view and everything downstream go back to that barrier and reapply the
    later changes; a table that is not maintained goes back permanently. With --sql, INSERT,
    UPDATE, DELETE and MERGE statements correct a table that is not maintained, and a view gets a
    new query.
    """
    sql = file.read_text(encoding="utf-8") if file is not None else ""
    if dry_run:
        plan = engine.plan_revision(table, to_barrier=to_barrier, sql=sql, mode=mode)
        _print(as_json, _as_json(plan), lines_before(plan))
        return
    report = engine.revise(table, to_barrier=to_barrier, sql=sql, mode=mode)
    tables = {name: asdict(of) for name, of in report.tables.items()}
    _print(as_json, {"barrier": report.barrier, "tables": tables}, lines_after(report))


def _print(as_json: bool, body: dict[str, Any], lines: list[str]) -> None:
    if as_json:
        print_json(body)
    else:
        click.echo(printable("\n".join(lines)))


def _as_json(plan: RevisionPlan) -> dict[str, Any]:
    return {
        "barrier": plan.barrier,
        "upto": plan.upto,
        "steps": [asdict(step) for step in plan.steps],
        "left_alone": list(plan.left_alone),
    }
