"""The ledger of barriers in a database: the interface `api.MetaStore` as transactions."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, exists, insert, select, update

from dbt_streamsql.meta.model import topology, transitions
from dbt_streamsql.meta.model.records import (
    NOOP,
    Barrier,
    BarrierState,
    ChangeFile,
    Fence,
    Job,
    Published,
    Sink,
    Span,
    TableVersion,
)
from dbt_streamsql.meta.store import recovery
from dbt_streamsql.meta.store import retention as rules
from dbt_streamsql.meta.store.leaders import SqlLeaders
from dbt_streamsql.meta.store.leases import SqlLeases
from dbt_streamsql.meta.store.reader import unfinished_barriers
from dbt_streamsql.meta.store.retention import Forgotten, Outlook, Retention
from dbt_streamsql.meta.store.runner import SqlRunner
from dbt_streamsql.meta.store.sql import schema, statements
from dbt_streamsql.meta.store.sql.database import Database
from dbt_streamsql.meta.store.staged_tables import SqlStagedLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


class SqlMetaStore(SqlRunner):
    """A `MetaStore` over a database."""

    def __init__(
        self, database: Database, clock: Callable[[], float] = time.time, who: str = ""
    ) -> None:
        super().__init__(database, clock, who)
        self.staged = SqlStagedLedger(database)
        self.leases = SqlLeases(database, clock)
        self.leaders = SqlLeaders(database, clock)

    def close(self) -> None:
        self.let_go()
        self.staged.close()
        self.database.close()

    # one barrier

    def begin(
        self,
        fence: Fence,
        inputs: Mapping[str, int | None] | None = None,
        committed: Mapping[str, float] | None = None,
    ) -> Barrier:
        with self._fenced(fence) as connection:
            open_ones = connection.execute(unfinished_barriers()).mappings()
            transitions.demand(
                "begin a barrier", transitions.to_begin([schema.to_barrier(r) for r in open_ones])
            )
            last: int = connection.execute(select(schema.runner.c.last_barrier)).scalar_one()
            begun = Barrier(last + 1, "OPEN", fence.token, self._clock())
            connection.execute(update(schema.runner).values(last_barrier=begun.id))
            connection.execute(insert(schema.barrier).values(**vars(begun)))
            statements.put_inputs(connection, begun.id, inputs or {}, committed or {})
        return begun

    def add_inputs(
        self,
        fence: Fence,
        barrier: int,
        inputs: Mapping[str, int | None],
        committed: Mapping[str, float] | None = None,
    ) -> None:
        with self._staging(fence, barrier, "pin inputs") as connection:
            statements.put_inputs(connection, barrier, inputs, committed or {})

    def add_spans(self, fence: Fence, barrier: int, spans: Mapping[str, Span]) -> None:
        with self._staging(fence, barrier, "record what streams give") as connection:
            statements.put_spans(connection, barrier, spans)

    def stage_job(self, fence: Fence, barrier: int, job: Job) -> None:
        with self._staging(fence, barrier, f"define {job.table}") as connection:
            staged = schema.staged_job
            for of, where in (
                (schema.job, schema.job.c.table_name == job.table),
                (staged, (staged.c.table_name == job.table) & (staged.c.barrier == barrier)),
            ):
                writer = connection.execute(select(of.c.unique_id).where(where)).scalar()
                topology.check_writer(job.table, writer or "", job.unique_id)
            statements.forget(connection, staged, barrier, [job.table])
            connection.execute(insert(staged).values(barrier=barrier, **schema.from_job(job)))
            topology.topological_order(statements.reads(connection, barrier))

    def processed(self, fence: Fence, version: TableVersion) -> None:
        self.processed_many(fence, [version])

    def processed_many(self, fence: Fence, versions: Iterable[TableVersion]) -> None:
        staged = list(versions)
        if not staged:
            return
        barrier = transitions.common_barrier(staged)
        rows = [schema.from_version(version) for version in staged]
        with self._staging(fence, barrier, "stage a version") as connection:
            statements.forget(
                connection, schema.version, barrier, [row["table_name"] for row in rows]
            )
            connection.execute(insert(schema.version), rows)

    def unstage(self, fence: Fence, barrier: int, table: str) -> list[str]:
        with self._staging(fence, barrier, f"unstage {table}") as connection:
            return statements.unstage(connection, barrier, table)

    def precommit(self, fence: Fence, barrier: int) -> None:
        with self._fenced(fence) as connection:
            staged, of = schema.staged_job, schema.version
            unbuilt: list[str] = list(
                connection.execute(
                    select(staged.c.table_name)
                    .where(
                        staged.c.barrier == barrier,
                        ~exists().where(
                            of.c.barrier == barrier, of.c.table_name == staged.c.table_name
                        ),
                    )
                    .order_by(staged.c.table_name)
                ).scalars()
            )
            step = f"precommit barrier {barrier}"
            found = statements.barrier_of(connection, barrier, step)
            transitions.demand(step, transitions.to_precommit(found, fence, unbuilt))
            self._move(connection, found, "PRECOMMIT")

    def written(self, fence: Fence, barrier: int, table: str, snapshot: int | None = None) -> None:
        with self._fenced(fence) as connection:
            of = schema.version
            where = (of.c.barrier == barrier) & (of.c.table_name == table)
            step = f"mark {table} as written at barrier {barrier}"
            found = statements.barrier_of(connection, barrier, step)
            state = connection.execute(select(of.c.state).where(where)).scalar()
            transitions.demand(step, transitions.to_write(found, table, state))
            statements.swap(
                connection,
                update(of).where(where, of.c.state == state).values(state="WRITTEN"),
                step,
            )
            connection.execute(update(of).where(where).values(written_at=self._clock()))
            if snapshot is not None:
                connection.execute(update(of).where(where).values(snapshot=snapshot))
                statements.rename_input(connection, barrier, table, snapshot)

    def commit(self, fence: Fence, barrier: int) -> None:
        with self._fenced(fence) as connection:
            of, head = schema.version, schema.head
            step = f"commit barrier {barrier}"
            found = statements.barrier_of(connection, barrier, step)
            unwritten: list[str] = list(
                connection.execute(
                    select(of.c.table_name)
                    .where(of.c.barrier == barrier, of.c.state != "WRITTEN", of.c.mode != NOOP)
                    .order_by(of.c.table_name)
                ).scalars()
            )
            transitions.demand(step, transitions.to_commit(found, unwritten))
            self._move(connection, found, "COMMIT")
            mine = select(of.c.table_name).where(of.c.barrier == barrier)
            connection.execute(delete(head).where(head.c.table_name.in_(mine)))
            connection.execute(
                insert(head).from_select(
                    ["table_name", "barrier"],
                    select(of.c.table_name, of.c.barrier).where(of.c.barrier == barrier),
                )
            )
            statements.make_current(connection, barrier)
            written = (of.c.barrier == barrier) & (of.c.state == "WRITTEN")
            tables: list[str] = list(
                connection.execute(
                    select(of.c.table_name).where(written).order_by(of.c.table_name)
                ).scalars()
            )
            told = {"barrier": barrier, "tables": tables}
            self._enter(connection, fence.owner, "commit", told)

    def abort(self, fence: Fence, barrier: int) -> None:
        with self._fenced(fence) as connection:
            step = f"abort barrier {barrier}"
            found = statements.barrier_of(connection, barrier, step)
            transitions.demand(step, transitions.to_abort(found))
            self._move(connection, found, "ABORT")
            statements.forget(connection, schema.staged_job, barrier)
            self._enter(connection, fence.owner, "abort", {"barrier": barrier})

    # jobs and change files

    def drop_job(self, fence: Fence, table: str) -> None:
        with self._fenced(fence) as connection:
            for row in connection.execute(unfinished_barriers()).mappings().all():
                unfinished = schema.to_barrier(row)
                transitions.demand(f"drop {table}", [transitions.barrier_in(unfinished, "OPEN")])
                of = schema.version
                statements.forget(connection, schema.staged_job, unfinished.id, [table])
                statements.forget(connection, of, unfinished.id, [table])
            gone = connection.execute(
                delete(schema.job).where(schema.job.c.table_name == table)
            ).rowcount
            if gone:
                statements.jobs_changed(connection)
                self._enter(connection, fence.owner, "drop", {"table": table})
            connection.execute(delete(schema.edge).where(schema.edge.c.sink == table))
            connection.execute(delete(schema.head).where(schema.head.c.table_name == table))

    def add_change_file(self, fence: Fence, change: ChangeFile) -> None:
        of = schema.change_file
        with self._staging(fence, change.barrier, "add a change file") as connection:
            connection.execute(
                delete(of).where(
                    of.c.table_name == change.table,
                    of.c.barrier == change.barrier,
                    of.c.path == change.path,
                )
            )
            connection.execute(
                insert(of).values(
                    table_name=change.table,
                    barrier=change.barrier,
                    path=change.path,
                    rows=change.rows,
                )
            )

    def forget_change_files(self, fence: Fence, table: str, upto_barrier: int) -> list[str]:
        of = schema.change_file
        where = (of.c.table_name == table) & (of.c.barrier <= upto_barrier)
        with self._fenced(fence) as connection:
            return statements.take_paths(connection, where)

    def forget_aborted_change_files(self, fence: Fence) -> list[str]:
        aborted = select(schema.barrier.c.id).where(schema.barrier.c.state == "ABORT")
        with self._fenced(fence) as connection:
            return statements.take_paths(connection, schema.change_file.c.barrier.in_(aborted))

    # growth

    def forget_change_files_at(self, fence: Fence, paths: Iterable[str]) -> None:
        with self._fenced(fence) as connection:
            of = schema.change_file
            connection.execute(delete(of).where(of.c.path.in_(list(paths))))

    def outlook(self, retention: Retention) -> Outlook:
        with self.database.read() as connection:
            return rules.outlook(connection, retention, self._clock())

    def keep_from(self, fence: Fence, retention: Retention) -> int:
        with self._fenced(fence) as connection:
            return rules.move(connection, retention, self._clock())

    def surplus(self, barrier: int) -> dict[str, int]:
        with self.database.read() as connection:
            return rules.surplus(connection, barrier)

    def forget(self, fence: Fence, retention: Retention) -> Forgotten:
        with self._fenced(fence) as connection:
            return rules.forget(connection, retention, self._clock())

    # outside systems

    def put_sink(self, fence: Fence, sink: Sink) -> None:
        of = schema.sink
        with self._fenced(fence) as connection:
            connection.execute(delete(of).where(of.c.name == sink.name))
            connection.execute(insert(of).values(**schema.from_sink(sink)))

    def drop_sink(self, fence: Fence, name: str) -> None:
        with self._fenced(fence) as connection:
            gone = connection.execute(delete(schema.sink).where(schema.sink.c.name == name))
            if gone.rowcount:
                self._enter(connection, fence.owner, "drop sink", {"sink": name})

    # SQL views for other readers

    def publish_views(self, fence: Fence, views: Published) -> None:
        of = schema.published
        with self._fenced(fence) as connection:
            connection.execute(delete(of).where(of.c.schema_name == views.schema))
            connection.execute(
                insert(of).values(schema_name=views.schema, with_schema=views.with_schema)
            )

    def stop_views(self, fence: Fence, schema_name: str) -> None:
        of = schema.published
        with self._fenced(fence) as connection:
            connection.execute(delete(of).where(of.c.schema_name == schema_name))

    # after a loss

    def check_empty(self) -> None:
        with self.database.read() as connection:
            recovery.check_empty(connection)

    def rebuild(self, fence: Fence, ledger: recovery.Ledger) -> None:
        with self._fenced(fence) as connection:
            recovery.fill(connection, ledger)
            told = {"store": ledger.store, "barrier": ledger.last_barrier}
            self._enter(connection, fence.owner, "rebuild", told)
        self.database.id = ledger.store

    # the inside

    @contextmanager
    def _staging(self, fence: Fence, barrier: int, step: str) -> Iterator[Connection]:
        """A write transaction into an OPEN barrier of the current runner."""
        with self._fenced(fence) as connection:
            found = statements.barrier_of(connection, barrier, step)
            transitions.demand(step, transitions.to_stage(found, fence))
            yield connection

    def _move(self, connection: Connection, barrier: Barrier, to: BarrierState) -> None:
        values: dict[str, Any] = {"state": to}
        if to not in transitions.UNFINISHED:
            values["ended_at"] = self._clock()
        of = schema.barrier
        unmoved = (of.c.id == barrier.id) & (of.c.state == barrier.state)
        statements.swap(connection, update(of).where(unmoved).values(**values), f"move to {to}")
