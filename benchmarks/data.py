"""What is measured on: a base table, a view over it, copies of the view, and changes of the base.

Everything comes from Spark's `range()` and hashes: one seed gives the same rows everywhere. The
keys that exist at first are even numbers, one row each; a new key is odd (scattered) or above all
others (recent).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dbt_streamsql import Engine
from dbt_streamsql.runtime.spark import jars
from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings
from dbt_streamsql.storage.iceberg.staging import VIEW_PROPERTIES

KEYS = ("scattered", "recent")
BASE, VIEW, COPY, FULL = (f"lake.bench.{name}" for name in ("base", "ours", "copy", "refreshed"))
DELTA = "spark_catalog.default.bench_delta"
HEAP = "3g"
"""Of the driver: with what a JVM needs beside its heap it stays within 4 GiB."""
BATCH = "bench_batch"
"""The temporary view that holds the rows of one change."""
COLUMNS = "k, n, total, weight"
QUERY = f"SELECT k, count(*) AS n, sum(v) AS total, sum(w) AS weight FROM {BASE} GROUP BY k"
PROPERTIES = ", ".join(f"'{key}' = '{value}'" for key, value in VIEW_PROPERTIES.items())
"""Our views' table properties: the copies have the same."""


@dataclass(frozen=True)
class Change:
    """One change: `size` rows, one in twenty with a new key, for a view of `groups` groups.

    `number` tells the changes of a run apart; `keys` is scattered (over all keys) or recent (the
    newest 1 % of them).
    """

    keys: str
    groups: int
    size: int
    number: int
    seed: int


@dataclass(frozen=True)
class World:
    """Where it all happens: an engine and, when Delta takes part, a session of its own for that.

    One JVM and one set of Iceberg tables below `folder`; the engine's sessions are without Delta's
    extension.
    """

    folder: Path
    engine: Engine
    delta: SparkSession | None

    @property
    def spark(self) -> SparkSession:
        return self.engine.spark

    @property
    def sessions(self) -> list[SparkSession]:
        return [self.spark, *([self.delta] if self.delta is not None else [])]

    def session_of(self, table: str) -> SparkSession:
        """The session that can read a table."""
        if table == DELTA:
            assert self.delta is not None
            return self.delta
        return self.spark

    def close(self) -> None:
        self.engine.close()
        self.spark.stop()


def open_world(folder: Path, with_delta: bool, *, native: bool = False) -> World:
    """A new Spark context over an empty warehouse folder."""
    properties = {"spark.driver.memory": HEAP}
    if with_delta:
        files = jars.ensure(jars.connector_jars("delta"))
        properties["spark.driver.extraClassPath"] = os.pathsep.join(str(file) for file in files)
    settings = SessionSettings(warehouse=str(folder), spark_properties=properties, native=native)
    spark = open_session(settings)
    engine = Engine.open(spark=spark)
    return World(folder, engine, _delta_session(spark) if with_delta else None)


def _delta_session(spark: SparkSession) -> SparkSession:
    """A session that has Delta's extension beside Iceberg's.

    Extensions belong to a context, so PySpark has no way to say this. They must not reach the
    other sessions: Delta 4.4 loses the values of `spark.sql(…, args=…)` on Spark 4.1
    (github.com/delta-io/delta/issues/7640); the legacy setting mends that for simple queries.
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    ours: Any = spark._jsparkSession  # noqa: SLF001
    settings = {
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
        # The default, 50, is for clusters and makes every statement here 2 s slower.
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    java_sessions = jvm.org.apache.spark.sql.classic.SparkSession
    extension = getattr(jvm, "io.delta.sql.DeltaSparkSessionExtension")()
    builder = java_sessions.builder().withExtensions(extension)
    for key, value in settings.items():
        builder = builder.config(key, value)
    created = builder.create()
    java_sessions.setDefaultSession(ours)
    java_sessions.setActiveSession(ours)
    return SparkSession(spark.sparkContext, created)


def create_base(spark: SparkSession, groups: int, seed: int) -> None:
    """The base table with one row per key, in four files."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
    spark.sql(
        f"CREATE TABLE {BASE} (k BIGINT, v BIGINT, w BIGINT) USING iceberg "
        "TBLPROPERTIES ('format-version' = '3')"
    )
    spark.sql(
        f"INSERT INTO {BASE} SELECT 2 * id, pmod(xxhash64(id, :seed, 1), 1000), "
        "pmod(xxhash64(id, :seed, 2), 50) FROM range(0, :groups, 1, 4)",
        args={"groups": groups, "seed": seed},
    )


def create_view(engine: Engine) -> None:
    """Our materialized view."""
    engine.create_materialized_view(VIEW, QUERY)


def create_copy(spark: SparkSession) -> None:
    """The view's rows as a table to be merged by hand, with the same properties and layout."""
    spark.sql(f"CREATE TABLE {COPY} USING iceberg TBLPROPERTIES ({PROPERTIES}) AS {_laid_out()}")


def create_delta(spark: SparkSession) -> None:
    """The view's rows as a Delta table with deletion vectors."""
    spark.sql(
        f"CREATE TABLE {DELTA} USING delta "
        f"TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS {_laid_out()}"
    )


@contextmanager
def batch(sessions: Iterable[SparkSession], change: Change) -> Iterator[None]:
    """The rows of a change, computed and in memory as `BATCH` of each session while it lasts."""
    new = change.size // 20
    some = "pmod(xxhash64(id, :seed, :number), {})"
    if change.keys == "scattered":
        old_key = f"2 * {some.format(':groups')}"
        new_key = f"{old_key} + 1"
    else:
        old_key = f"2 * (:groups - 1 - {some.format('greatest(1, :groups div 100)')})"
        new_key = "2 * (:groups + :number * :size + id)"
    values = {"groups": change.groups, "size": change.size, "number": change.number}
    kept = []
    for spark in sessions:
        frame = spark.sql(
            f"SELECT CASE WHEN id < :new THEN {new_key} ELSE {old_key} END AS k, "
            "pmod(xxhash64(id, :seed, :number, 1), 1000) AS v, "
            "pmod(xxhash64(id, :seed, :number, 2), 50) AS w FROM range(0, :size, 1, 1)",
            args={**values, "seed": change.seed, "new": new},
        ).persist()
        frame.count()
        frame.createOrReplaceTempView(BATCH)
        kept.append(frame)
    try:
        yield
    finally:
        for frame in kept:
            frame.unpersist()


def differing(spark: SparkSession, left: str, right: str) -> int:
    """Rows (with their multiplicity's sign) that only one of two relations has."""
    return int(
        spark.sql(
            f"SELECT count(*) FROM (SELECT {COLUMNS} FROM ("
            f"SELECT {COLUMNS}, 1 AS side FROM {left} UNION ALL "
            f"SELECT {COLUMNS}, -1 AS side FROM {right}) "
            f"GROUP BY {COLUMNS} HAVING sum(side) <> 0)"
        ).collect()[0][0]
    )


def drop_all(world: World) -> None:
    """Drop every table, with its files."""
    if world.engine.queries.knows(VIEW):
        world.engine.drop(VIEW)
    for table in (BASE, COPY, FULL):
        world.spark.sql(f"DROP TABLE IF EXISTS {table}")
    if world.delta is not None:
        world.delta.sql(f"DROP TABLE IF EXISTS {DELTA}")
    # Without PURGE the catalog leaves the files of Iceberg tables where they are.
    shutil.rmtree(world.folder / "bench", ignore_errors=True)


def _laid_out() -> str:
    """The query with its rows ordered inside files, as our full refresh writes them."""
    return f"SELECT * FROM ({QUERY}) SORT BY k"
