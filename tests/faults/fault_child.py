"""The process that dies: `python fault_child.py '<Orders as JSON>'`.

It runs the epoch, or a recovery, and sends itself a signal at one durable step; if it lives, it
prints how often it passed each. With
PYSPARK_GATEWAY_PORT in the environment it drives the Spark of the process that started it (as a
client of a Spark server does); otherwise it has a Spark of its own, which dies with it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from dataclasses import asdict, dataclass

import fault_scenario as scenario


@dataclass(frozen=True)
class Orders:
    """`task` is epoch, recover, stage or sweep; the `nth` passing of (`step`, `moment`) sends `signal`."""

    warehouse: str
    task: str
    step: str
    moment: str
    nth: int
    signal: int
    parallel: bool

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def attach() -> None:
    """Make the Spark context of another process this process's own."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    jvm = gateway.jvm
    running = jvm.org.apache.spark.SparkContext.getOrCreate()
    context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(running)
    SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jvm=jvm, _jconf=context.getConf()))


def main(orders: Orders) -> None:
    from dbt_streamsql import Engine
    from dbt_streamsql.runtime import durable, epoch, upkeep
    from dbt_streamsql.runtime.session import embedded

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        attach()
    if not orders.parallel:
        epoch.PARALLEL = 1
    # So that tables this small and young are worn.
    upkeep.SMALL_TABLE, upkeep.SMALL_FILES = 0, 1
    upkeep.KEPT_SNAPSHOTS, upkeep.EXPIRED_TOGETHER = 2, 0
    passed: Counter[str] = Counter()
    lock = threading.Lock()

    def observe(step: str, moment: str) -> None:
        with lock:
            passed[f"{moment} {step}"] += 1
            here = (step, moment) == (orders.step, orders.moment)
            if here and passed[f"{moment} {step}"] == orders.nth:
                os.kill(os.getpid(), orders.signal)

    # Our session, so that `close` leaves a Spark that belongs to another process alone.
    engine = Engine.open(orders.warehouse, spark=embedded(orders.warehouse))
    durable.observers.append(observe)
    tasks = {
        "epoch": scenario.epoch,
        "recover": scenario.recover,
        "stage": scenario.stage,
        "sweep": Engine.sweep,
    }
    tasks[orders.task](engine)
    engine.close()
    sys.stdout.write(json.dumps(passed))


if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
