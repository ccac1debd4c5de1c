"""The columns of a job by those of the tables that it reads; through stored parts of its query,
which are no tables to a reader."""

from __future__ import annotations

from collections.abc import Mapping

from dbt_streamsql.meta.model.records import Job
from dbt_streamsql.meta.model.stored_definition import definition_of, known_plan
from dbt_streamsql.plan.algebra.lineage import Direct, Lineage, Origin, Origins, lineage
from dbt_streamsql.plan.tree_json import node_of


def of_job(job: Job, jobs: Mapping[str, Job]) -> Lineage | None:
    """None where it is not known: for a streaming table, and for a query that is not maintained
    from changes."""
    plan = known_plan(job)
    if plan is None or not plan.tree:
        return None
    found = lineage(node_of(plan.tree))
    below = {
        source: of_job(jobs[source], jobs)
        for source in {table for origins in found.columns.values() for table, _ in origins}
        | {table for columns in found.indirect.values() for table, _ in columns}
        if source in jobs and definition_of(jobs[source]).part
    }
    stored = {table: told for table, told in below.items() if told is not None}
    visible = {column["name"] for column in job.columns}
    columns = {
        name: _through(origins, stored)
        for name, origins in found.columns.items()
        if name in visible
    }
    indirect = {
        kind: frozenset(_through(dict.fromkeys(read, Direct.IDENTITY), stored))
        for kind, read in found.indirect.items()
    }
    for told in stored.values():
        for kind, read in told.indirect.items():
            indirect[kind] = indirect.get(kind, frozenset()) | read
    return Lineage(columns, indirect)


def _through(origins: Origins, stored: Mapping[str, Lineage]) -> Origins:
    found: dict[Origin, Direct] = {}
    for (table, column), kind in origins.items():
        told = stored.get(table)
        read = {(table, column): kind} if told is None else told.columns.get(column, {})
        for origin, below in read.items():
            found[origin] = max(kind, below, found.get(origin, kind))
    return found
