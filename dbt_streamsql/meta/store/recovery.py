"""A lost store is refilled from the tables' own records, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, Table, func, insert, select, update

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.records import (
    Barrier,
    Job,
    Pin,
    Published,
    TableVersion,
)
from dbt_streamsql.meta.store.sql import schema, statements


@dataclass(frozen=True)
class Ledger:
    """The contents to restore. All barriers are in COMMIT, all versions WRITTEN.

    `store` is its id (eight characters), which its tags and tables carry; `last_barrier`
    the highest number that was ever used, `kept_from` the oldest barrier that can be read;
    `pins` the roots that each barrier read.
    """

    store: str
    last_barrier: int
    kept_from: int
    barriers: Sequence[Barrier] = ()
    versions: Sequence[TableVersion] = ()
    jobs: Sequence[Job] = ()
    pins: Mapping[int, Mapping[str, Pin]] = field(default_factory=dict)
    published: Sequence[Published] = ()


def check_empty(connection: Connection) -> None:
    """META_CONFLICT when anything has ever run on the store."""
    last: int = connection.execute(select(schema.runner.c.last_barrier)).scalar_one()
    kept = sum(
        connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in (schema.barrier, schema.version, schema.job, schema.staged_job, schema.head)
    )
    if last or kept:
        raise StreamSqlError(
            "META_CONFLICT",
            "only an empty store can be rebuilt",
            given=f"a store with barriers up to {last}",
            allowed="an empty store, as the first command after the loss creates it",
            hint="if this store is damaged or is not the one of the tables, move it away first",
        )


def fill(connection: Connection, ledger: Ledger) -> None:
    """Restore all this into an empty store. Error: META_CONFLICT when it is not empty."""
    check_empty(connection)
    connection.execute(
        update(schema.runner).values(
            store_id=ledger.store,
            last_barrier=ledger.last_barrier,
            kept_from=ledger.kept_from,
        )
    )
    _insert(connection, schema.barrier, [dict(vars(barrier)) for barrier in ledger.barriers])
    _insert(connection, schema.version, [schema.from_version(v) for v in ledger.versions])
    newest = {v.table: v.barrier for v in sorted(ledger.versions, key=lambda v: v.barrier)}
    heads = [{"table_name": table, "barrier": barrier} for table, barrier in newest.items()]
    _insert(connection, schema.head, heads)
    _insert(connection, schema.job, [schema.from_job(job) for job in ledger.jobs])
    statements.jobs_changed(connection)
    edges = [
        {"sink": job.table, "source": source} for job in ledger.jobs for source in job.sources
    ]
    _insert(connection, schema.edge, edges)
    views = [{"schema_name": v.schema, "with_schema": v.with_schema} for v in ledger.published]
    _insert(connection, schema.published, views)
    for barrier, pins in ledger.pins.items():
        made = {t: at.committed_at for t, at in pins.items() if at.committed_at is not None}
        snapshots = {table: at.snapshot for table, at in pins.items()}
        statements.put_inputs(connection, barrier, snapshots, made)


def _insert(connection: Connection, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    if rows:
        connection.execute(insert(table), list(rows))
