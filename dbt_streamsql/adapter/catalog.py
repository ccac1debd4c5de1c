"""What dbt docs and `dbt source freshness` ask about a relation, from metadata alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from dbt_common.contracts.metadata import (
    CatalogTable,
    ColumnMetadata,
    StatsItem,
    TableMetadata,
)

from dbt_streamsql.adapter.common.relation import StreamSqlRelation
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName

if TYPE_CHECKING:
    import agate
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField

    from dbt_streamsql.storage.iceberg.metadata import Metadata

STATS: dict[str, tuple[str, str]] = {
    "rows": ("Rows", "rows of the newest version, from its summary"),
    "bytes": ("Size in bytes", "data files of the newest version"),
    "files": ("Data files", "data files of the newest version"),
    "partitioning": ("Partitioned by", "transform(column) by transform(column)"),
    "last_change": ("Last change", "when the newest rows were committed, UTC"),
    "kept": ("Kept up to date", "how its changes are applied, or why it is refreshed in full"),
    "state": ("State tables", "what it stores apart, with rows, bytes and the number of readers"),
    "state_ttl": ("State TTL", "how long its operators keep state, and whether any has expired"),
    "barrier": ("Barrier", "the run that wrote the newest version of a materialized view"),
}
"""By id: the label and description of what dbt docs show for a table."""


@dataclass(frozen=True)
class Described:
    """One relation as dbt docs show it; `stats` by the ids of `STATS`."""

    relation: StreamSqlRelation
    comment: str | None
    owner: str | None
    fields: tuple[StructField, ...]
    stats: dict[str, Any]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per column, as dbt's catalog requires."""
        table = {
            "table_database": self.relation.database,
            "table_schema": self.relation.schema,
            "table_name": self.relation.identifier,
            "table_type": str(self.relation.type),
            "table_comment": self.comment,
            "table_owner": self.owner,
        }
        for key, (label, description) in STATS.items():
            table[f"stats:{key}:label"] = label
            table[f"stats:{key}:value"] = self.stats.get(key)
            table[f"stats:{key}:description"] = description
            table[f"stats:{key}:include"] = key in self.stats
        for position, field in enumerate(self.fields):
            yield {
                **table,
                "column_name": field.name,
                "column_index": position,
                "column_type": field.dataType.simpleString(),
                "column_comment": field.metadata.get("comment"),
            }

    def table(self) -> CatalogTable:
        """The same as one object."""
        where = self.relation
        return CatalogTable(
            TableMetadata(
                type=str(where.type),
                schema=where.schema or "",
                name=where.identifier or "",
                database=where.database,
                comment=self.comment,
                owner=self.owner,
            ),
            {
                field.name: ColumnMetadata(
                    field.dataType.simpleString(),
                    position,
                    field.name,
                    field.metadata.get("comment"),
                )
                for position, field in enumerate(self.fields)
            },
            {
                key: StatsItem(key, STATS[key][0], value, include=True, description=STATS[key][1])
                for key, value in self.stats.items()
            },
        )


def describe(
    session: SparkSession, relation: StreamSqlRelation, name: TableName, hidden: str
) -> Described:
    """Look up a relation; columns that start with `hidden` are left out."""
    fields = tuple(f for f in session.table(name.sql).schema if not f.name.startswith(hidden))
    meta = None if relation.is_view else _metadata(session, name)
    if meta is not None:
        comment, owner = (meta.properties.get(key) for key in ("comment", "owner"))
        return Described(relation, comment, owner, fields, _stats(meta))
    notes: dict[str, str] = {}
    for key, value, *_ in session.sql(f"DESCRIBE EXTENDED {name.sql}").collect():
        if key in ("Comment", "Owner"):
            notes[key] = value
    return Described(relation, notes.get("Comment") or None, notes.get("Owner"), fields, {})


def column_type(name: str) -> agate.data_types.DataType:
    """The type of a catalog column: guessing would turn names into numbers."""
    import agate

    if name.endswith(":include"):
        return agate.Boolean()
    numbers = ("column_index", "stats:rows:value", "stats:bytes:value", "stats:files:value")
    return agate.Number() if name in (*numbers, "stats:barrier:value") else agate.Text()


def last_change(session: SparkSession, name: TableName) -> datetime | None:
    """When rows of a table last changed, without reading any; None when it never had any.

    Error: SQL_UNSUPPORTED when it is not an Iceberg table.
    """
    meta = _metadata(session, name)
    if meta is None:
        raise StreamSqlError(
            "SQL_UNSUPPORTED",
            f"{name} has no snapshots to compute its freshness from",
            hint="check the name, or set `loaded_at_field` or `loaded_at_query` on the source",
        )
    snapshot = meta.last_change()
    return _time(snapshot.committed) if snapshot is not None else None


def _metadata(session: SparkSession, name: TableName) -> Metadata | None:
    from dbt_streamsql.storage.inputs import inputs

    try:
        return inputs.load(session, name)
    except StreamSqlError:
        return None


def _stats(meta: Metadata) -> dict[str, Any]:
    from dbt_streamsql.storage.iceberg.provenance import BARRIER_PROPERTY

    newest = meta.snapshots.get(meta.current) if meta.current is not None else None
    stats: dict[str, Any] = {}
    if meta.format == "iceberg":
        told = {"rows": meta.told_rows(meta.current)}
        if newest is not None:
            told["bytes"] = newest.told("total-files-size")
            told["files"] = newest.told("total-data-files")
        stats |= {name: number for name, number in told.items() if number is not None}
    if meta.partitioning:
        stats["partitioning"] = ", ".join(meta.partitioning)
    changed = meta.last_change()
    if changed is not None:
        stats["last_change"] = _time(changed.committed).isoformat(" ", "seconds")
        if BARRIER_PROPERTY in changed.summary:
            stats["barrier"] = int(changed.summary[BARRIER_PROPERTY])
    return stats


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
