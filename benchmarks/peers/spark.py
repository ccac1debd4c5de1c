"""What takes slices inside one Spark: our views, a full refresh, and dbt-spark's Delta merge.

Sources are tables that each slice is appended to, and that is part of a slice's seconds. Ours and
the full refresh read Iceberg tables, the merge reads Delta tables.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks import data, measure
from benchmarks.peers import queries
from benchmarks.peers.slices import columns
from benchmarks.peers.system import Taken, Task, slices, stopwatch

SCHEMA = "peers"
ICEBERG, DELTA = f"lake.{SCHEMA}", f"spark_catalog.{SCHEMA}"
ANSWER = f"{ICEBERG}.answer"
MERGED = f"{DELTA}.answer"
_BATCH = "answer__dbt_tmp"
"""dbt-spark's name of the view that it merges."""


def read(spark: SparkSession, table: str, files: Sequence[Path]) -> DataFrame:
    """Rows of a table in files of events."""
    return spark.read.schema(columns(table)).parquet(*map(str, files))


class _InSpark:
    """What all of them share: one warm Spark, opened and closed by who runs the benchmark."""

    cold = False
    cannot: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __init__(self, world: data.World) -> None:
        self._world = world

    def close(self) -> None:
        """Nothing of its own to close."""


class Ours(_InSpark):
    """A materialized view that `Engine.advance()` brings up to date."""

    name = "ours"
    label = "this project: an epoch a slice"

    def take(self, task: Task) -> Taken:
        engine, tables = self._world.engine, queries.READS[task.query]
        _create(self._world.spark, task)
        try:
            with stopwatch() as history:
                _append(self._world.spark, task, 0)
                engine.create_materialized_view(ANSWER, queries.spark(task.query, ICEBERG))
            modes = set()

            def take(number: int) -> None:
                _append(self._world.spark, task, number)
                modes.add(engine.advance().tables[ANSWER].mode)

            seconds = tuple(slices(task, take))
            _save(engine.sql(f"SELECT * FROM {ANSWER}"), task)
        finally:
            if engine.queries.knows(ANSWER):
                engine.drop(ANSWER)
            _drop(self._world, tables)
        return Taken(seconds, history(), mode="/".join(sorted(modes)))


class FullRefresh(_InSpark):
    """dbt-spark's `table`: `CREATE OR REPLACE TABLE … AS` the whole query."""

    name = "full"
    label = "full refresh, dbt-spark on Iceberg"

    def take(self, task: Task) -> Taken:
        spark = self._world.spark
        _create(spark, task)
        try:

            def take(number: int) -> None:
                _append(spark, task, number)
                spark.sql(
                    f"CREATE OR REPLACE TABLE {ANSWER} USING iceberg "
                    f"TBLPROPERTIES ({data.PROPERTIES}) AS {queries.spark(task.query, ICEBERG)}"
                )

            with stopwatch() as history:
                take(0)
            seconds = tuple(slices(task, take))
            _save(spark.table(ANSWER), task)
        finally:
            _drop(self._world, (*queries.READS[task.query], "answer"))
        return Taken(seconds, history(), mode="full")


class Merge(_InSpark):
    """dbt-spark's `incremental` with `merge`: its two statements, on Delta."""

    name = "merge"
    label = "dbt-spark `merge` on Delta"
    cannot = queries.NO_MERGE

    def take(self, task: Task) -> Taken:
        assert self._world.delta is not None
        spark, model = self._world.delta, queries.INCREMENTAL[task.query]
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {DELTA}")
        for table in queries.READS[task.query]:
            spark.sql(f"CREATE TABLE {DELTA}.{table} ({columns(table)}) USING delta")

        def append(number: int) -> None:
            for table in queries.READS[task.query]:
                rows = read(spark, table, task.feed.files(table, number))
                rows.writeTo(f"{DELTA}.{table}").append()

        def take(number: int) -> None:
            append(number)
            text = model.later.format(at=DELTA, this=MERGED)
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {_BATCH} AS {text}")
            spark.sql(merge(model.key))

        try:
            with stopwatch() as history:
                append(0)
                spark.sql(
                    f"CREATE OR REPLACE TABLE {MERGED} USING delta TBLPROPERTIES "
                    f"('delta.enableDeletionVectors' = 'true') AS {model.first.format(at=DELTA)}"
                )
            seconds = tuple(slices(task, take))
            asked = spark.sql(queries.spark(task.query, DELTA)).columns
            _save(spark.table(MERGED).select(*asked), task)
        finally:
            for table in (*queries.READS[task.query], "answer"):
                spark.sql(f"DROP TABLE IF EXISTS {DELTA}.{table}")
        return Taken(seconds, history(), mode="merge")


def merge(key: Sequence[str]) -> str:
    """The statement of dbt-spark's macro `spark__get_merge_sql`."""
    matches = [f"DBT_INTERNAL_SOURCE.{name} = DBT_INTERNAL_DEST.{name}" for name in key]
    return (
        f"merge into {MERGED} as DBT_INTERNAL_DEST using {_BATCH} as DBT_INTERNAL_SOURCE "
        f"on {' and '.join(matches) or 'FALSE'} when matched then update set * "
        "when not matched then insert *"
    )


def _create(spark: SparkSession, task: Task) -> None:
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {ICEBERG}")
    for table in queries.READS[task.query]:
        spark.sql(
            f"CREATE TABLE {ICEBERG}.{table} ({columns(table)}) USING iceberg "
            "TBLPROPERTIES ('format-version' = '3')"
        )


def _append(spark: SparkSession, task: Task, number: int) -> None:
    for table in queries.READS[task.query]:
        rows = read(spark, table, task.feed.files(table, number))
        rows.writeTo(f"{ICEBERG}.{table}").append()


def _save(rows: DataFrame, task: Task) -> None:
    rows.write.mode("overwrite").parquet(str(task.answer))


def _drop(world: data.World, tables: Sequence[str]) -> None:
    for table in tables:
        world.spark.sql(f"DROP TABLE IF EXISTS {ICEBERG}.{table}")
    # Without PURGE the catalog leaves the files of Iceberg tables where they are.
    shutil.rmtree(world.folder / SCHEMA, ignore_errors=True)
    measure.settle(world)
