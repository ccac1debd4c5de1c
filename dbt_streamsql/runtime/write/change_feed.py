"""A view's own change as a file, for the views that read it."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from dbt_streamsql.meta import Job
from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime.spark.scratch import TempRelation
from dbt_streamsql.storage.iceberg import files
from dbt_streamsql.storage.iceberg.access import tables_of


def write(spark: SparkSession, folder: str, feed: TempRelation, columns: Sequence[str]) -> None:
    """Write signed rows over `columns` as parquet."""
    if feed.rows is not None and tables_of(spark).writes_files:
        rows = feed.rows.data.select([*columns, WEIGHT])
        files.write(spark, posixpath.join(folder, "change.parquet"), files.parquet(rows))
        return
    names = ", ".join(quote(column) for column in columns)
    frame = spark.sql(f"SELECT {names}, {WEIGHT} FROM {feed.name}")
    frame.coalesce(1).write.parquet(folder)


@dataclass(frozen=True)
class Feed:
    """The folders in which `job` wrote the changes that a reader has not seen yet."""

    job: Job
    folders: tuple[str, ...]

    def read(self, spark: SparkSession) -> DataFrame:
        """The signed rows of all folders."""
        # With a schema, Spark need not open a file to infer one.
        columns = [f"{quote(column['name'])} {column['type']}" for column in self.job.columns]
        schema = ", ".join([*columns, f"{WEIGHT} bigint"])
        return spark.read.schema(schema).parquet(*self.folders)
