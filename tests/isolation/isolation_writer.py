"""The writer: epoch after epoch, until it kills itself at a step.

`python isolation_writer.py '<Orders as JSON>'`, with the Spark of the process that starts it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from random import Random

from tests.isolation import isolation_tables as bank
from tests.support.spark_child import attach, open_worn
from tests.support.steps import observing

SLOW = 0.3
"""Seconds that it stays at some steps, so that readers meet what is unfinished."""

TURNS = ("barrier.precommit", "barrier.commit")
"""Steps before which it stays each time: who dies before the first has staged all, and all will be
undone; who dies before the second has shown all, and nothing may be."""


@dataclass(frozen=True)
class Orders:
    """It dies at the `nth` passing of any step, or the next time after that before the step
    `at`, one of `TURNS`. `planted` is a bug of `planted_isolation.py`."""

    warehouse: str
    seed: int
    nth: int
    at: str
    planted: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main(orders: Orders) -> None:
    from tests.isolation.planted_isolation import WRITERS

    attach()
    rng = Random(orders.seed)
    passed = 0

    def observe(step: str, moment: str) -> None:
        nonlocal passed
        passed += 1
        turn = step if step in TURNS and moment == "before" else ""
        if turn or rng.random() < 0.1:
            time.sleep(SLOW)
        if passed >= orders.nth and orders.at in ("", turn):
            os.kill(os.getpid(), signal.SIGKILL)

    engine = open_worn(orders.warehouse)
    with ExitStack() as ends:
        if orders.planted in WRITERS:
            ends.enter_context(WRITERS[orders.planted]())
        engine.begin()
        engine.abort()
        ends.enter_context(observing(observe))
        while True:
            _epoch(engine, rng)


def _epoch(engine, rng: Random) -> None:
    """All views, or one of them only, or one of them computed anew and then all; then old
    snapshots of one of them go, whoever holds them."""
    last = engine.spark.sql("SELECT max(n) FROM lake.bank.steps").first()[0]
    bank.write(engine, last + 1)
    kind = rng.choice(("all", "all", "one", "anew"))
    engine.begin()
    if kind != "all":
        view = rng.choice(sorted(bank.VIEWS))
        engine.create_materialized_view(
            f"{bank.SCHEMA}.{view}", bank.VIEWS[view], full_refresh=kind == "anew"
        )
    if kind != "one":
        engine.advance()
    engine.publish()
    _expire(engine, rng.choice(sorted(bank.VIEWS)))


def _expire(engine, view: str) -> None:
    """What somebody's own upkeep of tables does: of snapshots without a tag the newest stays."""
    engine.spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{bank.SCHEMA.removeprefix('lake.')}.{view}', "
        "older_than => now(), retain_last => 1)"
    ).collect()


if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
