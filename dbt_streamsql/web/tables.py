"""Everything that the page of one table shows."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.meta.inspect import delay, overview
from dbt_streamsql.meta.inspect.column_lineage import of_job
from dbt_streamsql.meta.inspect.delay import Delay
from dbt_streamsql.meta.inspect.history import History
from dbt_streamsql.meta.inspect.plan_graph import graph_of
from dbt_streamsql.meta.model.stored_definition import known_plan
from dbt_streamsql.plan.algebra.lineage import Lineage
from dbt_streamsql.plan.algebra.relational import CLOCK


def describe(history: History, table: str) -> dict[str, Any] | None:
    """State, definition, plan, and versions newest first; None for an unknown table."""
    graph = overview.topology(history)
    node = next((node for node in graph.nodes if node.table == table), None)
    versions = history.versions_of(table)
    if node is None and not versions:
        return None
    late = delay.delays(history, versions)
    job = history.jobs.get(table)
    plan = graph_of(job, history) if job else None
    return {
        "table": table,
        "node": asdict(node) if node else None,
        "sources": [asdict(edge) for edge in graph.edges if edge.sink == table],
        "readers": [asdict(edge) for edge in graph.edges if edge.source == table],
        "definition": _definition(job, history) if job else None,
        "plan": asdict(plan) if plan else None,
        "explain": _explain(job) if job else "",
        "versions": [_version(v, late.get((v.barrier, table))) for v in reversed(versions)],
        "pins": [
            {
                "barrier": barrier.id,
                "snapshot": _number(pin.snapshot),
                "committed_at": pin.committed_at,
            }
            for barrier in reversed(history.barriers)
            if (pin := history.pins.get(barrier.id, {}).get(table)) is not None
        ],
    }


def _definition(job: Job, history: History) -> dict[str, Any]:
    known = of_job(job, history.jobs)
    return {
        "unique_id": job.unique_id,
        "sql": job.sql,
        "refresh_mode": job.refresh_mode,
        "columns": [
            {**column, "origins": _origins(known, column["name"])} for column in job.columns
        ],
        "created_barrier": job.created_barrier,
    }


def _origins(known: Lineage | None, column: str) -> list[dict[str, str]] | None:
    """The columns that a column is computed of; None where that is not known."""
    if known is None or column not in known.columns:
        return None
    return [
        {"table": table, "column": name, "kind": kind.name.lower()}
        for (table, name), kind in sorted(known.columns[column].items())
        if table != CLOCK
    ]


def _explain(job: Job) -> str:
    """How the view is maintained; '' when no plan is stored, or one of another version."""
    plan = known_plan(job)
    return plan.explain() if plan is not None else ""


def _number(snapshot: int | None) -> str | None:
    """As text: JavaScript's numbers are too short for snapshot ids."""
    return None if snapshot is None else str(snapshot)


def _version(version: TableVersion, late: Delay | None) -> dict[str, Any]:
    return {
        "barrier": version.barrier,
        "state": version.state,
        "snapshot": _number(version.snapshot),
        "mode": version.mode,
        "reason": version.reason,
        "strategy": version.stats.get("strategy", ""),
        "rows_read": version.stats.get("rows_read"),
        "rows_inserted": version.rows_inserted,
        "rows_deleted": version.rows_deleted,
        "seconds": version.seconds,
        "approximate_since": version.stats.get("approximate_since"),
        "started_at": version.started_at,
        "written_at": version.written_at,
        "delay": late.seconds if late else None,
        "delay_exact": late.since.exact if late else True,
        "since": late.since.root if late else "",
    }
