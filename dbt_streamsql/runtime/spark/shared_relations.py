"""Compute once what several views of an epoch read: changes and versions of their inputs."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.storage.arrow_rows import (
    TooManyBytesError,
    arrow_rows,
    is_exact,
    net_rows,
)
from dbt_streamsql.storage.columns import nullable_within, type_text


@dataclass(frozen=True)
class DriverRows:
    """A small relation in the driver: signed rows, with their Spark types."""

    data: pa.Table
    schema: StructType


def picked(rows: DriverRows, columns: Sequence[str], *, consolidate: bool) -> DriverRows | None:
    """Some columns of signed rows; None where Arrow may not know which values are equal."""
    fields = [rows.schema[name] for name in (*columns, WEIGHT)]
    data = rows.data.select([*columns, WEIGHT])
    if consolidate:
        if not all(is_exact(field.dataType.simpleString()) for field in fields):
            return None
        data = net_rows(data, columns)
    return DriverRows(data, StructType(fields))


@dataclass(frozen=True)
class CachedRelation:
    """A big relation in Spark's cache: `name` is that of a view that all sessions see."""

    name: str
    spark: SparkSession

    def drop(self) -> None:
        """Free the cache. By its name: over Connect, `DataFrame.unpersist` looks up the tables of
        its query, and staged ones have been renamed or dropped by then."""
        self.spark.catalog.uncacheTable(self.name)
        self.spark.catalog.dropGlobalTempView(self.name.partition(".")[2])


Shared = DriverRows | CachedRelation


@dataclass
class SharedRelations:
    """The relations that an epoch has computed. The first caller computes, the others wait."""

    _known: dict[Hashable, Future[Shared]] = field(default_factory=dict)
    _asked: Counter[Hashable] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, key: Hashable, rows: DriverRows) -> None:
        """A relation that is known already."""
        future: Future[Shared] = Future()
        future.set_result(rows)
        with self._lock:
            self._known[key] = future

    def known(self, key: Hashable) -> Shared | None:
        """A relation that has been computed, without waiting for one that has not."""
        with self._lock:
            future = self._known.get(key)
        if future is None or not future.done() or future.exception() is not None:
            return None
        return future.result()

    def asked(self, key: Hashable) -> int:
        """How often a relation was asked for, counting this time."""
        with self._lock:
            self._asked[key] += 1
            return self._asked[key]

    def get(self, key: Hashable, compute: Callable[[], Shared]) -> Shared:
        with self._lock:
            future = self._known.get(key)
            mine = future is None
            if future is None:
                future = self._known[key] = Future()
        if mine:
            try:
                future.set_result(compute())
            except BaseException as error:  # noqa: BLE001 - waiting threads must get it
                # A refresh that runs again, in another way, computes it again.
                with self._lock:
                    self._known.pop(key, None)
                future.set_exception(error)
        return future.result()

    def close(self) -> None:
        """Release what was kept, once no job of the epoch runs any more."""
        with self._lock:
            known, self._known = self._known, {}
        for future in known.values():
            if future.done() and future.exception() is None:
                found = future.result()
                if isinstance(found, CachedRelation):
                    found.drop()


def rows_of(frame: DataFrame, most: int) -> DriverRows:
    """The rows of a frame that `travels`. Error: `TooManyBytesError` over `most` bytes."""
    schema = nullable_within(frame.schema)
    if schema != frame.schema:
        frame = frame.to(schema)
    return DriverRows(arrow_rows(frame, most), schema)


def travels(frame: DataFrame) -> bool:
    """Whether rows can come to the driver: PySpark's Arrow has no NULL for a variant."""
    return "variant" not in type_text(frame.schema)


def keep(spark: SparkSession, sql: str, most: int) -> Shared:
    """Run a query whose rows are few, and keep them in the driver, where they can come there: up
    to `most` bytes."""
    frame = spark.sql(sql)
    if travels(frame):
        with suppress(TooManyBytesError):
            return rows_of(frame, most)
    return _held(frame)


def hold(spark: SparkSession, sql: str) -> CachedRelation:
    """Run a query whose rows are too many for the driver, and keep them in Spark's cache."""
    return _held(spark.sql(sql))


def _held(frame: DataFrame) -> CachedRelation:
    view = f"streamsql_{uuid.uuid4().hex}"
    name, spark = f"global_temp.{view}", frame.sparkSession
    # Spark uses a cache wherever it finds the same plan. This one is found only by its name.
    frame.filter(f"'{view}' IS NOT NULL").createGlobalTempView(view)
    held = CachedRelation(name, spark)
    try:
        spark.catalog.cacheTable(name)
        spark.table(name).count()
    except BaseException:
        held.drop()
        raise
    return held
