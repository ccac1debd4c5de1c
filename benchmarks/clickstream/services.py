"""The broker and the PostgreSQL of the tests, and what the benchmark asks them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from integration_tests.clickstream import produce
from tests.support import kafka_broker, postgres

LOOK = 0.2
"""Seconds between two looks at the newest bid in PostgreSQL."""


@dataclass(frozen=True)
class Services:
    """One broker and one server for the whole run; every system begins with empty ones."""

    broker: kafka_broker.Broker
    port: int

    @property
    def password(self) -> str:
        return postgres.PASSWORD

    def empty(self, tables: dict[str, str]) -> None:
        """New topics, and a schema that has only these tables, given with their columns."""
        known = self.broker._admin.list_topics(timeout=30).topics  # noqa: SLF001
        for topic in produce.TOPICS:
            if topic in known:
                self.broker.drop(topic)
        # A topic that has gone may not be made anew at once.
        time.sleep(2)
        produce.make_topics(self.broker.address)
        with self.connect() as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
            for name, columns in tables.items():
                connection.execute(f"CREATE TABLE {name} ({columns})")  # type: ignore[arg-type]

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="postgres",
            password=self.password,
            dbname="postgres",
            autocommit=True,
        )

    def delivered(self) -> dict[str, tuple[int, int]]:
        """Bids and the sum of their prices, by channel."""
        with self.connect() as connection:
            query = "SELECT channel, sum(bids), sum(total) FROM channel_minutes GROUP BY channel"
            try:
                rows = connection.execute(query).fetchall()
            except psycopg.errors.UndefinedTable:
                return {}
        return {channel: (int(bids), int(total)) for channel, bids, total in rows}

    def bids(self) -> int:
        return sum(bids for bids, _ in self.delivered().values())


@contextmanager
def started() -> Iterator[Services]:
    """Both, for the length of the block."""
    # A server that forces nothing to the disk spares both systems the same.
    with (
        kafka_broker.server() as broker,
        postgres.server(postgres.PASSWORD, "fsync=off") as port,
    ):
        yield Services(broker, port)


@dataclass
class Lags:
    """How late PostgreSQL is while a block runs: now less the time of its newest bid."""

    services: Services
    seen: list[tuple[float, float]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Lags:  # noqa: PYI034 - nobody derives from it
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def since(self, when: float) -> list[float]:
        """Seconds, of every look after a time."""
        return [lag for at, lag in list(self.seen) if at >= when]

    def _look(self) -> None:
        query = "SELECT extract(epoch FROM max(last_bid))::float8 FROM channel_minutes"
        with self.services.connect() as connection:
            while not self._stop.wait(LOOK):
                try:
                    newest = connection.execute(query).fetchall()[0][0]
                except psycopg.errors.UndefinedTable:
                    newest = None
                if newest is not None:
                    now = time.time()
                    self.seen.append((now, now - newest))
