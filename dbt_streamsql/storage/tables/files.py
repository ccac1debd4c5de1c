"""Files under a metastore (Hive's, or Spark's own): each version of a table has its own folder.

The rows are written into a folder that no table names; then one change of the metastore makes it
the table's: CREATE TABLE … LOCATION for a new table, ALTER TABLE … SET LOCATION for an existing
one. The previous folder stays until the next replacement, for readers that have begun.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt_streamsql.quoting import TableName, literal, pairs, quote
from dbt_streamsql.storage.columns import same_columns, type_ddl
from dbt_streamsql.storage.iceberg import staging
from dbt_streamsql.storage.iceberg.files import delete_folder
from dbt_streamsql.storage.staged_table import StagingPurpose, TableSpec, already_there
from dbt_streamsql.storage.tables import metastore

PREVIOUS = "streamsql.previous"
"""Table property: the folder of the previous version, or of this one during its replacement."""
_OURS = re.compile(r"-[0-9a-f]{32}$")


@dataclass(frozen=True)
class FilesStagedTable:
    """`folder` contains the staged files, and later the table's."""

    spec: TableSpec
    purpose: StagingPurpose
    token: str
    folder: str

    @classmethod
    def plan(
        cls, spark: SparkSession, spec: TableSpec, purpose: StagingPurpose, token: str, root: str
    ) -> FilesStagedTable:
        """Refuse what one change of a metastore cannot publish. Error: ATOMIC_UNSUPPORTED."""
        if spec.partition_by or spec.clustered_by:
            raise metastore.unsupported(
                spec, "partitions and buckets need metastore entries of their own"
            )
        return cls(spec, purpose, token, metastore.folder_of(spark, spec, token, root))

    @property
    def staged(self) -> str:
        return f"{quote(self.spec.format)}.{quote(self.folder)}"

    def exists(self, spark: SparkSession) -> bool:
        return staging.exists(spark, self.spec.name)

    def begin(self, spark: SparkSession, query: str) -> None:
        rows = spark.sql(query)
        old = _schema(spark, self.spec.name)
        if old is not None and not same_columns(old, rows.schema):
            raise metastore.unsupported(
                self.spec, "the columns change, which needs a separate metastore change"
            )
        rows.write.format(self.spec.format).options(**self.spec.options).save(self.folder)

    def commit(self, spark: SparkSession) -> None:
        name = self.spec.name
        old = metastore.described(spark, name)
        if not old:
            rows = spark.read.format(self.spec.format).load(self.folder)
            spark.sql(self._create(rows.schema))
            return
        if self.purpose is not StagingPurpose.CREATE_OR_REPLACE_TABLE_AS:
            raise already_there(name)
        at, before = old["Location"], metastore.property_of(spark, name, PREVIOUS)
        if _OURS.search(before) and not metastore.same_folder(before, at):
            delete_folder(spark, before)
        properties = {**self.spec.properties, PREVIOUS: at}
        if self.spec.comment is not None:
            properties["comment"] = self.spec.comment
        self._set_properties(spark, properties)
        self._set_comments(spark)
        spark.sql(f"ALTER TABLE {name.sql} SET LOCATION {literal(self.folder)}")
        spark.catalog.refreshTable(name.sql)

    def abort(self, spark: SparkSession) -> None:
        name = self.spec.name
        old = metastore.described(spark, name)
        used = [old["Location"], metastore.property_of(spark, name, PREVIOUS)] if old else []
        if not any(metastore.same_folder(folder, self.folder) for folder in used):
            delete_folder(spark, self.folder)

    def _create(self, schema: StructType) -> str:
        comments = {c.lower(): text for c, text in self.spec.column_comments.items()}
        columns = []
        for field in schema:
            column = f"{quote(field.name)} {type_ddl(field.dataType)}"
            if field.name.lower() in comments:
                column += f" COMMENT {literal(comments[field.name.lower()])}"
            columns.append(column)
        listed, clauses = ", ".join(columns), self.spec.clauses(self.folder, {})
        return f"CREATE TABLE {self.spec.name.sql} ({listed}) {clauses}"

    def _set_properties(self, spark: SparkSession, properties: dict[str, str]) -> None:
        spark.sql(f"ALTER TABLE {self.spec.name.sql} SET TBLPROPERTIES {pairs(properties)}")

    def _set_comments(self, spark: SparkSession) -> None:
        name = self.spec.name
        fields: Any = spark.table(name.sql).schema
        known = {field.name.lower(): field.metadata.get("comment", "") for field in fields}
        for column, comment in self.spec.column_comments.items():
            if known.get(column.lower(), comment) != comment:
                change = f"ALTER COLUMN {quote(column)} COMMENT {literal(comment)}"
                spark.sql(f"ALTER TABLE {name.sql} {change}")


def _schema(spark: SparkSession, name: TableName) -> StructType | None:
    return spark.table(name.sql).schema if metastore.described(spark, name) else None
