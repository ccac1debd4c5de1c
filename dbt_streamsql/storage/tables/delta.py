"""Delta: a table outside the catalog is built and checked, then it becomes the table.

A new table is one metastore entry over the staged folder. An existing table is replaced by one
Delta commit, which copies the staged rows: so its history stays readable.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import TableName, literal
from dbt_streamsql.storage.iceberg import staging
from dbt_streamsql.storage.iceberg.files import delete_folder
from dbt_streamsql.storage.staged_table import (
    StagingPurpose,
    TableSpec,
    already_there,
    comment_columns,
)
from dbt_streamsql.storage.tables import metastore

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


@dataclass(frozen=True)
class DeltaStagedTable:
    """`folder` contains the staged Delta table, and later a new table's files."""

    spec: TableSpec
    purpose: StagingPurpose
    token: str
    folder: str

    @classmethod
    def plan(
        cls, spark: SparkSession, spec: TableSpec, purpose: StagingPurpose, token: str, root: str
    ) -> DeltaStagedTable:
        """Error: ATOMIC_UNSUPPORTED when a table of another format has that name, or Spark has no
        Delta."""
        if EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
            raise StreamSqlError(
                "ATOMIC_UNSUPPORTED",
                "this Spark cannot write Delta tables",
                given=f"file_format: {spec.format}, and spark.sql.extensions without {EXTENSION}",
                hint="set Delta's jars, its extension and its catalog in `spark_properties` of "
                "the profile (docs/atomic.md has the lines), or choose file_format: iceberg",
                place=Place(str(spec.name)),
            )
        return cls(spec, purpose, token, metastore.folder_of(spark, spec, token, root))

    @property
    def at(self) -> TableName:
        return TableName(self.spec.name.catalog, "delta", self.folder)

    @property
    def staged(self) -> str:
        return self.at.sql

    def exists(self, spark: SparkSession) -> bool:
        return staging.exists(spark, self.spec.name)

    def begin(self, spark: SparkSession, query: str) -> None:
        spark.sql(self.spec.create_as("CREATE OR REPLACE TABLE", self.at, query, "", {}))
        comment_columns(spark, self.at, self.spec.column_comments)

    def commit(self, spark: SparkSession) -> None:
        name = self.spec.name
        if not metastore.described(spark, name):
            spark.sql(f"CREATE TABLE {name.sql} USING delta LOCATION {literal(self.folder)}")
            return
        if self.purpose is not StagingPurpose.CREATE_OR_REPLACE_TABLE_AS:
            raise already_there(name)
        copy = f"SELECT * FROM {self.staged}"
        spark.sql(self.spec.create_as("CREATE OR REPLACE TABLE", name, copy, "", {}))
        delete_folder(spark, self.folder)

    def abort(self, spark: SparkSession) -> None:
        old = metastore.described(spark, self.spec.name)
        if not old or not metastore.same_folder(old["Location"], self.folder):
            delete_folder(spark, self.folder)
