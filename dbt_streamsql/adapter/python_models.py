"""Python models: run in this process, in the session that then stores what they return."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.storage.iceberg.java import moved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE = "<python model>"


def run(code: str, session: SparkSession, load: Callable[[str], DataFrame]) -> DataFrame:
    """The result of a model's compiled code as a Spark DataFrame.

    `load` gives what `dbt.ref` and `dbt.source` name. The model may return a DataFrame of Spark,
    of pandas or of pandas-on-Spark. Error: PYTHON_MODEL.
    """
    names: dict[str, Any] = {"__name__": "dbt_model", "spark": session}
    try:
        exec(compile(code, _FILE, "exec"), names)  # noqa: S102 - the user's own model
        result = names["model"](names["dbtObj"](load), session)
    except Exception as error:
        raise StreamSqlError(
            "PYTHON_MODEL",
            "a python model failed",
            given=f"{type(error).__name__}: {error}".splitlines()[0],
            hint=_where(error),
        ) from error
    return _to_spark(result, session)


def _where(error: Exception) -> str:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == _FILE
    ]
    return f"look at line {lines[-1]} of the model in target/compiled" if lines else ""


def _to_spark(result: Any, session: SparkSession) -> DataFrame:
    if hasattr(result, "to_spark"):
        result = result.to_spark()
    if hasattr(result, "toPandas"):
        # pandas-on-Spark, or the model itself, may have taken the process's session.
        return moved(result, session)
    if hasattr(result, "iloc"):
        return session.createDataFrame(result)
    raise StreamSqlError(
        "PYTHON_MODEL",
        "a python model must return a DataFrame",
        given=type(result).__name__,
        allowed="a DataFrame of Spark, pandas or pandas-on-Spark",
    )
