"""A Kafka broker and a PostgreSQL, the ones of the tests, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import ExitStack

from tests.support import kafka_broker, postgres


def main() -> int:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as services:
        broker = services.enter_context(kafka_broker.server())
        print(f"Kafka       {broker.address}", flush=True)
        settings = ("wal_level=logical",)
        port = services.enter_context(postgres.server(postgres.PASSWORD, *settings))
        address = f"postgres:{postgres.PASSWORD}@127.0.0.1:{port}/postgres"
        print(f"PostgreSQL  postgresql://{address}", flush=True)
        print("For integration_tests/clickstream:")
        print(f"export CLICKSTREAM_KAFKA={broker.address} CLICKSTREAM_POSTGRES={port}")
        print(f"export DBT_ENV_SECRET_CLICKSTREAM={postgres.PASSWORD}")
        print("Ctrl-C stops both.", flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
