"""The metadata of an Iceberg table, read without a Spark job.

Over Spark Connect there is no JVM in reach; the same facts then come from the catalog's own files
where they are near, else from Iceberg's metadata tables, which costs a small job each.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import nearby
from dbt_streamsql.storage.iceberg.java import is_connect, java_class, java_table

_PIECE = 3500
"""Characters of an answer that fit into one write of the gateway; they are ASCII, so that no cut
goes through one."""


@dataclass(frozen=True)
class Snapshot:
    """One version of the table: `operation` is append, overwrite, delete or replace (compaction).

    `has_lineage`: its rows have ids that survive rewriting (format v3). `committed` is in
    milliseconds since 1970, UTC. `schema_id`: the columns that it was written with (None: not
    known).
    """

    id: int
    parent: int | None
    sequence: int
    operation: str
    summary: Mapping[str, str]
    has_lineage: bool = False
    committed: int = 0
    schema_id: int | None = None

    def count(self, key: str) -> int:
        """A number of the summary, such as `added-records`; 0 when it is absent."""
        return int(self.summary.get(key, 0))


@dataclass(frozen=True)
class Metadata:
    """A table as its catalog knows it now; `refs` are branches and tags by name.

    `types` are the columns' Iceberg types: a word, or JSON where they are nested; `schemas` have
    the fields of each schema as Iceberg's JSON; `partitioning` has the transforms as
    `name(column)`.
    """

    uuid: str
    location: str
    format_version: int
    schema_id: int
    current: int | None
    snapshots: Mapping[int, Snapshot]
    refs: Mapping[str, int]
    properties: Mapping[str, str] = field(default_factory=dict)
    types: tuple[Any, ...] = ()
    schemas: Mapping[int, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    partitioning: tuple[str, ...] = ()
    format: str = "iceberg"

    @property
    def stamp(self) -> str:
        """Changes when the table is recreated or its schema changes."""
        return f"{self.uuid}:{self.schema_id}"

    def lineage(self, newest: int | None, oldest: int | None) -> list[Snapshot] | None:
        """The snapshots after `oldest` up to `newest`, oldest first; None if not an ancestor."""
        path: list[Snapshot] = []
        at = newest
        while at is not None and at != oldest:
            snapshot = self.snapshots.get(at)
            if snapshot is None:
                return None
            path.append(snapshot)
            at = snapshot.parent
        return path[::-1] if at == oldest else None

    def last_change(self) -> Snapshot | None:
        """The newest version that holds other rows than the one before it: no compaction."""
        at = self.current
        while at is not None and (snapshot := self.snapshots.get(at)) is not None:
            if snapshot.operation != "replace":
                return snapshot
            at = snapshot.parent
        return None

    def lags(self, snapshot: int | None) -> bool:
        """Whether the table has other columns now than when the snapshot was written.

        Read by its id, a snapshot has the columns that it was written with.
        """
        found = self.snapshots.get(snapshot) if snapshot is not None else None
        written = found.schema_id if found is not None else None
        if written is None or written == self.schema_id:
            return False
        return bool(shape(self.schemas[written]) != shape(self.schemas[self.schema_id]))

    def live_rows(self, snapshot: int | None) -> int:
        """Rows at a snapshot by its summary (an upper bound with equality deletes)."""
        found = self.snapshots.get(snapshot) if snapshot is not None else None
        if found is None:
            return 0
        return found.count("total-records") - found.count("total-position-deletes")


def shape(part: Any) -> Any:
    """A field, a type or a schema, as Iceberg's JSON, without what does not change rows."""
    if isinstance(part, Mapping):
        ignored = {"doc", "required", "element-required", "value-required", "write-default"}
        return {key: shape(value) for key, value in part.items() if key not in ignored}
    return [shape(item) for item in part] if isinstance(part, (list, tuple)) else part


def load(spark: SparkSession, name: TableName) -> Metadata | None:
    """The metadata of an Iceberg table, or None when there is no such table.

    Errors: SQL_UNSUPPORTED when a table of another format has that name.
    """
    if is_connect(spark):
        try:
            body = nearby.body(spark, name)
        except nearby.NotNearbyError:
            return _load_by_sql(spark, name)
        return None if body is None else _from_json(dict(body))
    try:
        table = java_table(spark, name)
    except PySparkException as error:
        _check_absent(error, name)
        return None
    return _from_json(json.loads(_to_json(spark, table.operations().current())))


def _to_json(spark: SparkSession, current: Any) -> str:
    """The table's metadata file as text, fetched in pieces.

    A longer answer leaves the JVM's gateway in two writes, the second of which waits 40 ms for the
    first to be acknowledged (Nagle's algorithm with delayed acknowledgement).
    """
    writer = java_class(spark, "java.io.StringWriter")()
    generator = java_class(spark, "org.apache.iceberg.util.JsonUtil").factory()
    generator = generator.createGenerator(writer).setHighestNonEscapedChar(127)
    java_class(spark, "org.apache.iceberg.TableMetadataParser").toJson(current, generator)
    generator.flush()
    text = writer.getBuffer()
    length = text.length()
    cuts = range(0, length, _PIECE)
    return "".join(text.substring(cut, min(cut + _PIECE, length)) for cut in cuts)


def added_files(spark: SparkSession, name: TableName, snapshot: int) -> list[str]:
    """The data files that one snapshot added."""
    if is_connect(spark):
        rows = spark.sql(
            f"SELECT data_file.file_path FROM {name.child('all_entries')} "
            "WHERE snapshot_id = :snapshot AND status = 1 AND data_file.content = 0",
            args={"snapshot": snapshot},
        ).collect()
        return sorted({row[0] for row in rows})
    table = java_table(spark, name)
    files = table.snapshot(snapshot).addedDataFiles(table.io()).iterator()
    found = []
    while files.hasNext():
        found.append(str(files.next().location()))
    return found


def _check_absent(error: PySparkException, name: TableName) -> None:
    if error.getCondition() in {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"}:
        return
    text = str(error)
    if "NoSuchTable" in text or "NoSuchNamespace" in text or "cannot be found" in text:
        return
    raise StreamSqlError(
        "SQL_UNSUPPORTED", f"{name} is not an Iceberg table", given=text.splitlines()[0]
    ) from error


def _from_json(body: dict[str, Any]) -> Metadata:
    current = body.get("current-snapshot-id")
    schema = next(s for s in body["schemas"] if s["schema-id"] == body["current-schema-id"])
    spec = next(s for s in body["partition-specs"] if s["spec-id"] == body["default-spec-id"])
    columns = {item["id"]: item["name"] for item in schema["fields"]}
    snapshots = {
        item["snapshot-id"]: Snapshot(
            item["snapshot-id"],
            item.get("parent-snapshot-id"),
            item.get("sequence-number", 0),
            item.get("summary", {}).get("operation", "append"),
            item.get("summary", {}),
            "first-row-id" in item,
            item["timestamp-ms"],
            item.get("schema-id"),
        )
        for item in body.get("snapshots", [])
    }
    return Metadata(
        uuid=body["table-uuid"],
        location=body["location"],
        format_version=body["format-version"],
        schema_id=body.get("current-schema-id", 0),
        current=None if current in (None, -1) else current,
        snapshots=snapshots,
        refs={name: ref["snapshot-id"] for name, ref in body.get("refs", {}).items()},
        properties=body.get("properties", {}),
        types=tuple(item["type"] for item in schema["fields"]),
        schemas={item["schema-id"]: tuple(item["fields"]) for item in body["schemas"]},
        partitioning=tuple(
            f"{field['transform']}({columns.get(field['source-id'], field['name'])})"
            for field in spec["fields"]
        ),
    )


def _load_by_sql(spark: SparkSession, name: TableName) -> Metadata | None:
    try:
        described = {
            row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {name.sql}").collect()
        }
        detail = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").collect()
    except PySparkException as error:
        _check_absent(error, name)
        return None
    if "current-snapshot-id" not in described:
        provider = next((row[1] for row in detail if row[0] == "Provider"), "")
        if not provider:
            return None  # a view
        raise StreamSqlError("SQL_UNSUPPORTED", f"{name} is not an Iceberg table", given=provider)
    location = next((row[1] for row in detail if row[0] == "Location"), "")
    columns = "|".join(f"{row[0]} {row[1]}" for row in detail if row[0] and row[0][0] != "#")
    current = described.get("current-snapshot-id", "none")
    snapshots = {
        row["snapshot_id"]: Snapshot(
            row["snapshot_id"],
            row["parent_id"],
            int(row["sequence_number"]),
            row["operation"],
            {**row["summary"], "operation": row["operation"]},
            int(described.get("format-version", "2")) >= 3,
            row["committed"],
        )
        for row in spark.sql(
            "SELECT s.snapshot_id, s.parent_id, s.operation, s.summary, "
            "unix_millis(s.committed_at) AS committed, "
            "coalesce(m.latest_sequence_number, 0) AS sequence_number "
            f"FROM {name.child('snapshots')} s LEFT JOIN {name.child('metadata_log_entries')} m "
            "ON m.latest_snapshot_id = s.snapshot_id"
        ).collect()
    }
    refs = spark.sql(f"SELECT name, snapshot_id FROM {name.child('refs')}").collect()
    return Metadata(
        uuid=location,
        location=location,
        format_version=int(described.get("format-version", "2")),
        schema_id=zlib.crc32(columns.encode()),
        current=None if current == "none" else int(current),
        snapshots=snapshots,
        refs={row[0]: row[1] for row in refs},
        properties=described,
        partitioning=tuple(row[1] for row in detail if row[0].startswith("Part ")),
    )
