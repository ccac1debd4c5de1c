"""Results that an epoch keeps for itself: small ones in the driver, big ones in Spark's cache."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime.shared import Rows, rows_of, travels

_numbers = itertools.count()


@dataclass(frozen=True)
class Kept:
    """A computed relation: its name as a view, its size, and the rows themselves when small.
    `marked`: how many have a value in the column that was asked about."""

    name: str
    count: int
    rows: Rows | None = None
    marked: int = 0


@dataclass
class Local:
    """The views and kept results of one job in one session."""

    spark: SparkSession
    _views: list[str] = field(default_factory=list)
    _cached: list[DataFrame] = field(default_factory=list)
    _kept: dict[str, Kept] = field(default_factory=dict)

    def view(self, frame: DataFrame) -> str:
        """The frame under a temporary name."""
        name = f"streamsql_{next(_numbers)}"
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        return name

    def collect(
        self,
        sql: str,
        *,
        small: bool,
        literals: Mapping[str, Any] | None = None,
        mark: str = "",
    ) -> Kept:
        """Run a query once and keep its result; `literals` are its named parameters, `mark` a
        column whose values are counted.

        A small result becomes a local relation, if it can: Spark then knows its exact size,
        broadcasts it without a job, and drops what joins with an empty one.
        """
        frame = self.spark.sql(sql, args=dict(literals) if literals else None)
        if small and travels(frame):
            rows = rows_of(frame)
            marked = rows.data.num_rows - rows.data.column(mark).null_count if mark else 0
            return replace(self.keep(rows), marked=marked)
        name = self.cached(frame)
        if mark:
            counts = frame.agg(F.count(F.lit(1)), F.count(quote(mark))).first()
            assert counts is not None
            kept = Kept(name, counts[0], marked=counts[1])
        else:
            kept = Kept(name, frame.count())
        self._kept[kept.name] = kept
        return kept

    def cached(self, frame: DataFrame) -> str:
        """The frame under a temporary name, in Spark's cache once it has been read."""
        self._cached.append(frame.persist())
        return self.view(frame)

    def keep(self, rows: Rows) -> Kept:
        """Rows of the driver as a kept result."""
        kept = Kept(self.rows(rows), rows.data.num_rows, rows)
        self._kept[kept.name] = kept
        return kept

    def rows(self, rows: Rows) -> str:
        """Rows of the driver under a temporary name."""
        data = rows.data
        if not data.num_rows:
            # PySpark cannot tell the type of a struct from a column without chunks.
            data = pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema=data.schema)])
        return self.view(self.spark.createDataFrame(data, schema=rows.schema))

    def known(self, name: str) -> Kept | None:
        """The kept result of that name, if there is one."""
        return self._kept.get(name)

    def kept(self, relation: str, *, small: bool) -> Kept:
        """A relation as a kept result: itself when it is one already, else computed now."""
        return self._kept.get(relation) or self.collect(f"SELECT * FROM {relation}", small=small)

    def close(self) -> None:
        """Drop the views and free the cache."""
        for frame in self._cached:
            frame.unpersist()
        for view in self._views:
            self.spark.catalog.dropTempView(view)
