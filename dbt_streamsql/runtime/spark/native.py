"""Spark's operators as native code: Apache DataFusion Comet (`native: true` in the profile).

Comet replaces those parts of a physical plan that it computes exactly like Spark; Spark does the
rest. Its operators work outside of Java's heap, and may need more memory than there is: what fails
for that reason is done again without it. Sessions start without it, and it is on for what is known
to be computed right. Comet 1.2 returned other values for nested columns of an Iceberg table whose
fields had changed since a file was written, so nothing that reads nested columns uses it.
"""

from __future__ import annotations

import logging
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from dbt_streamsql.runtime.spark.jars import spark_version
from dbt_streamsql.runtime.spark.pinned_jars import NATIVE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("dbt_streamsql")
T = TypeVar("T")

_ENABLED = "spark.comet.enabled"
_PLUGINS, _PLUGIN = "spark.plugins", "org.apache.spark.CometPlugin"
_NESTED = re.compile(r"\b(struct|array|map)<")
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
        _PLUGINS: _PLUGIN,
        "spark.shuffle.manager": (
            "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager"
        ),
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": str(memory),
        _ENABLED: "false",
        "spark.comet.scan.icebergNative.enabled": "true",
    }


def failed(error: BaseException) -> bool:
    """Whether native code is the cause of an error."""
    return _FAILURE in str(error)


def or_without(
    spark: SparkSession,
    run: Callable[[], T],
    what: str,
    again: Callable[[], T] | None = None,
    *,
    nested: Callable[[], bool],
) -> T:
    """What `run` returns, by native code where the session has it; where that fails, it, or
    `again`, runs without it. `nested`: whether nested columns are read."""
    # Every command loads this file, and few need Spark.
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not _is_there(spark):
        return run()
    if nested():
        with without(spark):
            return run()
    try:
        with _enabled(spark, "true"):
            return run()
    except (PySparkException, Py4JError) as error:
        if not failed(error):
            raise
        log.warning("native code failed, so %s runs again without it", what)
    with without(spark):
        return (again or run)()


@contextmanager
def without(spark: SparkSession) -> Iterator[None]:
    """Inside the block the session's queries run on Spark's own operators."""
    if not _is_there(spark):
        yield
        return
    with _enabled(spark, "false"):
        yield


def reads_nested(frame: DataFrame) -> bool:
    """Whether a query reads a table with nested columns, as far as this process sees."""
    # Spark Connect shows no plan.
    if not hasattr(frame, "_jdf"):
        return True
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public way to its inputs
    within = plan.subqueriesAll()
    for each in (plan, *(within.apply(at) for at in range(within.size()))):
        leaves = each.collectLeaves()
        columns = (leaves.apply(at).schema().catalogString() for at in range(leaves.size()))
        if any(is_nested(kinds.removeprefix("struct<")) for kinds in columns):
            return True
    return False


def is_nested(kind: object) -> bool:
    """Whether a type has others inside: as Spark writes it, or as Iceberg's metadata has it."""
    return not isinstance(kind, str) or _NESTED.search(kind) is not None


def _is_there(spark: SparkSession) -> bool:
    return _PLUGIN in (spark.conf.get(_PLUGINS, "") or "")


@contextmanager
def _enabled(spark: SparkSession, value: str) -> Iterator[None]:
    before = spark.conf.get(_ENABLED, "false")
    spark.conf.set(_ENABLED, value)
    try:
        yield
    finally:
        spark.conf.set(_ENABLED, before or "false")
