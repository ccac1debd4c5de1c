"""The stream that a Python model returns: Structured Streaming lands its records, each once.

Such a stream has no ranges that can be read again. So its query runs to its end (`availableNow`);
every micro-batch becomes a numbered folder, and a checkpoint holds the query's progress. A batch
that is repeated after a crash is the same and writes the same folder. Landed data is deleted when
a barrier with it is published.

A position has `run`, the folder of one reading from the beginning, and `batch`, the last one
taken.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as escaped

from dbt_streamsql.connectors.options import Options
from dbt_streamsql.connectors.sources.source import (
    AT,
    PROBLEM,
    RAW,
    End,
    Position,
)
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import quote
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.iceberg import files
from dbt_streamsql.storage.java import is_connect
from dbt_streamsql.storage.python_code import execute, failed, given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NONE = -1
"""The batch before the first one."""


@dataclass
class PythonStream:
    """The stream of one table; `folder` is where its batches land."""

    digest: str
    folder: str
    place: Place
    _returned: dict[int, DataFrame] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "the stream of a python model"

    def columns(self, spark: SparkSession) -> tuple[tuple[str, str], ...]:
        return tuple((f.name, type_text(f.dataType)) for f in self._frame(spark).schema)

    def end(self, spark: SparkSession, after: Position | None) -> End | None:
        """Land what the stream has now, and return the last batch.

        Errors: PYTHON_MODEL, STREAM_LOST.
        """
        run = after["run"] if after is not None else uuid.uuid4().hex
        if after is not None and "checkpoint" not in files.names(spark, self._at(run)):
            raise StreamSqlError(
                "STREAM_LOST",
                "the checkpoint of the stream is gone",
                given=self._at(run),
                hint="`dbt run --full-refresh` of this model reads the stream from its beginning",
                place=self.place,
            )
        self._land(spark, run)
        taken = after["batch"] if after is not None else _NONE
        new = [batch for batch in self._landed(spark, run) if batch > taken]
        if not new and after is not None:
            return None
        return End({"run": run, "batch": max(new, default=_NONE)})

    def read(self, spark: SparkSession, after: Position | None, upto: Position) -> DataFrame:
        from pyspark.sql import functions as F

        run, taken = upto["run"], after["batch"] if after is not None else _NONE
        schema = self._frame(spark).schema
        batches = [n for n in self._landed(spark, run) if taken < n <= upto["batch"]]
        if batches:
            paths = [self._at(run, "batches", str(batch)) for batch in batches]
            frame = spark.read.schema(schema).parquet(*paths)
        else:
            frame = spark.createDataFrame([], schema)
        columns = [F.col(quote(each.name)) for each in schema]
        return frame.select(
            *columns,
            F.to_json(F.struct(*columns)).alias(RAW),
            F.lit(f"batches up to {upto['batch']}").alias(AT),
            F.lit(None).cast("string").alias(PROBLEM),
        )

    def release(self, spark: SparkSession, upto: Position) -> None:
        """Delete what is published, and readings that are not continued."""
        for run in files.names(spark, self.folder):
            if run != upto["run"]:
                files.delete_folder(spark, self._at(run))
        for batch in self._landed(spark, upto["run"]):
            if batch <= upto["batch"]:
                files.delete_folder(spark, self._at(upto["run"], "batches", str(batch)))

    def forget(self) -> str:
        if "://" in self.folder:
            return f"the checkpoint in {self.folder} remains, but is no longer used"
        shutil.rmtree(Path(self.folder), ignore_errors=True)
        return f"removed the checkpoint in {self.folder}"

    def _land(self, spark: SparkSession, run: str) -> None:
        def land(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").parquet(self._at(run, "batches", str(number)))

        writer = self._frame(spark).writeStream.foreachBatch(land).trigger(availableNow=True)
        try:
            query = writer.option("checkpointLocation", self._at(run, "checkpoint")).start()
            query.awaitTermination()
        except Exception as error:
            raise failed(error) from error

    def _landed(self, spark: SparkSession, run: str) -> list[int]:
        names = files.names(spark, self._at(run, "batches"))
        return sorted(int(name) for name in names if name.isdigit())

    def _at(self, *names: str) -> str:
        return "/".join((self.folder, *names))

    def _frame(self, spark: SparkSession) -> DataFrame:
        if id(spark) not in self._returned:
            self._returned[id(spark)] = self._run(spark)
        return self._returned[id(spark)]

    def _run(self, spark: SparkSession) -> DataFrame:
        if is_connect(spark):
            raise self._refused(
                "the stream of a python model cannot be read over Spark Connect", "", ""
            )
        code = given(self.digest)
        if code is None:
            raise self._refused(
                "this process does not have the code of the model",
                f"code {self.digest[:12]}",
                "use `dbt run` or `streamsql run` in its project",
            )

        def load(name: str) -> DataFrame:
            return spark.table(name)

        frame: Any = execute(code, spark, load)
        if not getattr(frame, "isStreaming", False):
            raise StreamSqlError(
                "PYTHON_MODEL",
                "the python model of a streaming table must return a stream",
                given=type(frame).__name__,
                allowed="a DataFrame of `session.readStream`",
                hint="use `materialized: table` or `incremental` for other DataFrames",
                place=self.place,
            )
        found: DataFrame = frame
        return found

    def _refused(self, what: str, told: str, hint: str) -> StreamSqlError:
        return StreamSqlError("STREAM_UNREACHABLE", what, given=told, hint=hint, place=self.place)


def source(options: Options) -> PythonStream:
    """Error: CONFIG_INVALID."""
    digest, folder = options.text("code"), options.text("checkpoint")
    options.check()
    at = f"{str(folder).rstrip('/')}/{escaped(options.reader, safe='')}"
    return PythonStream(str(digest), at, options.place)
