"""Spark's operators as native code: Apache DataFusion Comet (`native: true` in the profile).

Comet replaces those parts of a physical plan that it computes exactly like Spark; Spark does the
rest. Its operators work outside of Java's heap, and may need more memory than there is: what fails
for that reason is done again without it.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from dbt_streamsql.runtime.spark.jars import spark_version
from dbt_streamsql.runtime.spark.pinned_jars import NATIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("dbt_streamsql")
T = TypeVar("T")

_ENABLED = "spark.comet.enabled"
QUIET = ("COMET_LOG_LEVEL", "error")
"""The variable of the environment, and its value, that keeps Comet from reporting its start."""

_FAILURE = "CometNativeException"
_MACHINES = ("x86_64", "aarch64")


def obstacle() -> str:
    """Why Comet cannot run here ('': it can): its jar has Linux libraries for two processors."""
    system, machine = platform.system(), platform.machine()
    if spark_version() not in NATIVE:
        return f"Comet is tested with Spark {', '.join(NATIVE)}; this is {spark_version()}"
    if system == "Linux" and machine in _MACHINES:
        return ""
    return f"Comet needs Linux on {' or '.join(_MACHINES)}; this is {system} on {machine}"


def settings(memory: int) -> dict[str, str]:
    """What Spark is started with; `memory`: bytes outside of Java's heap."""
    return {
        "spark.plugins": "org.apache.spark.CometPlugin",
        "spark.shuffle.manager": (
            "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager"
        ),
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": str(memory),
        _ENABLED: "true",
        "spark.comet.scan.icebergNative.enabled": "true",
    }


def failed(error: BaseException) -> bool:
    """Whether native code is the cause of an error."""
    return _FAILURE in str(error)


def or_without(
    spark: SparkSession, run: Callable[[], T], what: str, again: Callable[[], T] | None = None
) -> T:
    """What `run` returns; where native code fails, it, or `again`, runs without it."""
    # Every command loads this file, and few need Spark.
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return run()
    except (PySparkException, Py4JError) as error:
        if not failed(error) or spark.conf.get(_ENABLED, "false") != "true":
            raise
        log.warning("native code failed, so %s runs again without it", what)
    with without(spark):
        return (again or run)()


@contextmanager
def without(spark: SparkSession) -> Iterator[None]:
    """Inside the block the session's queries run on Spark's own operators."""
    if spark.conf.get(_ENABLED, "false") != "true":
        yield
        return
    spark.conf.set(_ENABLED, "false")
    try:
        yield
    finally:
        spark.conf.set(_ENABLED, "true")
