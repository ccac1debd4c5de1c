"""A run that is cancelled ends, wherever its models are at that moment."""

from __future__ import annotations

import threading
from multiprocessing import get_context
from types import SimpleNamespace

import pytest
from dbt.adapters.contracts.connection import ConnectionState
from dbt.adapters.exceptions import FailedToConnectError

from dbt_streamsql.adapter.session import connections
from dbt_streamsql.adapter.session.connections import StreamSqlConnectionManager
from tests.support import patience


class Host:
    """Statements that end when they are cancelled; who sends none is not reached."""

    def __init__(self):
        self.cancelled = 0
        self._more = threading.Condition()

    def cancel_all(self):
        with self._more:
            self.cancelled += 1
            self._more.notify_all()

    def statement(self):
        with self._more:
            before = self.cancelled
            self._more.wait_for(lambda: self.cancelled > before)


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def manager(monkeypatch, host):
    monkeypatch.setattr(StreamSqlConnectionManager, "host", host)
    monkeypatch.setattr(connections, "_AGAIN_SECONDS", (0.05, 0.1))
    profile = SimpleNamespace(credentials=None)
    return StreamSqlConnectionManager(profile, get_context("spawn"))


def test_a_model_that_is_between_two_statements_is_cancelled_at_the_next_one(manager, host):
    begun, between = threading.Event(), threading.Event()

    def model():
        connection = manager.set_connection_name("model")
        connection.handle, connection.state = SimpleNamespace(cancel=int), ConnectionState.OPEN
        begun.set()
        between.wait()
        host.statement()
        manager.release()

    worker = threading.Thread(target=model)
    worker.start()
    begun.wait()
    ended = threading.Thread(target=manager.cancel_open)
    ended.start()
    patience.until(lambda: host.cancelled)
    between.set()
    patience.join(ended, worker)
    assert host.cancelled > 1


def test_a_model_that_begins_after_that_is_refused_until_the_end_of_the_run(manager):
    refused = []

    def model():
        connection = manager.set_connection_name("model")
        try:
            manager.open(connection)
        except FailedToConnectError as error:
            refused.append(str(error))

    manager.cancel_open()
    worker = threading.Thread(target=model)
    worker.start()
    patience.join(worker)
    assert "cancelled" in refused.pop()
    manager.cleanup_all()
    assert manager._cancels is None
