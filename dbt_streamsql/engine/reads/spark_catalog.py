"""Answers the compiler's questions from a Spark session."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, cast

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.catalog import TableInfo
from dbt_streamsql.plan.algebra.schema import Column, visible
from dbt_streamsql.quoting import TableName, literal, quote
from dbt_streamsql.runtime.core import definition_property
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.iceberg import sqlite_catalog
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.inputs import file_tables, inputs
from dbt_streamsql.storage.inputs.file_tables import NoVersionsError
from dbt_streamsql.storage.java import is_connect
from dbt_streamsql.storage.tables import information_schema

_AS = re.compile(r"\nAS\n", re.MULTILINE)
_SPOT = re.compile(r"line (\d+),? pos (\d+)")

At = Callable[[TableName], TableName]

_OF_GRAMMAR = frozenset({"timestampadd", "timestampdiff", "timediff"})
"""Functions in Spark's grammar, which no listing contains."""


_FORMATS = ("parquet", "orc", "csv", "json", "avro", "text", "delta", "binaryfile")
"""What Spark takes for a format where a name in FROM has a path after it."""


class SparkCatalog:
    """The tables, types and functions that a session sees (see `plan.catalog.Catalog`)."""

    def __init__(
        self,
        spark: SparkSession,
        default_catalog: str,
        at: At,
        rewrite: Callable[[str], str],
        pinned: Callable[[TableName], Metadata | None],
        unique: Callable[[str], tuple[str, ...]] = lambda _: (),
    ) -> None:
        """`at` says where an unpublished table is staged, `rewrite` applies that to a query,
        `pinned` gives what an open epoch already knows of a table, `unique` the unique columns of
        a maintained one."""
        self.default_catalog = default_catalog
        self.spark = spark
        self._at = at
        self._rewrite = rewrite
        self._pinned = pinned
        self._unique = unique
        self._functions: frozenset[str] | None = None
        self._lock = threading.Lock()

    def table(self, name: TableName) -> TableInfo:
        """A table or view by name; TABLE_MISSING when there is none."""
        try:
            fields = self.spark.table(self._at(name).sql).schema
        except AnalysisException as error:
            if error.getCondition() in {
                "TABLE_OR_VIEW_NOT_FOUND",
                "SCHEMA_NOT_FOUND",
                "REQUIRES_SINGLE_PART_NAMESPACE",
            }:
                hint = "check the name, or build the model or source that creates it"
                if information_schema.find(name) is not None:
                    hint = "it has no changes to follow: read it in a `table`, or with run_query"
                if name.schema.lower() in _FORMATS and "/" in name.table:
                    hint = (
                        f"make a table of the files, CREATE TABLE … USING {name.schema} LOCATION "
                        f"{literal(name.table)} in `spark_catalog`, or read them as a stream "
                        "(docs/sources.md#files-a-folder)"
                    )
                raise StreamSqlError(
                    "TABLE_MISSING", f"{name} does not exist", hint=hint
                ) from error
            raise _refused(error) from error
        columns = visible(tuple(Column(f.name, type_text(f.dataType), f.nullable) for f in fields))
        found, why = None, ""
        try:
            found = inputs.load(self.spark, self._at(name))
        except NoVersionsError as error:
            why = error.why
        except (StreamSqlError, PySparkException):
            pass
        if found is None:
            view = self._view(name)
            if view:
                return TableInfo(name, columns, True, view, name.catalog, name.schema)
            return TableInfo(name, columns, versioned=False, unversioned=why)
        # A table of ours changes only by its definition; a staged one has other ids.
        ours = definition_property.STORE in found.properties
        return TableInfo(
            name,
            columns,
            fields="" if ours else found.fields,
            bare=found.format == file_tables.FORMAT,
            unique=self._unique(str(name)) if ours else (),
        )

    def size(self, name: TableName) -> tuple[int, int]:
        """The rows of a table's current version, and the bytes of its files, by its metadata (0:
        not known)."""
        found = self._found(name)
        if found is None:
            return 0, 0
        return found.live_rows(found.current), found.live_bytes(found.current)

    def changes(self, name: TableName) -> bool:
        """Whether a table has changed since it was made, by the snapshots that it has."""
        found = self._found(name)
        return found is not None and len(found.snapshots) > 1

    def _found(self, name: TableName) -> Metadata | None:
        try:
            return self._pinned(name) or inputs.load(self.spark, self._at(name))
        except StreamSqlError:
            return None

    def schema(self, sql: str) -> tuple[Column, ...]:
        """Columns and types of a query; SQL_INVALID with Spark's own message when it refuses."""
        try:
            fields = _analyzed(self.spark, self._rewrite(sql))
        except (AnalysisException, ParseException) as error:
            raise _refused(error) from error
        return tuple(Column(f.name, type_text(f.dataType), f.nullable) for f in fields)

    def functions(self) -> frozenset[str]:
        """Spark's built-in functions, queried once."""
        with self._lock:
            if self._functions is None:
                rows = self.spark.sql("SHOW SYSTEM FUNCTIONS").collect()
                self._functions = _OF_GRAMMAR.union(row[0].lower() for row in rows)
            return self._functions

    def loses_overflow(self) -> bool:
        """Whether the session is without ANSI mode."""
        return str(self.spark.conf.get("spark.sql.ansi.enabled")).lower() == "false"

    def stamp(self, name: TableName) -> str:
        """Changes when a table is recreated, its columns change, or a view is redefined."""
        try:
            found = self._pinned(name) or inputs.load(self.spark, self._at(name))
        except StreamSqlError:
            return "unversioned"
        return found.stamp if found is not None else self._view(name)

    def _view(self, name: TableName) -> str:
        """The text of a view ('' for a table)."""
        try:
            if not sqlite_catalog.is_view(self.spark, name):
                return ""
        except sqlite_catalog.CatalogNotLocalError:
            pass
        try:
            rows = self.spark.sql(
                f"SHOW VIEWS IN {quote(name.catalog)}.{quote(name.schema)} "
                f"LIKE {literal(name.table)}"
            ).collect()
            if not any(row["viewName"].lower() == name.table.lower() for row in rows):
                return ""
            text = self.spark.sql(f"SHOW CREATE TABLE {name.sql}").collect()[0][0]
        except (AnalysisException, PySparkException):
            return ""
        return _AS.split(text, 1)[1].strip()


def _analyzed(spark: SparkSession, sql: str) -> StructType:
    """The columns of a query. `spark.sql` of Spark Connect runs a command before it gives them,
    which is a second round trip and a second analysis."""
    if not is_connect(spark):
        return spark.sql(sql).schema
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import SQL

    return DataFrame(SQL(sql), cast(Any, spark)).schema


def _refused(error: PySparkException) -> StreamSqlError:
    text = str(error).split("\n\nJVM stacktrace")[0]
    spot = _SPOT.search(text)
    place = Place("", int(spot[1]), int(spot[2]) + 1) if spot else None
    return StreamSqlError(
        "SQL_INVALID",
        "Spark refuses the query: " + text.strip().split(";")[0].splitlines()[0],
        hint="try the query with `dbt show --inline`",
        place=place,
    )
