"""The comments of an existing table and its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName, literal
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.staged_table import comment_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def keep(
    spark: SparkSession, at: TableName, comment: str | None, columns: Mapping[str, str]
) -> list[str]:
    """Set the comments that differ: each is a new version of the table's metadata.

    `comment` None keeps the table's own. Returns the columns that the table does not have.
    Error: DEFINITION_MISSING.
    """
    table = metadata.load(spark, at)
    if table is None:
        raise StreamSqlError("DEFINITION_MISSING", f"{at} is not an Iceberg table")
    if comment is not None and comment != table.properties.get("comment", ""):
        spark.sql(f"COMMENT ON TABLE {at.sql} IS {literal(comment)}")
    fields = table.schemas.get(table.schema_id, ())
    known = {str(field["name"]).lower(): field.get("doc") or "" for field in fields}
    there = {name: text for name, text in columns.items() if name.lower() in known}
    others = {name: text for name, text in there.items() if text != known[name.lower()]}
    comment_columns(spark, at, others)
    return [name for name in columns if name not in there]
