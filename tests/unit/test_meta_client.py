"""The client of a MetaService: what it holds there, and what it does when nobody answers well."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Fence, MetaStore, open_store
from dbt_streamsql.meta.client import heartbeats, transport
from dbt_streamsql.meta.client.client import (
    LeadersClient,
    LeasesClient,
    MetaClient,
    StagedClient,
)
from dbt_streamsql.meta.service.access.holds import Holds
from dbt_streamsql.meta.store.api import Leaders, Leases, StagedLedger
from dbt_streamsql.meta.store.sql.schema import SCHEMA_VERSION
from tests.support import patience
from tests.support.histories import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.meta_service import Server

GREETING = {
    "name": "default",
    "role": "admin",
    "schemas": None,
    "store": "0" * 8,
    "schema_version": SCHEMA_VERSION,
}


def refusal(call: Callable[[], object]) -> StreamSqlError:
    with pytest.raises(StreamSqlError) as caught:
        call()
    return caught.value


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """A server that is no MetaService; its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer(self)

        do_POST = do_GET  # noqa: N815 - as the library calls it

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def reply(handler: BaseHTTPRequestHandler, body: object, status: int = 200) -> None:
    content = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


@pytest.fixture
def server(
    meta_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    monkeypatch.setenv("STREAMSQL_CACHE", str(meta_server.cache))
    with meta_server.serving(f"sqlite:///{tmp_path}/meta.db"):
        yield meta_server


@pytest.fixture
def first(server: Server) -> Iterator[MetaClient]:
    opened = MetaClient(server.url)
    yield opened
    opened.close()


@pytest.fixture
def second(server: Server) -> Iterator[MetaClient]:
    opened = MetaClient(server.url)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("client", "store"),
    [
        (MetaClient, MetaStore),
        (LeasesClient, Leases),
        (LeadersClient, Leaders),
        (StagedClient, StagedLedger),
    ],
)
def test_the_client_has_every_call_of_the_store(client: type, store: type) -> None:
    members = {name: member for kind in store.__mro__[:-1] for name, member in vars(kind).items()}
    calls = {name for name, member in members.items() if name[0] != "_" and callable(member)}
    assert calls <= set(vars(client))


def test_a_store_is_the_same_whichever_way_it_is_reached(
    server: Server, first: MetaClient, tmp_path: Path
) -> None:
    direct = open_store(f"sqlite:///{tmp_path}/meta.db")
    assert first.id == direct.id
    direct.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://meta.example:8123",
        "http://10.0.0.1:8123",
        "http://ann:s3cret@127.0.0.1:8123",
        "https://ann:s3cret@meta.example",
        "http://127.0.0.1:8123/path",
        "http://127.0.0.1:port",
        "http://",
        "https://:8123",
    ],
)
def test_an_address_where_a_token_would_not_be_safe_is_refused(url: str) -> None:
    error = refusal(lambda: open_store(url, token="t0ken"))
    assert error.code == "META_UNREACHABLE"
    assert "meta_token" in error.hint
    assert "s3cret" not in str(error)
    assert "t0ken" not in str(error)


def test_nobody_there_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    error = refusal(lambda: open_store("http://127.0.0.1:1"))
    assert error.code == "META_UNREACHABLE"
    assert "http://127.0.0.1:1: ConnectError" in error.given
    assert "streamsql meta serve" in error.hint
    assert "may or may not have been applied" not in error.hint
    assert pauses == list(transport.AGAIN_SECONDS), "asked again a few times, then no more"


@pytest.mark.parametrize("body", ["a page", {"detail": "Not Found"}, {**GREETING, "role": "king"}])
@pytest.mark.parametrize("status", [200, 404, 502])
def test_something_else_that_answers_is_not_taken_for_a_service(body: object, status: int) -> None:
    with answering(lambda handler: reply(handler, body, status)) as url:
        error = refusal(lambda: open_store(url))
    assert error.code == "META_UNREACHABLE"
    assert error.given == f"{url}: status {status}"


def test_a_service_of_another_version_is_refused() -> None:
    other = {**GREETING, "schema_version": SCHEMA_VERSION + 1}
    with answering(lambda handler: reply(handler, other)) as url:
        error = refusal(lambda: open_store(url))
    assert error.code == "META_VERSION"
    assert f"version {SCHEMA_VERSION + 1}" in error.given


def test_an_unknown_token_is_told_as_such(server: Server) -> None:
    error = refusal(lambda: open_store(server.url, token="of-somebody-else"))
    assert error.code == "META_DENIED"
    assert "meta_token" in error.hint


def test_a_read_is_tried_again_and_a_write_is_not() -> None:
    asked: list[str] = []

    def breaking(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.command)
        if handler.command == "POST" or len(asked) % 3:
            handler.close_connection = True
        else:
            reply(handler, GREETING if handler.path.endswith("whoami") else 7)

    with answering(breaking) as url:
        client = MetaClient(url)
        assert asked == ["GET"] * 3
        assert client.last_committed() == 7
        error = refusal(lambda: client.commit(Fence(1, "h:1:x"), 1))
        client.close()
    assert asked[6:] == ["POST"]
    assert error.code == "META_UNREACHABLE"
    assert "may or may not have been applied" in error.hint


def test_a_runner_that_lives_is_never_succeeded(
    server: Server, first: MetaClient, second: MetaClient
) -> None:
    limit, clock = 0.2, Clock()
    server.service.runner_seconds = limit
    server.service._runners = Holds(clock)
    fence = first.acquire()
    owner = fence.owner
    (hold,) = server.service._runners._held.values()
    for _ in range(10):
        # Heard of just in time, again and again.
        clock.now += 0.9 * limit
        patience.until(lambda: hold.heard == clock.now)
        server.service.look()
    assert second.holder() == owner
    assert refusal(second.acquire).code == "WAREHOUSE_BUSY"
    first.release(fence)
    assert second.acquire().token == fence.token + 1


def test_a_silent_runner_may_come_back_until_another_has_come(
    server: Server, first: MetaClient, second: MetaClient, tmp_path: Path
) -> None:
    fence = first.acquire()
    barrier = first.begin(fence).id
    first._heartbeats.end()
    direct = open_store(f"sqlite:///{tmp_path}/meta.db")
    server.fall_silent(server.service.runner_seconds + 1)
    patience.until(lambda: not direct.holder())
    direct.close()
    assert first.resume(fence)
    assert refusal(second.acquire).code == "WAREHOUSE_BUSY"
    server.fall_silent(server.service.runner_seconds + 1)
    successor = second.acquire(wait=True)
    assert successor.token == fence.token + 1
    assert not first.resume(fence)
    assert refusal(lambda: first.precommit(fence, barrier)).code == "META_CONFLICT"
    second.abort(successor, barrier)
    first.release(fence)
    assert second.fence() == successor


def test_a_runner_and_what_it_stages_survive_a_restart_of_the_service(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "PER_LIMIT", 100)  # the next beat comes soon
    first, second = MetaClient(server.url), MetaClient(server.url)
    fence = first.acquire()
    first.staged.record("t1", "lake.shop.plain", "{}")
    server.service.close()
    with server.serving(f"sqlite:///{tmp_path}/meta.db"):
        with second.staged.orphans() as records:
            assert records == []
        first.staged.confirm("t1")
        first.staged.record("t2", "lake.shop.plain", "{}")
        patience.until(lambda: second.holder() == fence.owner)
        assert refusal(second.acquire).code == "WAREHOUSE_BUSY"
        first.close()
        with second.staged.orphans() as records:
            assert [record.token for record in records] == ["t1", "t2"]
        assert second.acquire().token == fence.token + 1
        second.close()


def test_what_a_silent_owner_staged_is_an_orphan_after_its_time(
    server: Server, second: MetaClient
) -> None:
    first = MetaClient(server.url)
    first.staged.record("t1", "lake.shop.plain", "{}")
    first._heartbeats.end()
    server.fall_silent(server.service.owner_seconds + 1)

    def swept() -> list[str]:
        with second.staged.orphans() as records:
            return [record.token for record in records]

    patience.until(swept)
    with second.staged.orphans():
        error = refusal(lambda: first.staged.confirm("t1"))
        assert error.code == "META_CONFLICT"
        assert refusal(lambda: first.staged.record("t2", "lake.shop.p", "{}")).code == error.code
    first.staged.record("t3", "lake.shop.plain", "{}")
    first.close()
