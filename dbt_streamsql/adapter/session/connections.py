"""dbt's connections: one per thread, each with its own Spark session."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.exceptions import FailedToConnectError
from dbt.adapters.spark.connections import SparkConnectionManager
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from dbt_streamsql.adapter.common.error_messages import cause_of, trace_of
from dbt_streamsql.adapter.common.secrets import scrub
from dbt_streamsql.adapter.config.model_config import Reads
from dbt_streamsql.adapter.session import engine_log
from dbt_streamsql.adapter.session.host import SparkHost, host_of_profile, project_root
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.spark import native
from dbt_streamsql.runtime.spark.session import set_pool
from dbt_streamsql.runtime.spark.timeout import limited

if TYPE_CHECKING:
    import agate
    from pyspark.sql import DataFrame, SparkSession

logger = AdapterLogger("StreamSQL")

_AGAIN_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Pauses between the cancels of what runs; the last one repeats. The cleanup of a cancelled model
takes less."""

_COMMENT = re.compile(r"\A(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/|;)+", re.DOTALL)
_QUERY = re.compile(r"(select|with|from|values|table)\b|\(", re.IGNORECASE)
_READER = re.compile(
    r"(insert|merge|update|delete|cache)\b|create\s+(or\s+replace\s+)?"
    r"((global\s+)?temp(orary)?\s+view|table)\b",
    re.IGNORECASE,
)
_THREE_PARTS = re.compile(
    r"(`(?:[^`]|``)+`|\w+)\s*\.\s*(`(?:[^`]|``)+`|\w+)\s*\.\s*(`(?:[^`]|``)+`|\w+)"
)
_TEXT = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_LEAVES_TRACES = re.compile(
    r"(set|reset|use|cache|add|declare|begin|create\s+(or\s+replace\s+)?(global\s+)?temp)",
    re.IGNORECASE,
)


def is_query(sql: str) -> bool:
    """Whether the statement only reads."""
    return _QUERY.match(_COMMENT.sub("", sql)) is not None


def reads_rows(sql: str) -> bool:
    """Whether the statement may read rows: a query, or one that writes the rows of a query."""
    return is_query(sql) or _READER.match(_COMMENT.sub("", sql)) is not None


def named_in(sql: str) -> set[TableName]:
    """What may be a table's name in a text: everything with three parts."""
    return {TableName.parse(match.group(0)) for match in _THREE_PARTS.finditer(sql)}


def named_by(sql: str, catalog: str) -> set[TableName]:
    """`named_in`, and names in strings, as in arguments of procedures."""
    found = named_in(sql)
    for match in _TEXT.finditer(sql):
        with suppress(StreamSqlError):
            found.add(TableName.parse(match[1] or match[2], catalog))
    return found


class Cursor:
    """The result of one statement, as a DB-API cursor."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._frame: DataFrame | None = None
        self._rows: list[tuple[Any, ...]] | None = None
        self.traces = False

    def execute(self, sql: str, bindings: Sequence[Any] | None = None) -> None:
        """Run one statement; `?` in it stands for the `bindings`."""
        text = sql.strip().rstrip(";")
        self.traces = _LEAVES_TRACES.match(_COMMENT.sub("", text)) is not None
        self._rows = None
        arguments = list(bindings) if bindings else None
        self._ask = partial(self._session.sql, text, args=arguments)
        # What writes is run at once, before it is known what it reads.
        with native.without(self._session):
            self._frame = self._ask()

    @property
    def description(self) -> list[tuple[str, str, None, None, None, None, bool]]:
        if self._frame is None:
            return []
        return [
            (f.name, f.dataType.simpleString(), None, None, None, None, f.nullable)
            for f in self._frame.schema.fields
        ]

    def fetchall(self) -> list[tuple[Any, ...]]:
        if self._rows is None:
            self._rows = self._fetched() if self._frame is not None else []
        return self._rows

    def _fetched(self, most: int | None = None) -> list[tuple[Any, ...]]:
        def rows(frame: Any) -> list[tuple[Any, ...]]:
            return _rows(frame if most is None else frame.limit(most))

        # A frame keeps the plan that it was first run with.
        return native.or_without(
            self._session,
            lambda: rows(self._frame),
            "a query",
            lambda: rows(self._ask()),
            nested=lambda: self._frame is None or native.reads_nested(self._frame),
        )

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        if self._rows is None and self._frame is not None:
            return self._fetched(size)
        return self.fetchall()[:size]

    def fetchone(self) -> tuple[Any, ...] | None:
        rows = self.fetchall()
        return rows.pop(0) if rows else None

    def close(self) -> None:
        self._frame = self._rows = None


class Handle:
    """A Spark session on loan from the host for the life of one dbt connection."""

    def __init__(self, host: SparkHost) -> None:
        self.host = host
        self.session = host.acquire()
        self.model = self.query = ""
        """The text of the model being built: compiled, and as it appears in statements."""
        self.reads = Reads()
        self.shows = False
        """Whether the rows of its queries are shown to a user."""
        self.beside: frozenset[str] = frozenset()
        """The tables that the queries of a Python model read, all at one barrier."""
        self.temporaries: list[str] = []
        """Temporary views to drop when the connection is closed."""
        self._cursors: list[Cursor] = []
        self._thread = threading.get_ident()
        self._holds = 0

    def hold(self) -> None:
        """Keep staged data where it is until this connection is closed."""
        self.host.gate.enter()
        self._holds += 1

    def cursor(self) -> Cursor:
        cursor = Cursor(self.session)
        self._cursors.append(cursor)
        return cursor

    def cancel(self) -> None:
        self.session.interruptAll()

    def rollback(self) -> None:
        """Spark has no transactions; the epoch is aborted by the adapter."""

    def close(self) -> None:
        if self._holds:
            self.host.gate.leave(self._thread, self._holds)
            self._holds = 0
        clean = not any(cursor.traces for cursor in self._cursors)
        self._cursors.clear()
        if clean and self._dropped():
            self.host.release(self.session)

    def _dropped(self) -> bool:
        try:
            for name in self.temporaries:
                self.session.catalog.dropTempView(name)
        except Exception as error:  # noqa: BLE001 - a session that cannot is not handed out again
            logger.debug(f"Discarding a session: {cause_of(error)}")
            return False
        return True


class StreamSqlConnectionManager(SparkConnectionManager):
    TYPE = "streamsql"
    _cancels: Hashable = None
    """The thread that has cancelled the other threads' work, until the end of the invocation."""

    @property
    def host(self) -> SparkHost:
        return host_of_profile(self.profile.credentials, project_root(self.profile))

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        try:
            yield
        except DbtRuntimeError:
            raise
        except Exception as error:  # noqa: BLE001 - raised again, in dbt's words
            # The log has everything, without secrets; a chained cause would show them again.
            logger.debug(f"Error while running:\n{scrub(sql)}\n{trace_of(error)}")
            if isinstance(error, StreamSqlError):
                raise DbtRuntimeError(cause_of(error)) from None
            connection = self.get_if_exists()
            query = getattr(connection.handle, "query", "") if connection is not None else ""
            raise DbtDatabaseError(cause_of(error, sql, query)) from None

    def open(self, connection: Connection) -> Connection:
        # dbt declares a class method, but calls it on the object; the host is the object's.
        if connection.state == ConnectionState.OPEN:
            return connection
        if self._cancels not in (None, self.get_thread_identifier()):
            # A model that was about to start.
            connection.handle = None
            connection.state = ConnectionState.FAIL
            raise FailedToConnectError("the run was cancelled")
        engine_log.to_dbt()
        try:
            handle = Handle(self.host)
            set_pool(handle.session, threading.current_thread().name)
        except Exception as error:  # noqa: BLE001 - raised again, in dbt's words
            connection.handle = None
            connection.state = ConnectionState.FAIL
            logger.debug(f"Connection failed: {trace_of(error)}")
            raise FailedToConnectError(cause_of(error)) from None
        connection.handle = handle
        connection.state = ConnectionState.OPEN
        return connection

    def execute(
        self,
        sql: str,
        auto_begin: bool = False,
        fetch: bool = False,
        limit: int | None = None,
    ) -> tuple[AdapterResponse, agate.Table]:
        # Spark works when rows are fetched, so that is where most errors come from.
        with self.exception_handler(sql), self.limited():
            return super().execute(sql, auto_begin, fetch, limit)

    def limited(self) -> AbstractContextManager[None]:
        """A time limit for this thread's connection. Error: QUERY_TIMEOUT."""
        handle = self.get_thread_connection().handle
        return limited(handle.session, self.profile.credentials.query_timeout)

    def cancel(self, connection: Connection) -> None:
        connection.handle.cancel()

    def cancel_open(self) -> list[str]:
        """Return when nothing runs: a model between two statements still sends the next one, and
        dbt would wait for it."""
        self._cancels = self.get_thread_identifier()
        mine = self.get_if_exists()
        with self.lock:
            # dbt's own would open connections that are not open yet.
            others = [each for each in self.thread_connections.values() if each is not mine]
            names = [each.name for each in others if each.name is not None]
        self.host.cancel_all()
        pauses = iter(_AGAIN_SECONDS)
        pause = next(pauses)
        until = time.monotonic() + pause
        while self._others_work():
            time.sleep(0.05)
            if time.monotonic() > until:
                self.host.cancel_all()
                pause = next(pauses, pause)
                until = time.monotonic() + pause
        return names

    def cleanup_all(self) -> None:
        super().cleanup_all()
        self._cancels = None
        engine_log.as_before()

    def _others_work(self) -> bool:
        alive = {(os.getpid(), thread.ident) for thread in threading.enumerate()}
        alive.discard((os.getpid(), threading.get_ident()))
        with self.lock:
            return any(
                key in alive and connection.state == ConnectionState.OPEN
                for key, connection in self.thread_connections.items()
            )

    @classmethod
    def get_response(cls, cursor: Any) -> AdapterResponse:
        return AdapterResponse(_message="OK")


def _rows(frame: Any) -> list[tuple[Any, ...]]:
    from dbt_streamsql.storage.columns import collected

    return [tuple(map(_plain, row)) for row in collected(frame)]


def _plain(value: Any) -> Any:
    """Spark's nested rows as dictionaries, which dbt prints as JSON."""
    from pyspark.sql import Row

    if isinstance(value, Row):
        return value.asDict(recursive=True)
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return value
