"""A Spark Connect server that does not answer holds nobody back who only interrupts or gives back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc
import pytest
from pyspark.errors import PySparkException

from dbt_streamsql.runtime.spark import connect, deadlines
from dbt_streamsql.runtime.spark.settings import SessionSettings
from dbt_streamsql.runtime.spark.timeout import limited
from tests.support import patience

if TYPE_CHECKING:
    from collections.abc import Iterator


class Silent(grpc.GenericRpcHandler):
    """Takes every call and answers none, until the test ends."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.over = threading.Event()

    def service(self, details):
        self.called.append(details.method.rpartition("/")[2])
        return grpc.unary_unary_rpc_method_handler(self._wait)

    def _wait(self, _, context):
        self.over.wait()
        context.abort(grpc.StatusCode.CANCELLED, "the test is over")


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silent]:
    monkeypatch.setattr(deadlines, "SECONDS", dict.fromkeys(deadlines.SECONDS, 0.2))
    # Set by the first session of a process, for all of its queries.
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    handler = Silent()
    yield handler
    handler.over.set()


@pytest.fixture
def session(silent: Silent) -> Iterator[object]:
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, handlers=[silent])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        opened = connect._created(SessionSettings(method="connect", host="localhost", port=port))
        connect._enter(opened, retries=0)
        yield opened
        connect._leave(opened)
        silent.over.set()
        server.stop(None).wait()


def test_who_interrupts_or_gives_a_session_back_goes_on(silent: Silent, session) -> None:
    done = threading.Thread(target=lambda: (connect.interrupt_all(), connect.release(session)))
    done.start()
    patience.join(done)
    assert silent.called == ["Interrupt", "ReleaseSession"]


def test_the_end_of_a_limited_block_does_not_wait_for_the_server(silent: Silent, session) -> None:
    with limited(session, 0.01):
        patience.until(lambda: silent.called)
    assert set(silent.called) == {"Interrupt"}


def test_a_statement_has_no_deadline(silent: Silent, session) -> None:
    assert "ExecutePlan" not in deadlines.SECONDS

    def ask() -> None:
        with suppress(PySparkException):
            _ = session.version

    asked = threading.Thread(target=ask)
    asked.start()
    patience.until(lambda: silent.called == ["AnalyzePlan"])
    asked.join(4 * deadlines.SECONDS["Interrupt"])
    assert asked.is_alive()
    silent.over.set()
    patience.join(asked)
