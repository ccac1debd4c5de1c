"""A table that is built where no reader looks and then appears in one step, as in FLIP-305.

Staged data is described by texts only, so that a process can record it before it begins and
another process can abort it when the first has died.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName, literal, pairs, partition_field, quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StagingPurpose(str, Enum):
    """What may exist under the name when the staged table is committed."""

    CREATE_TABLE_AS = "CREATE_TABLE_AS"
    """Nothing. Error: TABLE_EXISTS."""
    CREATE_TABLE_AS_IF_NOT_EXISTS = "CREATE_TABLE_AS_IF_NOT_EXISTS"
    """Nothing; otherwise the existing table stays and nothing is built."""
    CREATE_OR_REPLACE_TABLE_AS = "CREATE_OR_REPLACE_TABLE_AS"
    """Anything of the same kind; it is replaced."""


@dataclass(frozen=True)
class TableSpec:
    """The properties of a table, without its rows.

    `partition_by` holds columns or transforms such as `days(at)`; `location` '' leaves the
    location to the catalog; `comment` None keeps the table's own comment.
    """

    name: TableName
    format: str = "iceberg"
    partition_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    buckets: int = 0
    location: str = ""
    comment: str | None = None
    column_comments: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> TableSpec:
        """The inverse of `dataclasses.asdict`, also through JSON."""
        lists = {key: tuple(body[key]) for key in ("partition_by", "clustered_by")}
        return cls(**{**body, **lists, "name": TableName(**body["name"])})

    def create_as(
        self, verb: str, at: TableName, query: str, location: str, more: Mapping[str, str]
    ) -> str:
        """`<verb> <at> USING … AS <query>`, with `more` table properties."""
        # On one line with the query's first: then Spark's errors count the query's lines.
        return f"{verb} {at.sql} {self.clauses(location, more)} AS {query}"

    def clauses(self, location: str, more: Mapping[str, str]) -> str:
        """Everything between a table's name and its query."""
        parts = [f"USING {quote(self.format)}"]
        if self.options:
            parts.append(f"OPTIONS {pairs(self.options)}")
        if self.partition_by:
            parts.append(f"PARTITIONED BY ({', '.join(map(partition_field, self.partition_by))})")
        if self.clustered_by and self.buckets:
            columns = ", ".join(map(quote, self.clustered_by))
            parts.append(f"CLUSTERED BY ({columns}) INTO {int(self.buckets)} BUCKETS")
        if location:
            parts.append(f"LOCATION {literal(location)}")
        if self.comment is not None:
            parts.append(f"COMMENT {literal(self.comment)}")
        properties = {**self.properties, **more}
        if properties:
            parts.append(f"TBLPROPERTIES {pairs(properties)}")
        return " ".join(parts)


class StagedTable(Protocol):
    """One table being staged. Its fields are plain texts: see `registry.to_json`."""

    @property
    def spec(self) -> TableSpec: ...
    @property
    def purpose(self) -> StagingPurpose: ...
    @property
    def token(self) -> str:
        """32 hexadecimal digits, unique to this staged table."""

    @property
    def staged(self) -> str:
        """Between `begin` and `commit`: SQL that may follow FROM and returns the staged rows."""

    def exists(self, spark: SparkSession) -> bool:
        """Whether the table, or anything else of that name, is visible."""

    def begin(self, spark: SparkSession, query: str) -> None:
        """Write the rows of the query where no reader looks."""

    def commit(self, spark: SparkSession) -> None:
        """Make the table appear, or replace the old one, in one step.

        Errors: TABLE_EXISTS depending on `purpose`; META_CONFLICT when the staged data is gone.
        """

    def abort(self, spark: SparkSession) -> None:
        """Remove what was staged and not committed, in any state of the other two; repeatable."""


def comment_columns(spark: SparkSession, at: TableName, comments: Mapping[str, str]) -> None:
    """Set the comments of columns; a comment for a missing column is ignored."""
    if not comments:
        return
    known = {name.lower() for name in spark.table(at.sql).columns}
    for name, comment in comments.items():
        if name.lower() in known:
            change = f"ALTER COLUMN {quote(name)} COMMENT {literal(comment)}"
            spark.sql(f"ALTER TABLE {at.sql} {change}")


def already_there(name: TableName) -> StreamSqlError:
    return StreamSqlError(
        "TABLE_EXISTS",
        f"{name} exists already",
        hint="choose CREATE_OR_REPLACE_TABLE_AS to replace it, or another name",
    )


def gone(name: TableName) -> StreamSqlError:
    return StreamSqlError(
        "META_CONFLICT",
        f"the staged table of {name} is gone: another process has removed it",
        hint="run again; if it happens twice, check whether this process loses its store's lock",
    )
