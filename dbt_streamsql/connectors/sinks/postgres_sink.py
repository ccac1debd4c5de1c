"""A PostgreSQL table, kept by key. Its progress is in `streamsql_sinks` next to it, written by
the transaction that writes the rows: each change appears exactly once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from dbt_streamsql.connectors.sinks.registry import SinkOptions
from dbt_streamsql.connectors.sinks.target import (
    AFTER,
    Batch,
    Layout,
    Mark,
)
from dbt_streamsql.connectors.sources.postgres import server_tables
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import quote

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed
    from pyspark.sql import Column, DataFrame, SparkSession

MARKS = "streamsql_sinks"
_ROWS, _GONE = "streamsql_rows", "streamsql_gone"
_TYPES = {
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "binary": "bytea",
}
_NESTED = re.compile(r"array<|map<|struct<|variant")
_TIME = "-MM-dd HH:mm:ss.SSSSSS"
_COLUMNS = """
    SELECT a.attname::text FROM pg_attribute a
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped"""
_KEYS = """
    SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a
    ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
    WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indimmediate AND i.indisvalid
    AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = i.indnatts
    GROUP BY i.indexrelid"""


@dataclass(frozen=True)
class PostgresTarget:
    """`login` holds libpq's parameters, `marks` is the schema of the marks table."""

    login: dict[str, Any] = field(repr=False)
    schema: str
    table: str
    marks: str
    may_create: bool
    place: Place
    hide: Callable[[str], str] = field(repr=False)
    is_keyed: bool = True
    keeps_mark: bool = True
    compares: bool = True

    @property
    def name(self) -> str:
        where = f"{self.login['host']}:{self.login['port']}/{self.login['dbname']}"
        return f"table {self.schema}.{self.table} at {where}"

    @property
    def identity(self) -> str:
        return f"postgres {self.schema}.{self.table}"

    def check(self, spark: SparkSession, layout: Layout, *, first: bool) -> None:
        with self.begin(spark, layout, replaces=not first):
            pass

    @contextmanager
    def begin(
        self,
        spark: SparkSession,  # noqa: ARG002 - PostgreSQL is reached by its own driver
        layout: Layout,
        *,
        replaces: bool,
    ) -> Iterator[PostgresDelivery]:
        with self._connected() as connection:
            connection.autocommit = False
            self._prepare(connection, layout)
            mark = self._mark(connection, layout)
            if mark is None and not replaces and self._has_rows(connection):
                raise self._refused(
                    "it already has rows, and none is from this sink",
                    f"{self.schema}.{self.table}",
                    "empty it, or run `dbt run --full-refresh` of the sink, which replaces all of "
                    "its rows with those of the sink",
                )
            yield PostgresDelivery(self, connection, layout, mark)
            connection.rollback()

    # -- the tables --------------------------------------------------------------------------

    def _prepare(self, connection: Connection[Any], layout: Layout) -> None:
        if not self._there(connection, self.marks, MARKS):
            text = (
                "CREATE TABLE IF NOT EXISTS {} (sink text, store text, barrier bigint NOT NULL, "
                "definition text NOT NULL, delivered_at timestamptz, PRIMARY KEY (sink, store))"
            )
            _run(connection, text, (self.marks, MARKS))
        if not self._there(connection, self.schema, self.table):
            if not self.may_create:
                hint = "create it with the sink's key as its primary key, or remove `create`"
                raise self._refused("there is no such table", f"{self.schema}.{self.table}", hint)
            self._create(connection, layout)
            return
        at = self._regclass
        known = {row[0] for row in connection.execute(_COLUMNS, (at,)).fetchall()}
        missing = [name for name, _ in layout.columns if name not in known]
        if missing:
            raise self._refused(
                "the table lacks columns of the sink",
                ", ".join(missing),
                "add them to the table: `ALTER TABLE … ADD COLUMN`; the next delivery fills them",
            )
        keys = [set(row[0]) for row in connection.execute(_KEYS, (at,)).fetchall()]
        if set(layout.key) not in keys:
            raise self._refused(
                "the table has no unique index on the sink's key",
                ", ".join(layout.key),
                "`CREATE UNIQUE INDEX ON … (…)` on exactly these columns",
            )

    def _create(self, connection: Connection[Any], layout: Layout) -> None:
        from psycopg import sql

        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(_type(kind)))
            for name, kind in layout.columns
        ]
        key = sql.SQL("PRIMARY KEY ({})").format(_names(layout.key))
        parts = sql.SQL(", ").join([*columns, key])
        text = sql.SQL("CREATE TABLE {} ({})")
        connection.execute(text.format(sql.Identifier(self.schema, self.table), parts))

    def _mark(self, connection: Connection[Any], layout: Layout) -> Mark | None:
        """The entry in the marks table; its row is locked until the transaction ends."""
        at, whose = (self.marks, MARKS), (layout.sink, layout.store)
        text = "INSERT INTO {} (sink, store, barrier, definition) VALUES (%s, %s, 0, '') "
        _run(connection, text + "ON CONFLICT DO NOTHING", at, whose)
        asked = "SELECT barrier, definition FROM {} WHERE sink = %s AND store = %s FOR UPDATE"
        barrier, fingerprint = _run(connection, asked, at, whose).fetchone()
        return Mark(barrier, fingerprint) if barrier else None

    def _has_rows(self, connection: Connection[Any]) -> bool:
        found = _run(connection, "SELECT EXISTS (SELECT FROM {})", (self.schema, self.table))
        return bool(found.fetchone()[0])

    def _there(self, connection: Connection[Any], schema: str, table: str) -> bool:
        asked = (
            "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p'))"
        )
        row = connection.execute(asked, (schema, table)).fetchone()
        return bool(row and row[0])

    @property
    def _regclass(self) -> str:
        """The table name as PostgreSQL's casts take it."""
        parts = (self.schema, self.table)
        return ".".join('"' + part.replace('"', '""') + '"' for part in parts)

    # -- errors ------------------------------------------------------------------------------

    @contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        try:
            import psycopg
        except ImportError as error:
            raise StreamSqlError(
                "SINK_UNREACHABLE",
                f"{self.name}: Python's driver for PostgreSQL is not installed",
                given=str(error),
                hint="pip install 'dbt-streamsql[postgres]'",
                place=self.place,
            ) from error
        try:
            connection = server_tables.connect(self.login)
            # A process that died unnoticed may hold the mark's row.
            connection.execute("SELECT set_config('lock_timeout', '30s', false)")
            try:
                yield connection
            finally:
                connection.close()
        except psycopg.Error as error:
            raise StreamSqlError(
                "SINK_UNREACHABLE",
                f"{self.name}: PostgreSQL cannot be reached, or refused the request",
                given=self.hide(" ".join(str(error).split())),
                hint="docs/sink.md lists what the server and the user need",
                place=self.place,
            ) from None  # the cause may contain the password

    def _refused(self, what: str, given: str, hint: str) -> StreamSqlError:
        return StreamSqlError(
            "SINK_REFUSED", f"{self.name}: {what}", given=given, hint=hint, place=self.place
        )


@dataclass(frozen=True)
class PostgresDelivery:
    """One transaction. `mark` is what the target had when it began."""

    target: PostgresTarget
    connection: Connection[Any] = field(repr=False)
    layout: Layout
    mark: Mark | None

    def write(self, batch: Batch) -> None:
        from psycopg import sql

        names, key = [name for name, _ in self.layout.columns], self.layout.key
        parts = {
            "target": sql.Identifier(self.target.schema, self.target.table),
            "rows": sql.Identifier(_ROWS),
            "gone": sql.Identifier(_GONE),
            "columns": _names(names),
            "key": _names(key),
            "same": _each("t.{0} = s.{0}", key, " AND "),
        }

        def run(text: str) -> None:
            self.connection.execute(sql.SQL(text).format(**parts))

        run(
            "CREATE TEMP TABLE {rows} ON COMMIT DROP AS "
            "SELECT {columns}, false AS {gone} FROM {target} WITH NO DATA"
        )
        copied = sql.SQL("COPY {rows} ({columns}, {gone}) FROM STDIN").format(**parts)
        with self.connection.cursor() as cursor, cursor.copy(copied) as copy:
            rows = _texts(batch.rows, self.layout)
            # Where they must not all be in memory, each partition is a job of its own.
            found = rows.collect() if batch.few else rows.toLocalIterator(prefetchPartitions=True)
            for row in found:
                copy.write_row(tuple(row))
        run("ANALYZE {rows}")
        if batch.whole:
            run(
                "DELETE FROM {target} AS t WHERE NOT EXISTS (SELECT FROM {rows} AS s WHERE {same})"
            )
        else:
            run("DELETE FROM {target} AS t USING {rows} AS s WHERE s.{gone} AND {same}")
        others = [name for name in names if name not in key]
        parts["set"] = _each("{0} = EXCLUDED.{0}", others, ", ")
        # As text: some types, such as json, cannot be compared.
        parts["old"], parts["new"] = (
            _each(f"{of}.{{0}}", others, ", ") for of in ("t", "EXCLUDED")
        )
        update = "DO UPDATE SET {set}" if others else "DO NOTHING"
        if others and batch.whole:
            update += " WHERE ROW({old})::text IS DISTINCT FROM ROW({new})::text"
        run(
            "INSERT INTO {target} AS t ({columns}) SELECT {columns} FROM {rows} WHERE NOT {gone} "
            "ON CONFLICT ({key}) " + update
        )

    def publish(self, barrier: int) -> None:
        layout = self.layout
        _run(
            self.connection,
            "UPDATE {} SET barrier = %s, definition = %s, delivered_at = now() "
            "WHERE sink = %s AND store = %s",
            (self.target.marks, MARKS),
            (barrier, layout.fingerprint, layout.sink, layout.store),
        )
        self.connection.commit()


def target(options: SinkOptions, mode: str, key: tuple[str, ...]) -> PostgresTarget:
    """Error: CONFIG_INVALID."""
    options.modes(mode, ("upsert",), key)
    found = _of_url(options) if options.connector == "jdbc" else {}
    login = server_tables.login_of(options, found)
    schema, table = server_tables.place_of(options)
    marks = options.text("marks_schema", schema)
    may_create = options.flag("create", default=True)
    options.check()
    return PostgresTarget(
        login,
        schema,
        table,
        marks,
        may_create,
        options.place,
        options.hide,
    )


def _of_url(options: SinkOptions) -> dict[str, Any]:
    """The parameters in an address such as jdbc:postgresql://db:5432/shop?user=etl."""
    url = options.text("url", allowed="a JDBC address such as jdbc:postgresql://host/shop")
    if not url:
        return {"host": "", "dbname": ""}
    if not url.startswith("jdbc:postgresql://"):
        options.wrong("`url` must start with jdbc:postgresql://")
        return {"host": "-", "dbname": "-"}
    parts = urlsplit(url.removeprefix("jdbc:"))
    given = dict(parse_qsl(parts.query))
    return {
        "host": parts.hostname or "localhost",
        "port": parts.port or 5432,
        "dbname": unquote(parts.path.strip("/")) or given.get("user"),
        "user": given.get("user"),
        "password": given.get("password"),
        "sslmode": given.get("sslmode"),
    }


def _texts(rows: DataFrame, layout: Layout) -> DataFrame:
    """The rows in PostgreSQL's text form: a text per value, and whether the row is deleted."""
    from pyspark.sql import functions as F

    after = F.col(quote(AFTER))
    columns = [
        _text(F.col(quote(name)) if name in layout.key else after.getField(name), kind).alias(name)
        for name, kind in layout.columns
    ]
    return rows.select(*columns, after.isNull().cast("string").alias(_GONE))


def _text(value: Column, kind: str) -> Column:
    from pyspark.sql import functions as F

    if kind == "binary":
        return F.concat(F.lit("\\x"), F.hex(value))
    if kind == "date":
        return _of_era(value, F.right(value.cast("string"), F.lit(len("-MM-dd"))))
    if kind == "timestamp":
        # With the UTC offset: the session's time zone does not matter.
        return _of_era(value, F.date_format(value, f"{_TIME}XXXXX"))
    if kind == "timestamp_ntz":
        return _of_era(value, F.date_format(value, _TIME))
    if _NESTED.match(kind):
        return F.to_json(value, {"ignoreNullFields": "false"})
    return value.cast("string")


def _of_era(value: Column, rest: Column) -> Column:
    """A date or time with its year as in PostgreSQL: unsigned, and 1 BC for the year 0."""
    from pyspark.sql import functions as F

    year = F.year(value)
    counted = F.format_string("%04d", F.when(year > 0, year).otherwise(1 - year))
    return F.concat(counted, rest, F.when(year > 0, "").otherwise(" BC"))


def _type(kind: str) -> str:
    if _NESTED.match(kind):
        return "jsonb"
    return (
        kind.replace("decimal", "numeric")
        if kind.startswith("decimal")
        else _TYPES.get(kind, "text")
    )


def _names(names: Sequence[str]) -> Composed:
    return _each("{0}", names, ", ")


def _each(text: str, names: Sequence[str], between: str) -> Composed:
    """`text` for each of these names, quoted."""
    from psycopg import sql

    parts = [sql.SQL(text).format(sql.Identifier(name)) for name in names]
    return sql.SQL(between).join(parts)


def _run(
    connection: Connection[Any], text: str, at: tuple[str, str], values: Sequence[Any] = ()
) -> Any:
    """Run a statement on one table."""
    from psycopg import sql

    return connection.execute(sql.SQL(text).format(sql.Identifier(*at)), values)
