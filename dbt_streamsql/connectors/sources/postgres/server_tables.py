"""What PostgreSQL's catalog says about a followed table, its publication and its slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.postgres.pgoutput import lsn_of
from dbt_streamsql.errors import Place, StreamSqlError

if TYPE_CHECKING:
    from psycopg import Connection

PLAIN = {
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "bool": "boolean",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
"""Spark's types; all others are text, as PostgreSQL writes them."""

UNBOUNDED = "decimal(38,18)"
"""The type of a `numeric` without declared digits; values with more digits are rounded."""

_TABLE = """
    SELECT c.oid::bigint, c.relkind::text, c.relreplident::text, EXISTS (
        SELECT FROM pg_index i WHERE i.indrelid = c.oid AND
        (c.relreplident = 'd' AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s"""
_COLUMNS = """
    SELECT a.attname, b.typname, coalesce(
        CASE WHEN t.typtype = 'd' THEN nullif(t.typtypmod, -1) END, a.atttypmod),
        coalesce(a.attnum = ANY (i.indkey::int2[]), false)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
    LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    ORDER BY a.attnum"""
_SLOT = """
    SELECT plugin, database, active_pid, confirmed_flush_lsn::text,
        to_jsonb(s) ->> 'wal_status'
    FROM pg_replication_slots s WHERE slot_name = %s"""

_SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
    "idle_in_transaction_session_timeout": "0",
    "statement_timeout": "0",
}
"""With these, the text of values does not depend on the user's or the server's settings."""


@dataclass(frozen=True)
class PgTable:
    """`has_identity`: updated or deleted rows can be identified. `columns` have Spark's types;
    `key` is the primary key."""

    oid: int
    is_partitioned: bool
    identity: str
    has_identity: bool
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]


@dataclass(frozen=True)
class Slot:
    """`confirmed`: changes up to this log position are gone from the slot."""

    plugin: str
    database: str
    user: int | None
    confirmed: int
    is_lost: bool


def login_of(options: Options, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """libpq's parameters; `known` holds those that an address already gives."""
    known = known or {}
    login = {
        "host": known.get("host") or options.text("host"),
        "port": known.get("port") or options.integer("port", 5432),
        "dbname": known.get("dbname") or options.text("database"),
        "user": options.text("user", known["user"]) if known.get("user") else options.text("user"),
        "password": options.text("password", known.get("password")),
        "sslmode": options.text("sslmode", known.get("sslmode")),
        "sslrootcert": options.text("sslrootcert", None),
        "connect_timeout": int(options.seconds("connect_timeout", 10.0) or 10),
        "application_name": "dbt-streamsql",
    }
    return {key: value for key, value in login.items() if value is not None}


def place_of(options: Options) -> tuple[str, str]:
    """The schema and the table that the options name."""
    schema, table = options.text("schema", None), options.text("table")
    if schema is None and table is not None:
        first, dot, rest = table.partition(".")
        schema, table = (first, rest) if dot else ("public", table)
    return str(schema), table


def connect(login: dict[str, Any]) -> Connection[Any]:
    """A connection in autocommit mode."""
    import psycopg

    connection = psycopg.connect(**login, autocommit=True)
    for key, value in _SETTINGS.items():
        connection.execute("SELECT set_config(%s, %s, false)", (key, value))
    return connection


@contextmanager
def limited(connection: Connection[Any], seconds: float) -> Iterator[None]:
    """A statement inside is cancelled after this time."""
    text = "SELECT set_config('statement_timeout', %s, false)"
    connection.execute(text, (str(max(1, int(seconds * 1000))),))
    try:
        yield
    finally:
        connection.execute(text, ("0",))


def one(connection: Connection[Any], text: str) -> Any:
    """The only row of a result."""
    return connection.execute(text.encode()).fetchone()


def system_of(connection: Connection[Any]) -> str:
    """The identifier of the cluster; empty for a user who may not read it."""
    from psycopg import errors

    try:
        (found,) = one(connection, "SELECT system_identifier::text FROM pg_control_system()")
    except errors.InsufficientPrivilege:
        return ""
    return str(found)


def table_of(connection: Connection[Any], schema: str, name: str, place: Place) -> PgTable:
    """Error: TABLE_MISSING."""
    found = connection.execute(_TABLE, (schema, name)).fetchone()
    if found is None or found[1] not in "rp":
        raise StreamSqlError(
            "TABLE_MISSING",
            "PostgreSQL has no such table",
            given=f"{schema}.{name}",
            allowed="a table; a view has no changes of its own",
            hint="`schema` and `table` are case-sensitive",
            place=place,
        )
    rows = connection.execute(_COLUMNS, (found[0],)).fetchall()
    return PgTable(
        found[0],
        found[1] == "p",
        found[2],
        found[2] == "f" or found[3],
        tuple((row[0], _type(row[1], row[2])) for row in rows),
        tuple(row[0] for row in rows if row[3]),
    )


def slot_of(connection: Connection[Any], name: str) -> Slot | None:
    found = connection.execute(_SLOT, (name,)).fetchone()
    if found is None:
        return None
    plugin, database, user, confirmed, status = found
    return Slot(plugin, database, user, lsn_of(confirmed or "0/0"), status == "lost")


def published(connection: Connection[Any], publication: str, table: PgTable) -> list[str] | None:
    """What the publication publishes of the table's changes; None when it lacks the table."""
    found = connection.execute(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate, to_jsonb(t) -> 'attnames', "
        "to_jsonb(t) ->> 'rowfilter' FROM pg_publication p JOIN pg_publication_tables t USING "
        "(pubname) JOIN pg_class c ON c.relname = t.tablename JOIN pg_namespace n ON "
        "n.oid = c.relnamespace AND n.nspname = t.schemaname WHERE pubname = %s AND c.oid = %s",
        (publication, table.oid),
    ).fetchone()
    if found is None:
        return None
    words = ("insert", "update", "delete", "truncate")
    told = [word for word, is_told in zip(words, found, strict=False) if is_told]
    names = {name for name, _ in table.columns}
    lacking = names - set(found[4]) if found[4] is not None else set()
    if lacking:
        told.append(f"without {', '.join(sorted(lacking))}")
    if found[5]:
        told.append(f"where {found[5]}")
    return told


def _type(name: str, modifier: int) -> str:
    if name != "numeric":
        return PLAIN.get(name, "string")
    if modifier < 0:
        return UNBOUNDED
    precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
    return f"decimal({precision},{scale})" if scale <= precision <= 38 else "string"
