"""Python models: their code runs in this process, and only if this process was given it."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dbt_streamsql.errors import StreamSqlError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE = "<python model>"

_given: dict[str, str] = {}
"""Code by its digest. The store has only digests: its writers must not run code here."""


def give(code: str) -> str:
    """Let this process run that code; returns its digest, the name in definitions."""
    digest = hashlib.sha256(code.encode()).hexdigest()
    _given[digest] = code
    return digest


def given(digest: str) -> str | None:
    """The code with that digest; None when this process was not given it."""
    return _given.get(digest)


def execute(code: str, session: SparkSession, load: Callable[[str], DataFrame]) -> Any:
    """The result of the `model` function in a model's compiled code.

    `load` returns what `dbt.ref` and `dbt.source` name. Error: PYTHON_MODEL.
    """
    names: dict[str, Any] = {"__name__": "dbt_model", "spark": session}
    try:
        exec(compile(code, _FILE, "exec"), names)  # noqa: S102 - the user's own model
        return names["model"](names["dbtObj"](load), session)
    except Exception as error:
        raise failed(error) from error


def failed(error: Exception) -> StreamSqlError:
    """An error of a model's own code, with its position."""
    return StreamSqlError(
        "PYTHON_MODEL",
        "a python model failed",
        given=f"{type(error).__name__}: {error}".splitlines()[0],
        hint=_where(error),
    )


def _where(error: Exception) -> str:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == _FILE
    ]
    return f"look at line {lines[-1]} of the model in target/compiled" if lines else ""
