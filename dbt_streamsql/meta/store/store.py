"""MetaStore: the barriers' ledger. Every write is one transaction that first checks the fence.

A call that raises has changed nothing, with one exception: META_UNREACHABLE from a lost connection
may hide a step that was made. Ask `barrier(id)` then; no step here is made twice.
"""

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
from dbt_streamsql.meta.store import recovery, schema, statements
from dbt_streamsql.meta.store import retention as rules
from dbt_streamsql.meta.store.database import Database
from dbt_streamsql.meta.store.leaders import Leaders
from dbt_streamsql.meta.store.leases import Leases
from dbt_streamsql.meta.store.reader import unfinished_barriers
from dbt_streamsql.meta.store.retention import Forgotten, Outlook, Retention
from dbt_streamsql.meta.store.runner import RunnerStore
from dbt_streamsql.meta.store.staged_tables import StagedLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


class MetaStore(RunnerStore):
    """The store with the right to write. Safe from several threads."""

    def __init__(
        self, database: Database, clock: Callable[[], float] = time.time, who: str = ""
    ) -> None:
        super().__init__(database, clock, who)
        self.staged = StagedLedger(database)
        self.leases = Leases(database, clock)
        self.leaders = Leaders(database, clock)

    @classmethod
    def open(
        cls, url: str, clock: Callable[[], float] = time.time, *, token: str = ""
    ) -> MetaStore:
        """Open or create the store: `sqlite:///<file>` (its folder must exist) or `postgresql…`;
        or reach one by the MetaService that serves it, `http://127.0.0.1:<port>` or `https://…`.

        `token` is for a MetaService ('': the one of a service on this host), whose clock counts.
        META_UNREACHABLE when it cannot be reached, META_VERSION when another version wrote it,
        META_DENIED when the service does not know the token.
        """
        if url.startswith(("http://", "https://")):
            from dbt_streamsql.meta.client.client import MetaClient

            return MetaClient(url, token)
        return cls(Database(url), clock)

    def close(self) -> None:
        """Let go of the connections and of the runner lock; the fence is not given back."""
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
        """Open the next barrier with its pinned inputs; all earlier ones must be closed.

        `committed`: when each of these snapshots was, as far as that is known.
        """
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
        """Pin more inputs, or pin an input anew; `committed` as in `begin`."""
        with self._staging(fence, barrier, "pin inputs") as connection:
            statements.put_inputs(connection, barrier, inputs, committed or {})

    def add_spans(self, fence: Fence, barrier: int, spans: Mapping[str, Span]) -> None:
        """Record, before they are read, what streaming tables read at the barrier."""
        with self._staging(fence, barrier, "record what streams give") as connection:
            statements.put_spans(connection, barrier, spans)

    def stage_job(self, fence: Fence, barrier: int, job: Job) -> None:
        """Register a definition that becomes current when the barrier commits.

        DUPLICATE_WRITER when another model writes the table, CYCLE when the table would feed
        itself; both look at the current definitions and at the provisional ones.
        """
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
        """Record one staged version."""
        self.processed_many(fence, [version])

    def processed_many(self, fence: Fence, versions: Iterable[TableVersion]) -> None:
        """Record staged (or unchanged) versions of one barrier, all in one statement.

        While the barrier is open a table may be staged again; the newest record counts.
        """
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
        """Take one table out of an open barrier: its new definition and its version.

        Returns the paths of its change files, which stay listed: `forget_change_files_at` once
        they are gone. For a model that failed while the others go on.
        """
        with self._staging(fence, barrier, f"unstage {table}") as connection:
            return statements.unstage(connection, barrier, table)

    def precommit(self, fence: Fence, barrier: int) -> None:
        """The point of no return: every table of the barrier is staged, from here on only forward.

        Refused while a provisional definition has no version in the barrier (see `unstage`).
        """
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
        """Record that the staged version of `table` is visible now.

        `snapshot`: its id when publishing gave it a new one; versions of the same barrier that
        were computed from the staged one then name the new one too.
        """
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
        """Close the barrier: its versions are the latest, its definitions the current ones."""
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
        """Give an OPEN barrier up: its definitions are forgotten, its versions never count.

        The rows of its versions and change files stay, so that what they name can be removed.
        """
        with self._fenced(fence) as connection:
            step = f"abort barrier {barrier}"
            found = statements.barrier_of(connection, barrier, step)
            transitions.demand(step, transitions.to_abort(found))
            self._move(connection, found, "ABORT")
            statements.forget(connection, schema.staged_job, barrier)
            self._enter(connection, fence.owner, "abort", {"barrier": barrier})

    # jobs and change files

    def drop_job(self, fence: Fence, table: str) -> None:
        """Forget the definition and the latest version of `table` at once, in any barrier's state
        but PRECOMMIT; what an open barrier has staged for it goes too.

        Its change files stay listed until `forget_change_files`; unknown tables are no error.
        """
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
        """List a change file of an open barrier; the same path again replaces its row count."""
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
        """Unlist the table's change files up to that barrier, included; returns their paths."""
        of = schema.change_file
        where = (of.c.table_name == table) & (of.c.barrier <= upto_barrier)
        with self._fenced(fence) as connection:
            return statements.take_paths(connection, where)

    def forget_aborted_change_files(self, fence: Fence) -> list[str]:
        """Unlist the change files of aborted barriers; returns their paths."""
        aborted = select(schema.barrier.c.id).where(schema.barrier.c.state == "ABORT")
        with self._fenced(fence) as connection:
            return statements.take_paths(connection, schema.change_file.c.barrier.in_(aborted))

    # growth

    def forget_change_files_at(self, fence: Fence, paths: Iterable[str]) -> None:
        """Forget change files by path, after the files themselves are gone."""
        with self._fenced(fence) as connection:
            of = schema.change_file
            connection.execute(delete(of).where(of.c.path.in_(list(paths))))

    def outlook(self, retention: Retention) -> Outlook:
        """Which barriers the retention would let go now; changes nothing."""
        with self.database.read() as connection:
            return rules.outlook(connection, retention, self._clock())

    def keep_from(self, fence: Fence, retention: Retention) -> int:
        """Let earlier barriers go: from here on nobody can ask for them, or lease them.

        Returns the oldest barrier that can be read. Their rows stay until `forget`, so that what
        they name can be removed.
        """
        with self._fenced(fence) as connection:
            return rules.move(connection, retention, self._clock())

    def surplus(self, barrier: int) -> dict[str, int]:
        """By table, how many versions there are that were superseded at the barrier, or before.

        With `kept_from()`: those whose snapshots nobody can ask for any more.
        """
        with self.database.read() as connection:
            return rules.surplus(connection, barrier)

    def forget(self, fence: Fence, retention: Retention) -> Forgotten:
        """Remove the rows of barriers that have gone, after what they name is removed, and the
        lines of the audit log that are older than the retention; of these 10,000 always stay.

        A barrier with a change file that is still listed stays too. Again while there is `more`.
        """
        with self._fenced(fence) as connection:
            return rules.forget(connection, retention, self._clock())

    # systems outside

    def put_sink(self, fence: Fence, sink: Sink) -> None:
        """Define a sink, or say how far it has come; what was known under its name goes."""
        of = schema.sink
        with self._fenced(fence) as connection:
            connection.execute(delete(of).where(of.c.name == sink.name))
            connection.execute(insert(of).values(**schema.from_sink(sink)))

    def drop_sink(self, fence: Fence, name: str) -> None:
        """Deliver nothing to it any more; no error when there is none of that name."""
        with self._fenced(fence) as connection:
            gone = connection.execute(delete(schema.sink).where(schema.sink.c.name == name))
            if gone.rowcount:
                self._enter(connection, fence.owner, "drop sink", {"sink": name})

    # SQL views for others

    def publish_views(self, fence: Fence, views: Published) -> None:
        """Keep SQL views of the maintained ones in a schema, from now on."""
        of = schema.published
        with self._fenced(fence) as connection:
            connection.execute(delete(of).where(of.c.schema_name == views.schema))
            connection.execute(
                insert(of).values(schema_name=views.schema, with_schema=views.with_schema)
            )

    def stop_views(self, fence: Fence, schema_name: str) -> None:
        """Keep none in that schema any more; no error when there were none."""
        of = schema.published
        with self._fenced(fence) as connection:
            connection.execute(delete(of).where(of.c.schema_name == schema_name))

    # after a loss

    def check_empty(self) -> None:
        """META_CONFLICT when this store can not be rebuilt: it remembers something."""
        with self.database.read() as connection:
            recovery.check_empty(connection)

    def rebuild(self, fence: Fence, ledger: recovery.Ledger) -> None:
        """Let an empty store remember what another one did, under the name of that."""
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
