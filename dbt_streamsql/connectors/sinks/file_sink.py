"""Files: a folder `barrier=<number>` for each delivery that has rows, written under a name that
readers skip, then renamed. Each change appears exactly once where a rename is atomic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dbt_streamsql.connectors.sinks.registry import SinkOptions
from dbt_streamsql.connectors.sinks.target import (
    LOST_ROW,
    OPERATION,
    Batch,
    Layout,
    Mark,
    is_of_rows,
)
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.storage.iceberg import files
from dbt_streamsql.storage.locations import is_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGELOG, APPEND = "changelog", "append"
FORMATS = ("parquet", "json", "csv")
_DELIVERED = re.compile(r"barrier=\d+")
_HIDDEN = "_streamsql-"
_WRITER = {
    "json": {"ignoreNullFields": "false"},
    "csv": {"header": "true"},
    "parquet": {},
}
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_TIMES = {"timestampFormat": f"{_TIME}XXXXX", "timestampNTZFormat": _TIME}


@dataclass(frozen=True)
class FilesTarget:
    """A folder."""

    path: str
    format: str
    mode: str
    place: Place
    hide: Callable[[str], str] = field(repr=False)
    is_keyed: bool = False
    keeps_mark: bool = False
    compares: bool = False

    @property
    def name(self) -> str:
        return f"files in {self.hide(self.path)}"

    @property
    def identity(self) -> str:
        return f"files {self.path} {self.format} {self.mode}"

    def check(self, spark: SparkSession, layout: Layout, *, first: bool) -> None:
        del layout
        with self._asking():
            found = self.delivered(spark)
        if first and found:
            raise StreamSqlError(
                "SINK_REFUSED",
                f"{self.name}: it already has deliveries, and none is from this sink",
                given=", ".join(found[:3]),
                hint="choose an empty folder, or run `dbt run --full-refresh` of the sink, which "
                "deletes them and delivers the whole table",
                place=self.place,
            )

    @contextmanager
    def begin(
        self, spark: SparkSession, layout: Layout, *, replaces: bool
    ) -> Iterator[FilesDelivery]:
        with self._asking():
            yield FilesDelivery(self, spark, layout, replaces)

    def delivered(self, spark: SparkSession) -> list[str]:
        """The delivery folders, sorted by name."""
        return sorted(name for name in files.names(spark, self.path) if _DELIVERED.fullmatch(name))

    def at(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    @contextmanager
    def _asking(self) -> Iterator[None]:
        from py4j.protocol import Py4JError

        try:
            yield
        except (OSError, Py4JError) as error:
            if is_of_rows(error):
                raise
            told = str(getattr(error, "java_exception", None) or error)
            raise StreamSqlError(
                "SINK_UNREACHABLE",
                f"{self.name} cannot be written",
                given=self.hide(told.strip().splitlines()[0]),
                hint="check the path and the permission to write there; the delivery is retried",
                place=self.place,
            ) from None


@dataclass(frozen=True)
class FilesDelivery:
    """One folder."""

    target: FilesTarget
    spark: SparkSession
    layout: Layout
    replaces: bool
    mark: Mark | None = None

    def write(self, batch: Batch) -> None:
        target, name = self.target, f"barrier={batch.barrier}"
        for left in files.names(self.spark, target.path):
            if left.startswith(_HIDDEN):
                files.delete_folder(self.spark, target.at(left))
        if name in target.delivered(self.spark) and not self.replaces:
            return  # a process that died has renamed it
        options = {**_WRITER[target.format], **(_TIMES if target.format != "parquet" else {})}
        rows = self._rows(batch.rows)
        if rows is not None:
            hidden = target.at(f"{_HIDDEN}{batch.barrier}")
            rows.write.format(target.format).options(**options).mode("overwrite").save(hidden)
            read = self.spark.read.format(target.format).options(**options).schema(rows.schema)
            if read.load(hidden).isEmpty() and not self.replaces:
                files.delete_folder(self.spark, hidden)

    def publish(self, barrier: int) -> None:
        target, hidden = self.target, f"{_HIDDEN}{barrier}"
        written = hidden in files.names(self.spark, target.path)
        if self.replaces and written:
            for name in target.delivered(self.spark):
                files.delete_folder(self.spark, target.at(name))
        if written:
            files.rename(self.spark, target.at(hidden), target.at(f"barrier={barrier}"))

    def _rows(self, rows: DataFrame) -> DataFrame | None:
        from pyspark.sql import functions as F

        if self.target.mode != APPEND:
            return rows
        lost = F.raise_error(F.lit(LOST_ROW))
        came = F.when(F.col(OPERATION) == "-", lost.cast("boolean")).otherwise(F.lit(True))
        return rows.where(came).drop(OPERATION)


def target(options: SinkOptions, mode: str, key: tuple[str, ...]) -> FilesTarget:
    """Error: CONFIG_INVALID."""
    found = options.modes(mode, (CHANGELOG, APPEND), key)
    if key:
        options.wrong("`key` does not apply to files, which receive every row")
    path = options.text("path", allowed="a folder, or an address such as s3a://bucket/folder")
    form = options.format or "parquet"
    if form not in FORMATS:
        options.wrong(f"`format` is {options.format!r}: one of {', '.join(FORMATS)}")
    options.check()
    if not is_uri(path) and not path.startswith("file:"):
        path = str(Path(path).expanduser().absolute())
    return FilesTarget(path, str(form), found, options.place, options.hide)
