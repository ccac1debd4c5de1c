"""Processes that use the Spark of the process that started them, as clients of a server do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from dbt_streamsql import Engine
from dbt_streamsql.runtime.spark.session import embedded
from dbt_streamsql.tuning import Tuning

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


def open_worn(warehouse: str, **limits: int) -> Engine:
    """An engine to which tables as small and young as those of tests are worn: its upkeep finds
    something to do, and old barriers go at once. Their views are kept from changes. `limits`:
    others of `Tuning`.

    The session is this process's own, so that `close` leaves a Spark that belongs to another
    process alone."""
    worn = {"compacted_above": 0, "small_files": 1, "barriers_together": 1, "compared_rows": -1}
    tuning = Tuning(**{**worn, **limits})
    session = embedded(warehouse)
    return Engine.open(warehouse, spark=session, tuning=tuning, retain_barriers=2)
