"""Results that an epoch keeps for itself: small ones in the driver, big ones in Spark's cache."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime.spark.shared_relations import DriverRows, rows_of, travels
from dbt_streamsql.storage.arrow_rows import TooManyBytesError, arrow_frame

_numbers = itertools.count()


@dataclass(frozen=True)
class TempRelation:
    """A computed relation: its size, and the rows themselves when small. `marked`: how many have a
    value in the marked column; `view` registers it as a view and returns the name."""

    count: int
    view: Callable[[TempRelation], str]
    rows: DriverRows | None = None
    marked: int = 0

    @cached_property
    def name(self) -> str:
        """Its name as a view, which is created on first use."""
        return self.view(self)


@dataclass
class Scratch:
    """The views and kept results of one job in one session; no result in the driver takes more
    than `most` bytes of memory."""

    spark: SparkSession
    most: int
    _views: list[str] = field(default_factory=list)
    _cached: list[DataFrame] = field(default_factory=list)
    _kept: dict[str, TempRelation] = field(default_factory=dict)

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
        few: int = 0,
    ) -> TempRelation:
        """Run a query once and keep its result; `literals` are its named parameters, `mark` a
        column whose values are counted.

        A small result comes to the driver, if it can: Spark then knows its size (`arrow_frame`).
        So does one of at most `few` rows, however many were expected.
        """
        frame = self._frame(sql, literals)
        if small and travels(frame):
            with suppress(TooManyBytesError):
                rows = rows_of(frame, self.most)
                marked = rows.data.num_rows - rows.data.column(mark).null_count if mark else 0
                return self.keep(rows, marked)
        name = self.cached(frame)
        if few and travels(frame):
            with suppress(TooManyBytesError):
                rows = rows_of(frame.limit(few + 1), self.most)
                if rows.data.num_rows <= few:
                    return self.keep(rows)
        if mark:
            counts = frame.agg(F.count(F.lit(1)), F.count(quote(mark))).first()
            assert counts is not None
            return self.named(name, *counts)
        return self.named(name, frame.count())

    def fetch(self, sql: str, literals: Mapping[str, Any] | None = None) -> DriverRows:
        """The rows of a query. Error: `TooManyBytesError`."""
        return rows_of(self._frame(sql, literals), self.most)

    def _frame(self, sql: str, literals: Mapping[str, Any] | None) -> DataFrame:
        return self.spark.sql(sql, args=dict(literals) if literals else None)

    def cached(self, frame: DataFrame) -> str:
        """The frame under a temporary name, in Spark's cache once it has been read."""
        self._cached.append(frame.persist())
        return self.view(frame)

    def keep(self, rows: DriverRows, marked: int = 0) -> TempRelation:
        """Rows of the driver as a kept result."""
        return TempRelation(rows.data.num_rows, self._view_of, rows, marked)

    def named(self, name: str, count: int, marked: int = 0) -> TempRelation:
        """What a view of that name shows, as a kept result."""
        self._kept[name] = kept = TempRelation(count, lambda _: name, marked=marked)
        return kept

    def _view_of(self, kept: TempRelation) -> str:
        assert kept.rows is not None
        name = self.rows(kept.rows)
        self._kept[name] = kept
        return name

    def rows(self, rows: DriverRows) -> str:
        """Rows of the driver under a temporary name."""
        return self.view(arrow_frame(self.spark, rows.data, rows.schema))

    def known(self, name: str) -> TempRelation | None:
        """The kept result of that name, if there is one."""
        return self._kept.get(name)

    def kept(self, relation: str, *, small: bool) -> TempRelation:
        """A relation as a kept result: itself when it is one already, else computed now."""
        return self._kept.get(relation) or self.collect(f"SELECT * FROM {relation}", small=small)

    def close(self) -> None:
        """Drop the views and free the cache."""
        for frame in self._cached:
            frame.unpersist()
        for view in self._views:
            self.spark.catalog.dropTempView(view)
