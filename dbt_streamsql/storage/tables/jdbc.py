"""A table in another database: written next to the old one, then renamed in one transaction there.

The database is a Spark JDBC catalog of the session (`spark.sql.catalog.<name>`); address, user and
password are looked up there when needed and are never part of the staged data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage.columns import type_ddl
from dbt_streamsql.storage.conf import settings_of
from dbt_streamsql.storage.java import is_connect, java_class
from dbt_streamsql.storage.staged_table import (
    StagingPurpose,
    TableSpec,
    already_there,
    gone,
)

CATALOG = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
TESTED = ("jdbc:postgresql:", "jdbc:sqlite:")
"""Databases with transactional DDL: others would publish in two steps."""


@dataclass(frozen=True)
class JdbcStagedTable:
    """The staged rows are the table `streamsql_<token>` of the same schema.

    A temporary view of the same name reads them.
    """

    spec: TableSpec
    purpose: StagingPurpose
    token: str

    @classmethod
    def plan(
        cls, spark: SparkSession, spec: TableSpec, purpose: StagingPurpose, token: str, root: str
    ) -> JdbcStagedTable:
        """Error: ATOMIC_UNSUPPORTED for another kind of catalog or database, or over Connect."""
        del root  # the database keeps its own files
        kind = spark.conf.get(f"spark.sql.catalog.{spec.name.catalog}", "")
        url = _options(spark, spec.name).get("url", "")
        extras = (spec.partition_by, spec.clustered_by, spec.location, spec.column_comments)
        if is_connect(spark):
            raise _unsupported(spec, "Spark Connect, which cannot reach the database's driver")
        if kind != CATALOG:
            raise _unsupported(spec, f"the catalog {spec.name.catalog} is {kind or 'not known'}")
        if not url.startswith(TESTED):
            raise _unsupported(spec, f"the database {url.partition('//')[0]}")
        if spec.comment is not None or any(extras) or spec.properties:
            raise _unsupported(spec, "partitions, a location, comments or properties")
        return cls(spec, purpose, token)

    @property
    def at(self) -> TableName:
        name = self.spec.name
        return TableName(name.catalog, name.schema, f"streamsql_{self.token}")

    @property
    def staged(self) -> str:
        return quote(self.at.table)

    def exists(self, spark: SparkSession) -> bool:
        with _transaction(spark, self.spec.name) as connection:
            return _exists(connection, self.spec.name)

    def begin(self, spark: SparkSession, query: str) -> None:
        options = _options(spark, self.spec.name)
        if options["url"].startswith("jdbc:sqlite:"):
            options["numPartitions"] = "1"  # it has one writer at a time
        rows = spark.sql(query)
        # Spark's writer first checks whether the table exists, which needs a dialect that knows
        # the database's errors; SQLite has none.
        columns = _columns(spark, rows, options)
        with _transaction(spark, self.spec.name) as connection:
            _execute(connection, f"CREATE TABLE {_name(self.at)} ({columns})")
        writer = rows.write.format("jdbc").mode("append")
        writer.options(**options, dbtable=_name(self.at)).save()
        # With the types of the query: Spark may map the database's own types to others.
        types = ", ".join(f"{quote(f.name)} {type_ddl(f.dataType)}" for f in rows.schema)
        reader = spark.read.format("jdbc").options(**options, dbtable=_name(self.at))
        reader.option("customSchema", types).load().createOrReplaceTempView(self.at.table)

    def commit(self, spark: SparkSession) -> None:
        spark.catalog.dropTempView(self.at.table)
        with _transaction(spark, self.spec.name) as connection:
            if not _exists(connection, self.at):
                raise gone(self.spec.name)
            if _exists(connection, self.spec.name):
                if self.purpose is not StagingPurpose.CREATE_OR_REPLACE_TABLE_AS:
                    raise already_there(self.spec.name)
                _execute(connection, f"DROP TABLE {_name(self.spec.name)}")
            new = _quote(self.spec.name.table)
            _execute(connection, f"ALTER TABLE {_name(self.at)} RENAME TO {new}")

    def abort(self, spark: SparkSession) -> None:
        spark.catalog.dropTempView(self.at.table)
        with _transaction(spark, self.spec.name) as connection:
            _execute(connection, f"DROP TABLE IF EXISTS {_name(self.at)}")


def _columns(spark: SparkSession, rows: DataFrame, options: Mapping[str, str]) -> str:
    """The columns with the types that Spark gives them in this database."""
    package = "org.apache.spark.sql"
    dialect = java_class(spark, f"{package}.jdbc.JdbcDialects").get(options["url"])
    tools = java_class(spark, f"{package}.execution.datasources.jdbc.JdbcUtils")
    none = java_class(spark, "scala.Option").empty()
    return str(tools.schemaString(dialect, rows._jdf.schema(), True, none))  # noqa: SLF001 - no other way


def _unsupported(spec: TableSpec, what: str) -> StreamSqlError:
    return StreamSqlError(
        "ATOMIC_UNSUPPORTED",
        "this table of another database cannot be published in one step",
        given=what,
        allowed=f"a catalog {CATALOG} over {' or '.join(TESTED)} in a session with a JVM; a table "
        "with columns only",
        hint="docs/atomic.md shows the profile",
        place=Place(str(spec.name)),
    )


def _options(spark: SparkSession, name: TableName) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{name.catalog}."
    settings = settings_of(spark).items()
    return {key.removeprefix(prefix): v for key, v in settings if key.startswith(prefix)}


def _quote(part: str) -> str:
    return '"' + part.replace('"', '""') + '"'


def _name(table: TableName) -> str:
    return f"{_quote(table.schema)}.{_quote(table.table)}"


@contextmanager
def _transaction(spark: SparkSession, name: TableName) -> Iterator[Any]:
    """A transaction on a connection of the database's own driver."""
    options = _options(spark, name)
    properties = java_class(spark, "java.util.Properties")()
    for key in ("user", "password"):
        if key in options:
            properties.setProperty(key, options[key])
    connection = java_class(spark, options["driver"])().connect(options["url"], properties)
    try:
        connection.setAutoCommit(False)
        yield connection
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.close()


def _execute(connection: Any, text: str) -> None:
    statement = connection.createStatement()
    statement.execute(text)
    statement.close()


def _exists(connection: Any, table: TableName) -> bool:
    """Asks the driver: a failing query would end a transaction of PostgreSQL."""
    found = connection.getMetaData().getTables(None, None, table.table, None)
    exists = False
    while found.next():
        schema = found.getString("TABLE_SCHEM")
        same = found.getString("TABLE_NAME") == table.table
        exists = exists or (same and schema in (None, table.schema))
    found.close()
    return exists
