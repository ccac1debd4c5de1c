"""The process that dies: `python fault_child.py '<Orders as JSON>'`.

It runs a task, and sends itself a signal at one durable step. If it lives, it prints how often it
passed each, in which order, and the error that ended it, as a user is told it. With
PYSPARK_GATEWAY_PORT in the environment it drives the Spark of the process that started it (as a
client of a Spark server does); otherwise it has a Spark of its own, which dies with it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from dataclasses import asdict, dataclass

from tests.faults import fault_scenario as scenario
from tests.support.spark_child import PORT, attach, open_worn
from tests.support.steps import observing

FAILED = 3
"""The exit code of a task that ended with an error."""

ANY = "*"
"""Instead of a step: the `nth` passing of any."""


@dataclass(frozen=True)
class Orders:
    """`task` is epoch, recover, stage, sweep, or one of `fault_scenarios.py`; the `nth` passing of
    (`step`, `moment`) sends `signal`."""

    warehouse: str
    task: str
    step: str
    moment: str
    nth: int
    signal: int
    parallel: bool

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main(orders: Orders) -> int:
    from dbt_streamsql import Engine
    from tests.faults.fault_scenarios import SCENARIOS

    if PORT in os.environ:
        attach()
    passed: Counter[str] = Counter()
    trace: list[tuple[str, str]] = []
    lock = threading.Lock()

    def observe(step: str, moment: str) -> None:
        with lock:
            passed[f"{moment} {step}"] += 1
            trace.append((step, moment))
            nth = passed[f"{moment} {step}"] if step == orders.step else len(trace)
            here = (step, moment) == (orders.step, orders.moment) or orders.step == ANY
            if here and nth == orders.nth:
                # Who is stopped in a transaction keeps SQLite's file locked, and nobody could
                # look at what a zombie does to others. Sent to the process, a signal may be met
                # by another thread, and this one would go on a little.
                with writing:
                    signal.pthread_kill(threading.get_ident(), orders.signal)

    tasks = {
        "epoch": scenario.epoch,
        "recover": scenario.recover,
        "stage": scenario.stage,
        "sweep": Engine.sweep,
        **{name: entry.task for name, entry in SCENARIOS.items()},
    }
    error: dict[str, str] | None = None
    try:
        engine = open_worn(orders.warehouse, **({} if orders.parallel else {"parallel": 1}))
        writing = engine.store.database._writing
        with observing(observe):
            try:
                tasks[orders.task](engine)
            finally:
                engine.close()
    except Exception as caught:  # noqa: BLE001 - whatever a user would meet
        error = _told(caught)
    sys.stdout.write(json.dumps({"passed": passed, "trace": trace, "error": error}))
    return FAILED if error else 0


def _told(error: Exception) -> dict[str, str]:
    """An error as a user of the Python API gets it, and as dbt prints it."""
    from dbt_streamsql.errors import StreamSqlError
    from tests.support.product import cause_of

    traceback.print_exc()
    code = error.code if isinstance(error, StreamSqlError) else ""
    return {"code": code, "kind": type(error).__name__, "text": cause_of(error)}


if __name__ == "__main__":
    sys.exit(main(Orders(**json.loads(sys.argv[1]))))
