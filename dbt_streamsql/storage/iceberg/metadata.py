"""The metadata of an Iceberg table, read without a Spark job.

Over Spark Connect it may take one: see `sql.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.algebra import likeness
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage.iceberg.access import tables_of

_NOT_OF_ROWS = frozenset(
    [
        *("doc", "required", "element-required", "value-required", "write-default"),  # Iceberg
        *("comment", "nullable", "containsNull", "valueContainsNull"),  # Delta
    ]
)
"""Properties of a field in a schema other than its name, type and identity."""


@dataclass(frozen=True)
class Snapshot:
    """One version of the table: `operation` is append, overwrite, delete or replace (compaction);
    '' where Iceberg's first format did not require one.

    `has_lineage`: its rows have ids that survive rewriting (format v3). `committed` is in
    milliseconds since 1970, UTC. `schema_id`: the columns that it was written with (None:
    unknown).
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
        """A number of the summary, such as `added-records`; 0 when it is absent.

        A number that `summaries.py` does not trust may be anything.
        """
        return self.told(key) or 0

    def told(self, key: str) -> int | None:
        """The same; None when it is absent or not a number."""
        try:
            return int(self.summary[key])
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True)
class Metadata:
    """A table in its catalog's current state; `refs` are branches and tags by name.

    `types` are the columns' Iceberg types: a word, or JSON where they are nested; `schemas` have
    the fields of each schema as the format's JSON; `partitioning` has the transforms as
    `name(column)`. `listed` counts the data files and the delete files of a snapshot, which reads
    a file.
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
    listed: Callable[[int], tuple[int, int]] | None = field(
        default=None, compare=False, repr=False
    )

    @property
    def stamp(self) -> str:
        """Changes when the table is recreated or its schema changes."""
        return f"{self.uuid}:{self.schema_id}"

    @property
    def fields(self) -> str:
        """The fields of all levels with their ids, as JSON; other text means other columns."""
        return json.dumps(shape(self.schemas.get(self.schema_id, ())), sort_keys=True)

    def typed(self, names: Iterable[str]) -> list[Column]:
        """Columns with their types, as far as needed to compare values."""
        types = {
            part["name"]: _text(part["type"]) for part in self.schemas.get(self.schema_id, ())
        }
        return likeness.typed(names, types)

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
        """The newest version whose rows differ from those of the one before: not a compaction."""
        at = self.current
        while at is not None and (snapshot := self.snapshots.get(at)) is not None:
            if snapshot.operation != "replace":
                return snapshot
            at = snapshot.parent
        return None

    def lags(self, snapshot: int | None) -> bool:
        """Whether the table's columns have changed since the snapshot was written.

        Read by its id, a snapshot has the columns that it was written with.
        """
        found = self.snapshots.get(snapshot) if snapshot is not None else None
        written = found.schema_id if found is not None else None
        if written is None or written == self.schema_id:
            return False
        return bool(shape(self.schemas[written]) != shape(self.schemas[self.schema_id]))

    def live_rows(self, snapshot: int | None) -> int:
        """Rows at a snapshot by its summary, as in `told_rows`; 0 where it is missing."""
        return self.told_rows(snapshot) or 0

    def live_bytes(self, snapshot: int | None) -> int:
        """Bytes of the files of a snapshot by its summary; 0 where it is missing."""
        found = self.snapshots.get(snapshot) if snapshot is not None else None
        return found.count("total-files-size") if found is not None else 0

    def told_rows(self, snapshot: int | None) -> int | None:
        """Rows at a snapshot by its summary (an upper bound with equality deletes), if given.

        For a table with other writers it is an estimate for choosing a strategy, not a fact.
        """
        found = self.snapshots.get(snapshot) if snapshot is not None else None
        if found is None:
            return 0
        there = found.told("total-records")
        return there and max(0, there - found.count("total-position-deletes"))


def shape(part: Any) -> Any:
    """A field, a type or a schema, as its format's JSON, without parts that do not affect rows."""
    if isinstance(part, Mapping):
        return {key: shape(value) for key, value in part.items() if key not in _NOT_OF_ROWS}
    return [shape(item) for item in part] if isinstance(part, (list, tuple)) else part


def _text(kind: Any) -> str:
    """A type of Iceberg or Delta, as text that `stand_in` reads."""
    if not isinstance(kind, Mapping):
        return str(kind)
    parts = kind.get("fields")
    if parts is not None:
        fields = (f"{quote(part['name'])}:{_text(part['type'])}" for part in parts)
        return f"struct<{','.join(fields)}>"
    word = "map" if kind["type"] == "map" else "array"
    names = ("key", "value", "element", "keyType", "valueType", "elementType")
    return f"{word}<{','.join(_text(kind[name]) for name in names if name in kind)}>"


def load(spark: SparkSession, name: TableName) -> Metadata | None:
    """The metadata of an Iceberg table, or None when there is no such table.

    Errors: SQL_UNSUPPORTED when a table of another format has that name.
    """
    return tables_of(spark).load(name)


def check_absent(error: PySparkException, name: TableName) -> None:
    """Return if Spark found no such table. Error: SQL_UNSUPPORTED when something else is there."""
    if error.getCondition() in {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"}:
        return
    text = str(error)
    if "NoSuchTable" in text or "NoSuchNamespace" in text or "cannot be found" in text:
        return
    raise StreamSqlError(
        "SQL_UNSUPPORTED", f"{name} is not an Iceberg table", given=text.splitlines()[0]
    ) from error


def from_json(body: Mapping[str, Any]) -> Metadata:
    """The contents of a metadata file."""
    current = body.get("current-snapshot-id")
    schema = next(s for s in body["schemas"] if s["schema-id"] == body["current-schema-id"])
    spec = next(s for s in body["partition-specs"] if s["spec-id"] == body["default-spec-id"])
    columns = {item["id"]: item["name"] for item in schema["fields"]}
    snapshots = {
        item["snapshot-id"]: Snapshot(
            item["snapshot-id"],
            item.get("parent-snapshot-id"),
            item.get("sequence-number", 0),
            item.get("summary", {}).get("operation", ""),
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
