"""All queries to the store that need no right to write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Select, Table, and_, func, select

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model.records import (
    Barrier,
    ChangeFile,
    Entry,
    Fence,
    Job,
    Pin,
    Published,
    Sink,
    Span,
    TableVersion,
)
from dbt_streamsql.meta.model.transitions import UNFINISHED
from dbt_streamsql.meta.store import audit
from dbt_streamsql.meta.store.kept import KeptReads, States
from dbt_streamsql.meta.store.sql import schema

if TYPE_CHECKING:
    from dbt_streamsql.meta.store.sql.database import Database


class SqlReader:
    """A `MetaReader` over a database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._kept = KeptReads(self)

    def states(self) -> States:
        of = schema.runner.c
        with self.database.read() as connection:
            row = connection.execute(select(of.state, of.jobs_state)).one()
        return States(str(row[0]), str(row[1]))

    # barriers

    def barrier(self, barrier: int) -> Barrier | None:
        with self.database.read() as connection:
            row = (
                connection.execute(select(schema.barrier).where(schema.barrier.c.id == barrier))
                .mappings()
                .first()
            )
        return schema.to_barrier(row) if row else None

    def newest_barriers(self, most: int) -> list[Barrier]:
        at = schema.barrier
        rows = self._rows(select(at).order_by(at.c.id.desc()).limit(most))
        return [schema.to_barrier(row) for row in rows]

    def unfinished(self) -> list[Barrier]:
        return [schema.to_barrier(row) for row in self._rows(unfinished_barriers())]

    def last_committed(self) -> int:
        with self.database.read() as connection:
            newest = select(func.max(schema.barrier.c.id)).where(
                schema.barrier.c.state == "COMMIT"
            )
            return connection.execute(newest).scalar() or 0

    def committed_before(self, barrier: int, most: int) -> list[int]:
        at = schema.barrier
        rows = self._rows(
            select(at.c.id)
            .where(at.c.id < barrier, at.c.state == "COMMIT", at.c.id >= self.kept_from())
            .order_by(at.c.id.desc())
            .limit(most)
        )
        return [row["id"] for row in rows]

    def recent(self, newest: int, upto: int | None = None) -> list[Barrier]:
        of = schema.barrier
        query = select(of).order_by(of.c.id.desc()).limit(newest)
        rows = self._rows(query if upto is None else query.where(of.c.id <= upto))
        return [schema.to_barrier(row) for row in reversed(rows)]

    def inputs(self, barrier: int) -> dict[str, int | None]:
        pins = schema.barrier_input
        rows = self._rows(
            select(pins).where(pins.c.barrier == barrier).order_by(pins.c.table_name)
        )
        return {row["table_name"]: row["snapshot"] for row in rows}

    def inputs_as_of(self, barrier: int) -> dict[str, int | None]:
        return self._kept.inputs_as_of(barrier)

    def read_inputs_as_of(self, barrier: int) -> dict[str, int | None]:
        rows = self._rows(_newest_as_of(schema.barrier_input, barrier))
        return {row["table_name"]: row["snapshot"] for row in rows}

    def spans(self, barrier: int) -> dict[str, Span]:
        of = schema.position
        rows = self._rows(select(of).where(of.c.barrier == barrier).order_by(of.c.table_name))
        return {row["table_name"]: schema.to_span(row) for row in rows}

    def input_times(self, barrier: int) -> dict[str, float | None]:
        pins = schema.barrier_input
        rows = self._rows(select(pins).where(pins.c.barrier == barrier))
        return {row["table_name"]: row["committed_at"] for row in rows}

    def pins_between(self, first: int, last: int) -> dict[int, dict[str, Pin]]:
        of = schema.barrier_input
        pins: dict[int, dict[str, Pin]] = {}
        for row in self._rows(select(of).where(of.c.barrier.between(first, last))):
            pin = Pin(row["snapshot"], row["committed_at"])
            pins.setdefault(row["barrier"], {})[row["table_name"]] = pin
        return pins

    def outside_tables(self) -> set[str]:
        return self._kept.outside_tables()

    def read_outside_tables(self) -> set[str]:
        rows = self._rows(select(schema.barrier_input.c.table_name).distinct())
        return {row["table_name"] for row in rows}

    # versions

    def versions(self, barrier: int) -> list[TableVersion]:
        of = schema.version
        rows = self._rows(select(of).where(of.c.barrier == barrier).order_by(of.c.table_name))
        return [schema.to_version(row) for row in rows]

    def newest_versions(self, most: int) -> list[TableVersion]:
        at, of = schema.barrier, schema.version
        newest = select(at.c.id).order_by(at.c.id.desc()).limit(most).subquery()
        rows = self._rows(
            select(of)
            .join(newest, newest.c.id == of.c.barrier)
            .order_by(of.c.barrier.desc(), of.c.table_name)
        )
        return [schema.to_version(row) for row in rows]

    def versions_between(self, first: int, last: int) -> list[TableVersion]:
        of = schema.version
        chosen = select(of).where(of.c.barrier.between(first, last))
        rows = self._rows(chosen.order_by(of.c.barrier, of.c.table_name))
        return [schema.to_version(row) for row in rows]

    def latest(self, table: str) -> TableVersion | None:
        rows = self._rows(_heads().where(schema.head.c.table_name == table))
        return schema.to_version(rows[0]) if rows else None

    def latest_all(self, barrier: int | None = None) -> dict[str, TableVersion]:
        return self._kept.latest_all(barrier)

    def read_latest_all(self, barrier: int | None) -> dict[str, TableVersion]:
        rows = self._rows(_heads()) if barrier is None else self._rows_as_of(barrier)
        return {row["table_name"]: schema.to_version(row) for row in rows}

    def history(self, table: str, after: int = 0) -> list[TableVersion]:
        of, at = schema.version, schema.barrier
        committed = at.c.state == "COMMIT"
        in_force = (
            select(of.c.barrier)
            .join(at, at.c.id == of.c.barrier)
            .where(of.c.table_name == table, of.c.barrier <= after, committed)
            .order_by(of.c.barrier.desc())
            .limit(1)
        )
        first = func.coalesce(in_force.scalar_subquery(), 0)
        rows = self._rows(
            select(of)
            .join(at, at.c.id == of.c.barrier)
            .where(of.c.table_name == table, of.c.barrier >= first, committed)
            .order_by(of.c.barrier.desc())
        )
        return [schema.to_version(row) for row in rows]

    def kept_from(self) -> int:
        with self.database.read() as connection:
            return int(connection.execute(select(schema.runner.c.kept_from)).scalar_one())

    def _rows_as_of(self, barrier: int) -> list[Any]:
        of, at = schema.version, schema.barrier
        query = _versions_as_of(barrier).order_by(of.c.table_name)
        with self.database.read() as connection:
            kept_from: int = connection.execute(select(schema.runner.c.kept_from)).scalar_one()
            state = connection.execute(select(at.c.state).where(at.c.id == barrier)).scalar()
            if state != "COMMIT" or barrier < kept_from:
                raise StreamSqlError(
                    "META_CONFLICT",
                    f"barrier {barrier} cannot be read",
                    given="forgotten" if barrier < kept_from else state or "no such barrier",
                    allowed=f"a committed barrier from {kept_from} on",
                )
            return list(connection.execute(query).mappings())

    # jobs

    def jobs(self) -> dict[str, Job]:
        return self._kept.jobs()

    def read_jobs(self) -> dict[str, Job]:
        rows = self._rows(select(schema.job).order_by(schema.job.c.table_name))
        return {row["table_name"]: schema.to_job(row) for row in rows}

    def staged_jobs(self, barrier: int) -> dict[str, Job]:
        of = schema.staged_job
        rows = self._rows(select(of).where(of.c.barrier == barrier).order_by(of.c.table_name))
        return {row["table_name"]: schema.to_job(row) for row in rows}

    def provisional_jobs(self) -> dict[str, Job]:
        rows = self._rows(select(schema.staged_job).order_by(schema.staged_job.c.table_name))
        return {row["table_name"]: schema.to_job(row) for row in rows}

    def topology(self) -> list[tuple[str, str]]:
        edge = schema.edge
        rows = self._rows(select(edge).order_by(edge.c.source, edge.c.sink))
        return [(row["source"], row["sink"]) for row in rows]

    def readers(self, table: str) -> list[str]:
        edge = schema.edge
        rows = self._rows(select(edge).where(edge.c.source == table).order_by(edge.c.sink))
        return [row["sink"] for row in rows]

    # change files

    def change_files(self, table: str, after_barrier: int, upto_barrier: int) -> list[ChangeFile]:
        of = schema.change_file
        return self._change_files(
            of.c.table_name == table,
            of.c.barrier > after_barrier,
            of.c.barrier <= upto_barrier,
            schema.barrier.c.state != "ABORT",
        )

    def tables_with_change_files(self) -> list[str]:
        of = schema.change_file
        return [row["table_name"] for row in self._rows(select(of.c.table_name).distinct())]

    def aborted_change_files(self) -> list[ChangeFile]:
        return self._change_files(schema.barrier.c.state == "ABORT")

    def _change_files(self, *conditions: ColumnElement[bool]) -> list[ChangeFile]:
        of = schema.change_file
        rows = self._rows(
            select(of)
            .join(schema.barrier, schema.barrier.c.id == of.c.barrier)
            .where(*conditions)
            .order_by(of.c.barrier, of.c.table_name, of.c.path)
        )
        return [schema.to_change_file(row) for row in rows]

    def sinks(self) -> list[Sink]:
        rows = self._rows(select(schema.sink).order_by(schema.sink.c.name))
        return [schema.to_sink(row) for row in rows]

    def published(self) -> list[Published]:
        of = schema.published
        rows = self._rows(select(of).order_by(of.c.schema_name))
        return [Published(row["schema_name"], bool(row["with_schema"])) for row in rows]

    # the runner

    def fence(self) -> Fence:
        with self.database.read() as connection:
            row = connection.execute(select(schema.runner)).mappings().one()
        return Fence(row["token"], row["owner"])

    # the audit log

    def audit(self, limit: int = 100, before: int | None = None) -> list[Entry]:
        return audit.entries(self.database, limit, before)

    def _rows(self, query: Select[Any]) -> list[Any]:
        with self.database.read() as connection:
            return list(connection.execute(query).mappings())


def unfinished_barriers() -> Select[Any]:
    return (
        select(schema.barrier)
        .where(schema.barrier.c.state.in_(UNFINISHED))
        .order_by(schema.barrier.c.id)
    )


def _heads() -> Select[Any]:
    of, head = schema.version, schema.head
    return (
        select(of)
        .join(head, and_(of.c.table_name == head.c.table_name, of.c.barrier == head.c.barrier))
        # by the small table: ordered by the big one, SQLite would scan all of it
        .order_by(head.c.table_name)
    )


def _versions_as_of(barrier: int) -> Select[Any]:
    """Like `_newest_as_of`, with two index lookups for each table, however long its history."""
    of, at = schema.version, schema.barrier
    after, past = of.alias(), of.alias()
    names = select(func.min(of.c.table_name).label("name")).cte("names", recursive=True)
    following = select(func.min(after.c.table_name)).where(after.c.table_name > names.c.name)
    names = names.union_all(select(following.scalar_subquery()).where(names.c.name.is_not(None)))
    newest = (
        select(past.c.barrier)
        .join(at, at.c.id == past.c.barrier)
        .where(
            past.c.table_name == names.c.name, past.c.barrier <= barrier, at.c.state == "COMMIT"
        )
        .order_by(past.c.barrier.desc())
        .limit(1)
        .correlate(names)
    )
    same = and_(of.c.table_name == names.c.name, of.c.barrier == newest.scalar_subquery())
    return select(of).join_from(names, of, same)


def _newest_as_of(of: Table, barrier: int) -> Select[Any]:
    """The newest committed row of each table, at or before that barrier."""
    at = schema.barrier
    newest = (
        select(of.c.table_name, func.max(of.c.barrier).label("barrier"))
        .join(at, at.c.id == of.c.barrier)
        .where(of.c.barrier <= barrier, at.c.state == "COMMIT")
        .group_by(of.c.table_name)
        .subquery()
    )
    same = and_(of.c.table_name == newest.c.table_name, of.c.barrier == newest.c.barrier)
    return select(of).join(newest, same)
