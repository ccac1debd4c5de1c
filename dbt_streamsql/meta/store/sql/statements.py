"""Statements that several steps of the store share; each is part of a transaction."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Table, Update, bindparam, delete, insert, select, update

from dbt_streamsql.meta.model import transitions
from dbt_streamsql.meta.model.records import Barrier, Span
from dbt_streamsql.meta.store.sql import schema


def barrier_of(connection: Connection, barrier: int, step: str) -> Barrier:
    """The barrier, for a step that needs one."""
    row = (
        connection.execute(select(schema.barrier).where(schema.barrier.c.id == barrier))
        .mappings()
        .first()
    )
    return transitions.known(barrier, schema.to_barrier(row) if row else None, step)


def swap(connection: Connection, change: Update, step: str) -> None:
    """Compare-and-swap: `change` names its starting state, and must match exactly one row."""
    met = connection.execute(change).rowcount
    transitions.demand(step, [transitions.unchanged(met)])


def forget(
    connection: Connection, of: Table, barrier: int, tables: list[str] | None = None
) -> None:
    """Remove the rows of the barrier, or only those of some tables."""
    where = of.c.barrier == barrier
    if tables is None:
        connection.execute(delete(of).where(where))
    elif tables:
        connection.execute(
            delete(of).where(where, of.c.table_name == bindparam("gone")),
            [{"gone": table} for table in tables],
        )


def put_inputs(
    connection: Connection,
    barrier: int,
    inputs: Mapping[str, int | None],
    committed: Mapping[str, float],
) -> None:
    """Pin inputs of the barrier, replacing earlier pins of the same tables."""
    forget(connection, schema.barrier_input, barrier, list(inputs))
    if inputs:
        connection.execute(
            insert(schema.barrier_input),
            [
                {
                    "barrier": barrier,
                    "table_name": table,
                    "snapshot": snapshot,
                    "committed_at": committed.get(table),
                }
                for table, snapshot in inputs.items()
            ],
        )


def put_spans(connection: Connection, barrier: int, spans: Mapping[str, Span]) -> None:
    """Record what streaming tables read at the barrier, replacing earlier records."""
    forget(connection, schema.position, barrier, list(spans))
    if spans:
        rows = [schema.from_span(barrier, table, span) for table, span in spans.items()]
        connection.execute(insert(schema.position), rows)


def unstage(connection: Connection, barrier: int, table: str) -> list[str]:
    """Remove a table from the barrier; the paths of its change files, which stay listed."""
    forget(connection, schema.staged_job, barrier, [table])
    forget(connection, schema.version, barrier, [table])
    forget(connection, schema.position, barrier, [table])
    of = schema.change_file
    mine = (of.c.table_name == table) & (of.c.barrier == barrier)
    return list(connection.execute(select(of.c.path).where(mine).order_by(of.c.path)).scalars())


def rename_input(connection: Connection, barrier: int, table: str, snapshot: int) -> None:
    """Set this snapshot as the input of the barrier's versions that read `table`."""
    of = schema.version
    for row in connection.execute(select(of).where(of.c.barrier == barrier)).mappings().all():
        version = schema.to_version(row)
        if table in version.inputs:
            inputs = {**version.inputs, table: snapshot}
            renamed = schema.from_version(replace(version, inputs=inputs))
            connection.execute(
                update(of)
                .where(of.c.barrier == barrier, of.c.table_name == version.table)
                .values(inputs=renamed["inputs"])
            )


def take_paths(connection: Connection, where: Any) -> list[str]:
    """Unlist change files; returns their paths."""
    of = schema.change_file
    taken: list[str] = list(
        connection.execute(
            select(of.c.path).where(where).order_by(of.c.barrier, of.c.path)
        ).scalars()
    )
    connection.execute(delete(of).where(where))
    return taken


def reads(connection: Connection, barrier: int) -> dict[str, tuple[str, ...]]:
    """What each table would read if the barrier committed now."""
    reads: dict[str, tuple[str, ...]] = {}
    for row in connection.execute(select(schema.edge)).mappings():
        reads[row["sink"]] = (*reads.get(row["sink"], ()), row["source"])
    for row in connection.execute(select(schema.job.c.table_name)).mappings():
        reads.setdefault(row["table_name"], ())
    of = schema.staged_job
    for row in connection.execute(select(of).where(of.c.barrier == barrier)).mappings():
        reads[row["table_name"]] = schema.to_job(row).sources
    return reads


def jobs_changed(connection: Connection) -> None:
    """Signal readers that the current definitions have changed."""
    connection.execute(update(schema.runner).values(jobs_state=uuid.uuid4().hex))


def make_current(connection: Connection, barrier: int) -> None:
    """Replace the current definitions by those of the barrier."""
    staged, job, edge = schema.staged_job, schema.job, schema.edge
    mine = select(staged.c.table_name).where(staged.c.barrier == barrier)
    names = [column.name for column in job.columns]
    rows = connection.execute(select(staged).where(staged.c.barrier == barrier)).mappings().all()
    if not rows:
        return
    jobs_changed(connection)
    connection.execute(delete(job).where(job.c.table_name.in_(mine)))
    connection.execute(delete(edge).where(edge.c.sink.in_(mine)))
    connection.execute(
        insert(job).from_select(
            names, select(*(staged.c[name] for name in names)).where(staged.c.barrier == barrier)
        )
    )
    edges = [
        {"sink": row["table_name"], "source": source}
        for row in rows
        for source in schema.to_job(row).sources
    ]
    if edges:
        connection.execute(insert(edge), edges)
    forget(connection, staged, barrier)
