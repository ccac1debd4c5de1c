"""Queries of readers who are not trusted with Spark: few rows, little time, one at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    ParseException,
    PySparkException,
    SparkRuntimeException,
)
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from dbt_streamsql.compiler.parsing.read_only import only_reads
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.inspect.consistent_cut import cut
from dbt_streamsql.runtime.spark.timeout import limited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_streamsql.engine.engine import Engine
    from dbt_streamsql.engine.reads.consistent_reads import Reader
    from dbt_streamsql.meta import MetaReader

ROWS = 200
COLUMNS = 100
CELL = 1000
"""Characters of one value."""
SECONDS = 60.0
"""For one query; the start of Spark does not count."""

_NAMES_IN_QUOTES = "spark.sql.ansi.doubleQuotedIdentifiers"
_OF_THE_QUERY = (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    ParseException,
    SparkRuntimeException,
)
"""Errors whose first line is about the query. Others may name files and servers."""

log = logging.getLogger("dbt_streamsql")


@dataclass(frozen=True)
class Answer:
    """Rows of one barrier, as texts (None: NULL). `columns` are (name, type), `more`: there are
    more rows than these. `barrier` is the one that was read: an earlier one than asked for where
    a table lags behind; 0: the query reads no table."""

    barrier: int
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str | None, ...], ...]
    more: bool
    seconds: float


class LimitedQueries:
    """The queries of one warehouse. Thread-safe."""

    def __init__(
        self,
        store: MetaReader,
        opened: Callable[[], Engine],
        catalog: str,
        seconds: float = SECONDS,
    ) -> None:
        """`store` says which tables there are; `opened` gives the engine over it, and starts Spark
        when the first query needs it; `seconds` are the limit of one query."""
        self._store = store
        self._opened = opened
        self._catalog = catalog
        self._seconds = seconds
        self._one = threading.Lock()
        self._engine: Engine | None = None

    def ask(self, sql: str, barrier: int | None, sees: Callable[[str], bool]) -> Answer:
        """The rows of a query at a published barrier (None: the newest).

        `sees`: the tables that it may read. Errors: SQL_UNSUPPORTED, FUNCTION_INVALID,
        TABLE_MISSING, SQL_INVALID, QUERY_TIMEOUT, CONSISTENCY_UNAVAILABLE, META_CONFLICT,
        CONNECTION;
        WAREHOUSE_BUSY while another query runs.
        """
        if not self._one.acquire(blocking=False):
            raise StreamSqlError(
                "WAREHOUSE_BUSY",
                "another query is running",
                hint=f"try again; a query takes {self._seconds:g} seconds at most",
            )
        try:
            at = self._store.last_committed() if barrier is None else barrier
            text, tables = only_reads(sql, self._tables(at, sees), self._catalog)
            # Only now: a query that is refused starts no Spark.
            self._engine = self._opened()
            if barrier is None and (newest := self._store.last_committed()) != at:
                # That took its time, and what was the newest may be past its retention.
                at = newest
                text, tables = only_reads(sql, self._tables(at, sees), self._catalog)
            return self._answer(self._engine, text, tables, at)
        except (Py4JError, ConnectionError) as error:
            log.warning("the Spark of the queries is gone", exc_info=error)
            raise StreamSqlError(
                "CONNECTION",
                "the Spark of the queries is gone",
                hint="start the service again; a query may have needed more memory than there is",
            ) from error
        finally:
            self._one.release()

    def close(self) -> None:
        """Stop the query that runs, if any."""
        if self._engine is not None:
            self._engine.spark.interruptAll()

    def _tables(self, at: int, sees: Callable[[str], bool]) -> frozenset[str]:
        # Without views, tables would be read in their current version.
        if not self._store.jobs():
            return frozenset()
        there = {*self._store.latest_all(at), *self._store.inputs_as_of(at)}
        return frozenset(filter(sees, there))

    def _answer(self, engine: Engine, text: str, tables: Collection[str], at: int) -> Answer:
        if engine.spark.conf.get(_NAMES_IN_QUOTES, "false") == "true" and '"' in text:
            raise StreamSqlError(
                "SQL_UNSUPPORTED",
                "double quotes are names in this Spark",
                given=text[:80],
                allowed="'text', and `names`",
            )
        began, read = time.monotonic(), 0
        try:
            with limited(engine.spark, self._seconds), ExitStack() as held:
                source: SparkSession | Reader = engine.spark
                if tables:
                    source = held.enter_context(engine.reader(barrier=at))
                    read = cut(self._store, "repeatable_read", tables, at).barrier
                frame = source.sql(text)
                columns = tuple((f.name, f.dataType.simpleString()) for f in frame.schema)
                rows = _texts(frame)
        except StreamSqlError as error:
            if error.code != "QUERY_TIMEOUT":
                raise
            raise StreamSqlError(
                "QUERY_TIMEOUT",
                "the query took too long and was stopped",
                given=f"more than {self._seconds:g} seconds",
                hint="read fewer rows, or run it with `streamsql query`",
            ) from error
        except PySparkException as error:
            raise _of_spark(error) from error
        return Answer(read, columns, rows[:ROWS], len(rows) > ROWS, time.monotonic() - began)


def _texts(frame: DataFrame) -> tuple[tuple[str | None, ...], ...]:
    """The first rows, one more than are shown; Spark shortens the values."""
    fields = frame.schema.fields
    if len(fields) > COLUMNS:
        raise StreamSqlError(
            "SQL_UNSUPPORTED",
            "the query has too many columns",
            given=str(len(fields)),
            allowed=f"{COLUMNS}",
        )
    names = [f"c{at}" for at in range(len(fields))]
    values = (
        F.hex(name) if isinstance(field.dataType, BinaryType) else F.col(name).cast("string")
        for name, field in zip(names, fields, strict=True)
    )
    few = frame.limit(ROWS + 1).toDF(*names)
    return tuple(map(tuple, few.select(*(F.substring(v, 1, CELL) for v in values)).collect()))


def _of_spark(error: PySparkException) -> StreamSqlError:
    if isinstance(error, _OF_THE_QUERY):
        lines = str(error).split("\n\nJVM stacktrace")[0].strip().splitlines()
        return StreamSqlError("SQL_INVALID", f"Spark refuses the query: {lines[0][:500]}")
    log.warning("a query failed in Spark", exc_info=error)
    return StreamSqlError(
        "SQL_INVALID", "the query failed in Spark", hint="see the log of the service"
    )
