"""Python models: run in this process, in the session that then stores their result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.java import moved
from dbt_streamsql.storage.python_code import execute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(code: str, session: SparkSession, load: Callable[[str], DataFrame]) -> DataFrame:
    """The result of a model's compiled code as a Spark DataFrame.

    `load` gives what `dbt.ref` and `dbt.source` name. The model may return a DataFrame of Spark,
    of pandas or of pandas-on-Spark. Error: PYTHON_MODEL.
    """
    result = execute(code, session, load)
    if getattr(result, "isStreaming", False):
        raise StreamSqlError(
            "PYTHON_MODEL",
            "a python model returned a stream",
            allowed="a batch DataFrame",
            hint="`materialized: streaming_table` reads each record of a stream once",
        )
    return _to_spark(result, session)


def _to_spark(result: Any, session: SparkSession) -> DataFrame:
    if hasattr(result, "to_spark"):
        result = result.to_spark()
    if hasattr(result, "toPandas"):
        # pandas-on-Spark, or the model itself, may have used the process's session.
        return moved(result, session)
    if hasattr(result, "iloc"):
        return _of_pandas(result, session)
    raise StreamSqlError(
        "PYTHON_MODEL",
        "a python model must return a DataFrame",
        given=type(result).__name__,
        allowed="a DataFrame of Spark, pandas or pandas-on-Spark",
    )


def _of_pandas(frame: Any, session: SparkSession) -> DataFrame:
    import pyarrow as pa

    from dbt_streamsql.storage.arrow_rows import arrow_frame

    if len(frame):
        return session.createDataFrame(frame)
    # Without rows Spark infers no types, but the frame's columns have some.
    return arrow_frame(session, pa.Table.from_pandas(frame, preserve_index=False))
