"""A PostgreSQL table: its rows at one moment, then every change, by logical decoding.

A position has `lsn` (the log position after the last transaction read), `table` (its oid) and
`system` (which cluster). The first one also has what its snapshot of the table saw: `snapshot`,
`until` (no transaction that ends later is in it) and `export` (by which other connections read
the same snapshot while its transaction is open).

The slot is older than the snapshot, so some transactions are in both; their ids identify them.
That way a slot can be read again from its beginning, and nothing is lost when the first barrier
is aborted. Changes are only peeked at; `release` advances the slot.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.postgres import pgoutput_rows, server_tables
from dbt_streamsql.connectors.sources.postgres.pgoutput import (
    end_of,
    lsn_of,
    lsn_text,
    transactions,
)
from dbt_streamsql.connectors.sources.postgres.server_tables import PgTable, Slot
from dbt_streamsql.connectors.sources.rows import columns_of
from dbt_streamsql.connectors.sources.source import End, Omissions, Position
from dbt_streamsql.errors import Place, StreamSqlError

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession

PLUGIN = "pgoutput"
OPERATIONS = ("insert", "update", "delete", "truncate")
FAR = 64 << 20
"""Bytes of log without a change of the table after which its position advances anyway: a slot
that stands still keeps the server's log from being removed."""

_SHORT = frozenset(server_tables.PLAIN.values()) - {"binary"}
"""Types whose values are never long enough to be left out."""

_NAME = re.compile(r"[a-z0-9_]{1,63}")
_AT_ONCE = 10_000
_POLL = 0.05
_PEEK = (
    "pg_logical_slot_peek_binary_changes(%s::name, %s::pg_lsn, %s::int, "
    "'proto_version', '1', 'publication_names', %s)"
)


@dataclass(frozen=True)
class Postgres:
    """The connector `postgres`. `login` holds libpq's parameters; `far`: see `FAR`."""

    login: dict[str, Any] = field(repr=False)
    schema: str
    table: str
    slot: str
    publication: str
    publish: tuple[str, ...]
    may_create: bool
    may_remove: bool
    start: str
    patience: float
    most: int
    declared: tuple[tuple[str, str], ...]
    place: Place
    options: Options = field(repr=False)
    far: int = FAR

    @property
    def name(self) -> str:
        where = f"{self.login['host']}:{self.login['port']}/{self.login['dbname']}"
        return f"table {self.schema}.{self.table} at postgresql://{where}"

    def columns(self, spark: SparkSession) -> tuple[tuple[str, str], ...]:
        del spark
        with self._connected() as connection:
            return self._columns(self._table(connection))

    def omissions(self, spark: SparkSession) -> Omissions | None:
        """Values that may be long (TOAST), unless inserts or key changes go unseen."""
        del spark
        with self._connected() as connection:
            table = self._table(connection)
        kinds = dict(table.columns)
        names = tuple(name for name, kind in kinds.items() if kind not in _SHORT)
        is_told = {"insert", "update"} <= set(self.publish) and table.identity in ("d", "f")
        return Omissions(names, table.key) if is_told and table.key else None

    def end(self, spark: SparkSession, after: Position | None) -> End | None:
        """What is committed by now, in whole transactions, up to about the bound.

        The first call creates publication and slot. Errors: STREAM_UNREACHABLE, STREAM_LOST,
        STREAM_CHANGED, TABLE_MISSING.
        """
        del spark
        with self._connected() as connection:
            table = self._table(connection)
            if after is None:
                return self._first(connection, table)
            self._check(connection, table, after)
            self._advance(connection, after)
            return self._changes(connection, table, after)

    def read(self, spark: SparkSession, after: Position | None, upto: Position) -> DataFrame:
        """The rows pass through this process."""
        with self._connected() as connection:
            table = self._table(connection)
            if after is None:
                rows = pgoutput_rows.Rows(table)
                if "export" in upto:
                    self._initial(connection, table, upto, rows)
            else:
                self._check(connection, table, after)
                rows = self._decoded(connection, table, after, upto)
        return rows.frame(spark, self._columns(table), self.place)

    def release(self, spark: SparkSession, upto: Position) -> None:
        """Let the server remove its log up to here."""
        del spark
        with self._connected() as connection:
            self._advance(connection, upto)

    def forget(self) -> str:
        """Remove slot and publication; those that the declaration names belong to the user."""
        if not self.may_remove:
            return (
                f"the slot {self.slot} of {self.name} is named in the source, so it stays and "
                "keeps the server's log: "
                f"SELECT pg_drop_replication_slot('{self.slot}') removes it"
            )
        from psycopg import sql

        with self._connected() as connection:
            if server_tables.slot_of(connection, self.slot) is not None:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (self.slot,))
            if self.publication == self.slot:
                text = sql.SQL("DROP PUBLICATION IF EXISTS {}")
                connection.execute(text.format(sql.Identifier(self.publication)))
        return f"the slot {self.slot} of {self.name} is removed"

    def _first(self, connection: Connection[Any], table: PgTable) -> End:
        """The start: publication and slot, then a snapshot that is held for `read`."""
        self._publish(connection, table)
        slot = self._slot_created(connection)
        first = {
            "lsn": lsn_text(slot.confirmed),
            "table": table.oid,
            "system": server_tables.system_of(connection),
        }
        if self.start == "latest":
            (now,) = server_tables.one(connection, "SELECT pg_current_wal_flush_lsn()::text")
            return End({**first, "lsn": now}, 0)
        # A transaction may be logged as committed before the slot begins and not be visible yet:
        # neither slot nor snapshot would have it. So it must finish before the snapshot.
        self._finished(connection)
        held = server_tables.connect(self.login)
        try:
            held.autocommit = False
            held.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            export, seen, until, at = server_tables.one(
                held,
                "SELECT pg_export_snapshot(), pg_current_snapshot()::text, "
                "pg_current_wal_insert_lsn()::text, extract(epoch FROM now())::float8",
            )
        except BaseException:
            held.close()
            raise
        position = {**first, "snapshot": seen, "until": until, "export": export, "at": at}
        return End(position, held=held)

    def _finished(self, connection: Connection[Any]) -> None:
        """Wait for the transactions that now write. Error: STREAM_UNREACHABLE after `patience`."""
        # A snapshot does not list transactions newer than all that have ended: hence an id of our
        # own, which is greater than those of all that began before.
        (newest,) = server_tables.one(connection, "SELECT pg_current_xact_id()::text::bigint")
        asked = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        until = time.monotonic() + self.patience
        while server_tables.one(connection, asked)[0] <= newest:
            if time.monotonic() > until:
                raise self._kept_waiting(connection)
            time.sleep(_POLL)

    def _kept_waiting(self, connection: Connection[Any]) -> StreamSqlError:
        text = "SELECT pid FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
        pids = ", ".join(str(pid) for (pid,) in connection.execute(text).fetchall())
        return self._refusal(
            "STREAM_UNREACHABLE",
            "transactions that write must end before the table can be followed",
            f"they have run for more than {self.patience:g} seconds, in the processes {pids}",
            "end them, or raise `snapshot_wait`",
        )

    def _changes(self, connection: Connection[Any], table: PgTable, after: Position) -> End | None:
        (now,) = server_tables.one(connection, "SELECT pg_current_wal_flush_lsn()::text")
        found = connection.execute(
            "SELECT xid::text::bigint, count(*) FILTER (WHERE get_byte(data, 0) = ANY (%s) AND "
            "(get_byte(data, 0) = %s OR substring(data FROM 2 FOR 4) = %s)), "
            "string_agg(data, ''::bytea) FILTER (WHERE get_byte(data, 0) = %s), "
            f"count(*) FROM {_PEEK} GROUP BY 1",
            (
                list(b"IUDT"),
                ord("T"),
                table.oid.to_bytes(4, "big"),
                ord("C"),
                *self._peek(now, self.most),
            ),
        ).fetchall()
        done, seen = lsn_of(after["lsn"]), pgoutput_rows.Snapshot.of(after)
        ends = {row[0]: end_of(row[2]) for row in found if row[2]}
        new = [row for row in found if row[0] in ends and ends[row[0]] > done]
        counted = [row for row in new if row[1] and not seen.has(row[0], ends[row[0]])]
        upto = max((ends[row[0]] for row in new), default=done)
        records = sum(row[1] for row in counted)
        if not records and sum(row[3] for row in found) < self.most:
            # The whole log was searched, and none of it is about this table.
            upto = lsn_of(now)
            if upto - done <= self.far:
                return None
        oldest = min((pgoutput_rows.time_of(row[2]) for row in counted), default=None)
        return End(_moved(after, upto), records, oldest)

    def _decoded(
        self, connection: Connection[Any], table: PgTable, after: Position, upto: Position
    ) -> pgoutput_rows.Rows:
        """The changes between two positions."""
        rows, seen = pgoutput_rows.Rows(table), pgoutput_rows.Snapshot.of(after)
        low, high = lsn_of(after["lsn"]), lsn_of(upto["lsn"])
        with connection.transaction(), connection.cursor("streamsql") as cursor:
            cursor.itersize = _AT_ONCE
            text = f"SELECT data FROM {_PEEK}"
            cursor.execute(text, self._peek(upto["lsn"], None), binary=True)
            for found in transactions((row[0] for row in cursor), table.oid):
                if low < found.end <= high and not seen.has(found.xid, found.end):
                    rows.add(found, self._changed)
        return rows

    def _initial(
        self, connection: Connection[Any], table: PgTable, upto: Position, rows: pgoutput_rows.Rows
    ) -> None:
        """The table as the snapshot saw it. Error: STREAM_LOST when the snapshot is gone."""
        from psycopg import errors, sql

        names = sql.SQL(", ").join(sql.Identifier(name) for name, _ in table.columns)
        place = sql.Identifier(self.schema, self.table)
        text = sql.SQL("DECLARE streamsql NO SCROLL CURSOR FOR SELECT {} FROM {}")
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            try:
                export = sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(upto["export"]))
                connection.execute(export)
            except (errors.UndefinedObject, errors.InvalidParameterValue) as error:
                raise self._refusal(
                    "STREAM_LOST",
                    "the snapshot of the first barrier is gone: its process has ended",
                    str(error).splitlines()[0],
                    "run again: the next barrier takes a new snapshot",
                ) from error
            connection.execute(text.format(names, place))
            more = 1
            while more:
                fetched = connection.execute(f"FETCH {_AT_ONCE} FROM streamsql")
                more = rows.add_initial(fetched, lsn_of(upto["lsn"]), upto["at"])

    def _publish(self, connection: Connection[Any], table: PgTable) -> None:
        """Create the publication if it is missing, or check the existing one."""
        from psycopg import sql

        if not table.has_identity and {"update", "delete"} & set(self.publish):
            raise self._refusal(
                "STREAM_CHANGED",
                "the table has no replica identity: PostgreSQL could not identify updated or "
                "deleted rows, and would refuse every UPDATE and DELETE of the table",
                f"replica identity {table.identity!r} without a primary key",
                f'a primary key, or `ALTER TABLE "{self.schema}"."{self.table}" REPLICA IDENTITY '
                "FULL`, or `publish: [insert]` for a table that only grows",
            )
        told = server_tables.published(connection, self.publication, table)
        if told is not None:
            self._check_published(told)
            return
        there = "SELECT FROM pg_publication WHERE pubname = %s"
        verb = "ALTER" if connection.execute(there, (self.publication,)).fetchone() else "CREATE"
        parts = [sql.SQL(verb), sql.SQL("PUBLICATION"), sql.Identifier(self.publication)]
        parts += [sql.SQL("ADD TABLE" if verb == "ALTER" else "FOR TABLE")]
        parts += [sql.Identifier(self.schema, self.table)]
        if verb == "CREATE":
            words = sql.Literal(", ".join(self.publish))
            root = sql.SQL(", publish_via_partition_root = true" * table.is_partitioned)
            parts += [sql.SQL("WITH (publish = {}{})").format(words, root)]
        text = sql.SQL(" ").join(parts)
        if not self.may_create:
            self._missing(f"the publication {self.publication}", text.as_string(connection))
        connection.execute(text)

    def _check_published(self, told: list[str]) -> None:
        wanted = [word for word in OPERATIONS if word in self.publish]
        if told != wanted:
            raise self._refusal(
                "STREAM_CHANGED",
                f"the publication {self.publication} does not publish what `publish` requires",
                "; ".join(told),
                f"let it publish {', '.join(wanted)} of all columns and rows, or change `publish`",
            )

    def _slot_created(self, connection: Connection[Any]) -> Slot:
        from psycopg import errors

        (level,) = server_tables.one(connection, "SHOW wal_level")
        if level != "logical":
            raise self._refusal(
                "STREAM_UNREACHABLE",
                "PostgreSQL does not log what logical decoding needs",
                f"wal_level = {level}",
                "set `wal_level = logical` in postgresql.conf and restart the server",
            )
        slot = server_tables.slot_of(connection, self.slot)
        if slot is not None and slot.is_lost and self.may_create:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (self.slot,))
            slot = None
        if slot is None:
            text = "SELECT pg_create_logical_replication_slot(%s, %s)"
            if not self.may_create:
                told = f"SELECT pg_create_logical_replication_slot('{self.slot}', '{PLUGIN}')"
                self._missing(f"the slot {self.slot}", told)
            try:
                with server_tables.limited(connection, self.patience):
                    connection.execute(text, (self.slot, PLUGIN))
            except errors.QueryCanceled:
                raise self._kept_waiting(connection) from None
            slot = server_tables.slot_of(connection, self.slot)
        if slot is None or slot.plugin != PLUGIN or slot.database != self.login["dbname"]:
            raise self._refusal(
                "STREAM_CHANGED",
                f"the slot {self.slot} cannot be used",
                f"plugin {slot.plugin}, database {slot.database}" if slot else "it is gone",
                f"name a slot of the plugin {PLUGIN} in this database, or none",
            )
        return slot

    def _check(self, connection: Connection[Any], table: PgTable, after: Position) -> None:
        """Check that the slot still has what follows a position."""
        slot = server_tables.slot_of(connection, self.slot)
        problem = ""
        if slot is None:
            problem = f"the slot {self.slot} is gone"
        elif slot.is_lost:
            problem = f"the slot {self.slot} has lost its log (max_slot_wal_keep_size)"
        elif slot.confirmed > lsn_of(after["lsn"]):
            at = lsn_text(slot.confirmed)
            problem = (
                f"the slot {self.slot} is at {at}, after {after['lsn']}: another reader uses it"
            )
        elif after["table"] != table.oid:
            problem = "the table was dropped and recreated"
        elif after["system"] != server_tables.system_of(connection):
            problem = "this is a different PostgreSQL server, or a restored one"
        if problem:
            raise self._refusal(
                "STREAM_LOST",
                "the changes since the last barrier are no longer available",
                problem,
                "give every reader its own slot; `--full-refresh` starts again",
            )
        told = server_tables.published(connection, self.publication, table)
        self._check_published(told if told is not None else ["nothing of this table"])

    def _advance(self, connection: Connection[Any], upto: Position) -> None:
        slot = server_tables.slot_of(connection, self.slot)
        if slot is not None and slot.confirmed < lsn_of(upto["lsn"]):
            text = "SELECT pg_replication_slot_advance(%s, %s)"
            connection.execute(text, (self.slot, upto["lsn"]))

    def _peek(self, upto: str, most: int | None) -> tuple[Any, ...]:
        publication = '"' + self.publication.replace('"', '""') + '"'
        return (self.slot, upto, most, publication)

    def _columns(self, table: PgTable) -> tuple[tuple[str, str], ...]:
        return columns_of(table.columns, self.declared, pgoutput_rows.OWN, self.place)

    def _table(self, connection: Connection[Any]) -> PgTable:
        return server_tables.table_of(connection, self.schema, self.table, self.place)

    def _changed(self, what: str) -> NoReturn:
        raise self._refusal(
            "STREAM_CHANGED",
            "columns of the table were renamed or their types changed after rows changed",
            what,
            "`--full-refresh` starts again with the columns as they are",
        )

    def _missing(self, what: str, text: str) -> NoReturn:
        raise self._refusal(
            "STREAM_UNREACHABLE",
            f"{what} is missing, and `create` is false",
            text,
            "run that statement",
        )

    def _refusal(self, code: str, message: str, given: str, hint: str) -> StreamSqlError:
        return StreamSqlError(
            code, f"{self.name}: {message}", given=given, hint=hint, place=self.place
        )

    @contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        try:
            import psycopg
        except ImportError as error:
            raise self._refusal(
                "STREAM_UNREACHABLE",
                "Python's driver for PostgreSQL is not installed",
                str(error),
                "pip install 'dbt-streamsql[postgres]'",
            ) from error
        try:
            connection = server_tables.connect(self.login)
            try:
                yield connection
            finally:
                connection.close()
        except psycopg.Error as error:
            raise self._refusal(
                "STREAM_UNREACHABLE",
                "PostgreSQL cannot be reached, or refused the request",
                self.options.hide(" ".join(str(error).split())),
                "docs/sources-databases.md lists what the server and the user need",
            ) from None  # the cause may contain the password


def source(options: Options) -> Postgres:
    """Error: CONFIG_INVALID."""
    login = server_tables.login_of(options)
    schema, table = server_tables.place_of(options)

    def slot_name(value: Any) -> str | None:
        return value if isinstance(value, str) and _NAME.fullmatch(value) else None

    slot = options.get("slot", slot_name, "at most 63 characters from a-z, 0-9 and _", None)
    is_ours = slot is None
    if is_ours:
        digest = hashlib.sha256(f"{options.reader}|{schema}|{table}".encode()).hexdigest()[:8]
        plain = re.sub(r"[^a-z0-9_]", "_", (options.reader or str(table)).lower())[-40:]
        slot = f"streamsql_{plain}_{digest}"
    publication = options.text("publication", slot)
    publish = options.names("publish", OPERATIONS)
    if publish is not None and not set(publish) <= set(OPERATIONS):
        options.wrong(f"`publish` is {', '.join(publish)}: it may contain {', '.join(OPERATIONS)}")
    may_create = options.flag("create", default=True)
    start = options.choice("start", ("snapshot", "latest"), "snapshot")
    patience = options.seconds("snapshot_wait", 60.0)
    most = options.integer("max_records_per_barrier", 500_000)
    options.check()
    return Postgres(
        login,
        schema,
        table,
        slot,
        publication,
        publish,
        may_create,
        may_create and is_ours,
        start,
        patience,
        most,
        options.columns,
        options.place,
        options,
    )


def _moved(after: Position, lsn: int) -> Position:
    """A later position. It keeps what the snapshot saw as long as both may hold a transaction."""
    kept = {key: after[key] for key in ("table", "system")}
    if "until" in after and lsn < lsn_of(after["until"]):
        kept |= {key: after[key] for key in ("snapshot", "until")}
    return {"lsn": lsn_text(lsn), **kept}
