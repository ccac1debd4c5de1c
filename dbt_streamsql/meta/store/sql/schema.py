"""The tables of the store; records to rows and back. JSON columns are text, keys sorted."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    RowMapping,
    Table,
    Text,
)

from dbt_streamsql.meta.model.records import (
    Barrier,
    ChangeFile,
    Job,
    Sink,
    Span,
    TableVersion,
)

SCHEMA_VERSION = 10
"""Increment it when a table below changes, and add the way of an older store to `UPGRADES`."""

UPGRADES: dict[int, tuple[str, ...]] = {
    2: ("ALTER TABLE streamsql_table_version ADD COLUMN stats TEXT NOT NULL DEFAULT '{}'",),
    3: (
        "ALTER TABLE streamsql_table_version ADD COLUMN started_at DOUBLE PRECISION",
        "ALTER TABLE streamsql_table_version ADD COLUMN written_at DOUBLE PRECISION",
        "ALTER TABLE streamsql_barrier_input ADD COLUMN committed_at DOUBLE PRECISION",
    ),
    4: ("ALTER TABLE streamsql_runner ADD COLUMN store_id TEXT NOT NULL DEFAULT ''",),
    5: (),
    6: (),
    7: (),
    8: (),
    9: (
        "ALTER TABLE streamsql_runner ADD COLUMN state TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE streamsql_runner ADD COLUMN jobs_state TEXT NOT NULL DEFAULT ''",
    ),
}
"""By the version that they start from; a store of any other version is refused (META_VERSION).
New tables are created in addition."""

METADATA = MetaData()

# in SQLite only an INTEGER primary key is the row id itself
_ID = BigInteger().with_variant(Integer, "sqlite")


def _table(name: str, *parts: Any) -> Table:
    return Table(f"streamsql_{name}", METADATA, *parts)


def _key(name: str, kind: Any) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _need(name: str, kind: Any) -> Column[Any]:
    return Column(name, kind, nullable=False)


def _definition() -> list[Column[Any]]:
    texts = (
        "unique_id",
        "sql",
        "refresh_mode",
        "config",
        "fingerprint",
        "plan",
        "columns",
        "sources",
        "table_uuid",
    )
    return [*(_need(name, Text) for name in texts), _need("created_barrier", _ID)]


schema_version = _table("schema_version", _key("version", Integer))

runner = _table(
    "runner",  # one row: id 1
    _key("id", Integer),
    _need("token", BigInteger),
    _need("owner", Text),
    _need("last_barrier", BigInteger),
    _need("kept_from", BigInteger),
    Column("store_id", Text, nullable=False, server_default=""),
    # new texts after every write of a runner, and after every change of `job` (`kept.py`)
    Column("state", Text, nullable=False, server_default=""),
    Column("jobs_state", Text, nullable=False, server_default=""),
)
barrier = _table(
    "barrier",
    _key("id", _ID),
    _need("state", Text),
    _need("fence", BigInteger),
    _need("started_at", Float(53)),
    Column("ended_at", Float(53)),
    Index("streamsql_barrier_state", "state", "id"),
)
barrier_input = _table(
    "barrier_input",
    _key("barrier", _ID),
    _key("table_name", Text),
    Column("snapshot", BigInteger),
    Column("committed_at", Float(53)),
)
position = _table(
    "stream_position",
    _key("barrier", _ID),
    _key("table_name", Text),
    _need("after", Text),
    _need("upto", Text),
)
version = _table(
    "table_version",
    _key("barrier", _ID),
    _key("table_name", Text),
    _need("state", Text),
    Column("snapshot", BigInteger),
    _need("staged_at", Text),
    _need("branch", Text),
    _need("created", Boolean),
    _need("mode", Text),
    _need("reason", Text),
    _need("rows_inserted", BigInteger),
    _need("rows_deleted", BigInteger),
    _need("jobs", Integer),
    _need("seconds", Float(53)),
    _need("inputs", Text),
    Column("stats", Text, nullable=False, server_default="{}"),
    Column("started_at", Float(53)),
    Column("written_at", Float(53)),
    Index("streamsql_version_table", "table_name", "barrier"),
)
head = _table("head", _key("table_name", Text), _need("barrier", _ID))
job = _table("job", _key("table_name", Text), *_definition())
staged_job = _table("staged_job", _key("barrier", _ID), _key("table_name", Text), *_definition())
edge = _table(
    "edge",
    _key("sink", Text),
    _key("source", Text),
    Index("streamsql_edge_source", "source", "sink"),
)
change_file = _table(
    "change_file",
    _key("table_name", Text),
    _key("barrier", _ID),
    _key("path", Text),
    _need("rows", BigInteger),
    Index("streamsql_change_file_barrier", "barrier"),
)
lease = _table(
    "lease",
    _key("id", Text),
    _need("owner", Text),
    _need("barrier", _ID),
    _need("taken_at", Float(53)),
    _need("expires_at", Float(53)),
    Index("streamsql_lease_end", "expires_at"),
)
leader = _table("leader", _key("owner", Text), _need("expires_at", Float(53)))
sink = _table(
    "sink",
    _key("name", Text),
    _need("table_name", Text),
    *(_need(name, Text) for name in ("unique_id", "sql", "config", "columns", "fingerprint")),
    _need("delivered", BigInteger),
    _need("under_way", BigInteger),
    _need("replaces", Boolean),
    Column("delivered_at", Float(53)),
    Column("failing_since", Float(53)),
    _need("problem", Text),
)
published = _table("published", _key("schema_name", Text), _need("with_schema", Boolean))
audit = _table(
    "audit",
    Column("id", _ID, primary_key=True),
    _need("at", Float(53)),
    _need("who", Text),
    _need("action", Text),
    _need("detail", Text),
)
staged_table = _table(
    "staged_table",
    _key("token", Text),
    _need("owner", Text),
    _need("table_name", Text),
    _need("body", Text),
)


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def to_barrier(row: RowMapping) -> Barrier:
    return Barrier(
        id=row["id"],
        state=row["state"],
        fence=row["fence"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )


def from_version(record: TableVersion) -> dict[str, Any]:
    row = dict(vars(record))
    row["table_name"] = row.pop("table")
    row["inputs"] = _dump(dict(record.inputs))
    row["stats"] = _dump(dict(record.stats))
    return row


def to_version(row: RowMapping) -> TableVersion:
    fields = dict(row)
    fields["table"] = fields.pop("table_name")
    fields["inputs"] = json.loads(fields["inputs"])
    fields["stats"] = json.loads(fields["stats"])
    return TableVersion(**fields)


def from_job(record: Job) -> dict[str, Any]:
    row = {each.name: getattr(record, each.name) for each in fields(record)}
    row["table_name"] = row.pop("table")
    row["sources"] = _dump(sorted(set(record.sources)))
    row["config"] = _dump(dict(record.config))
    row["plan"] = _dump(dict(record.plan))
    row["columns"] = _dump(list(record.columns))
    return row


def to_job(row: RowMapping) -> Job:
    fields = dict(row)
    fields.pop("barrier", None)
    fields["table"] = fields.pop("table_name")
    for name in ("config", "plan", "columns"):
        fields[name] = json.loads(fields[name])
    fields["sources"] = tuple(json.loads(fields["sources"]))
    return Job(**fields)


def from_sink(record: Sink) -> dict[str, Any]:
    row = dict(vars(record))
    row["table_name"] = row.pop("table")
    row["config"] = _dump(dict(record.config))
    row["columns"] = _dump(list(record.columns))
    return row


def to_sink(row: RowMapping) -> Sink:
    fields = dict(row)
    fields["table"] = fields.pop("table_name")
    for name in ("config", "columns"):
        fields[name] = json.loads(fields[name])
    return Sink(**fields)


def from_span(barrier: int, table: str, record: Span) -> dict[str, Any]:
    ends = {name: _dump(end) for name, end in vars(record).items()}
    return {"barrier": barrier, "table_name": table, **ends}


def to_span(row: RowMapping) -> Span:
    return Span(json.loads(row["after"]), json.loads(row["upto"]))


def to_change_file(row: RowMapping) -> ChangeFile:
    return ChangeFile(row["table_name"], row["barrier"], row["path"], row["rows"])
