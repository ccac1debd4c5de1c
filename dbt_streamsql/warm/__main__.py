"""The warm engine's own process: `lifecycle.start` starts it and sends what to serve to stdin.

It runs a Spark with Spark's own Connect plugin in it, watches its use, and ends on SIGTERM, after
a long enough time without use, or when its Spark has died. Spark ends when it ends.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings
from dbt_streamsql.stop_signals import stop_on_signals
from dbt_streamsql.warm import process
from dbt_streamsql.warm.locks import locked
from dbt_streamsql.warm.record import (
    Place,
    Record,
    catalog_identity,
    fingerprint,
    versions,
)
from dbt_streamsql.warm.watch import Watch, service_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 1.0
STOP_SECONDS = 60.0
"""Longer than Spark takes to stop."""


def main() -> int:
    request: dict[str, Any] = json.load(sys.stdin)
    settings = SessionSettings(**request["settings"])
    place = Place(settings)
    # Python functions of models run with the Python that the models were written for.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with stop_on_signals() as stop, locked(place.folder / "alive") as mine:
        if not mine:
            sys.stderr.write("another warm engine of this warehouse is running\n")
            return 1
        token = secrets.token_urlsafe(32)
        served = replace(settings, spark_properties=_serving(settings, token))
        spark = open_session(served)
        try:
            record = Record(
                process=process.own(),
                port=service_of(spark).localPort(),
                warehouse=settings.warehouse,
                fingerprint=fingerprint(settings),
                versions=versions(),
                catalog=catalog_identity(settings),
                since=time.time(),
                token=token,
            )
            watch = Watch(spark)
            place.tell(watch.look())
            place.publish(record)
            while not stop.wait(POLL_SECONDS):
                state = watch.look()
                place.tell(state)
                if 0 < request["idle_seconds"] <= state.idle and not state.statements:
                    break
        finally:
            place.withdraw()
            _end_with_spark(spark)
    return 0


def _end_with_spark(spark: SparkSession) -> None:
    """Stop Spark. A Spark that does not stop would keep another engine from starting."""
    hung = threading.Timer(STOP_SECONDS, os.killpg, (os.getpid(), signal.SIGKILL))
    hung.daemon = True
    hung.start()
    spark.stop()
    hung.cancel()


def _serving(settings: SessionSettings, token: str) -> dict[str, str]:
    """The profile's Spark settings plus those that make Spark a Connect server."""
    given = dict(settings.spark_properties)
    plugins = [given.get("spark.plugins", ""), "org.apache.spark.sql.connect.SparkConnectPlugin"]
    return given | {
        "spark.plugins": ",".join(filter(None, plugins)),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.authenticate.token": token,
        # A run keeps sessions for later; the watch closes what a dead client leaves.
        "spark.connect.session.manager.defaultSessionTimeout": "7d",
    }


if __name__ == "__main__":
    sys.exit(main())
