"""Processes that use the Spark of the process that started them, as clients of a server do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PORT = "PYSPARK_GATEWAY_PORT"


def environment(spark: Any) -> dict[str, str]:
    """What a process needs to find the Spark behind this session."""
    gateway = spark.sparkContext._gateway.gateway_parameters
    found = {PORT: str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.auth_token}
    return {**paths(), **found}


def paths() -> dict[str, str]:
    """The environment of a process that imports what tests import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}


def attach() -> None:
    """Make the Spark context of another process this process's own."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    jvm = gateway.jvm
    running = jvm.org.apache.spark.SparkContext.getOrCreate()
    context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(running)
    SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jvm=jvm, _jconf=context.getConf()))


def wear_out() -> None:
    """Tables as small and young as those of tests are worn: upkeep finds something to do, and old
    barriers go at once, in every engine that is opened from here on."""
    from dbt_streamsql import engine
    from dbt_streamsql.meta import Retention, retention
    from dbt_streamsql.runtime import upkeep

    upkeep.SMALL_TABLE, upkeep.SMALL_FILES = 0, 1
    retention.TOGETHER = 1
    setattr(engine, "retention_of", lambda *_: Retention(barriers=2))  # noqa: B010 - for mypy
