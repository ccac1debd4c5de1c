"""Server-sent events: who hears what, how many may listen, and what listening costs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx
import pytest
from fastapi import FastAPI

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore
from dbt_streamsql.web import everything
from dbt_streamsql.web.events import Connection, Events
from tests.web.service import served, served_app

T = TypeVar("T")
TOKEN = "of-this-test-only"  # noqa: S105 - made up
EVENTS = "/ui/api/events"


class Counting:
    """A store that counts how often its state is read."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self.reads = 0

    def states(self):
        self.reads += 1
        return self._store.states()

    def __getattr__(self, name: str):
        return getattr(self._store, name)


def heard(lines: Iterator[str]) -> dict[str, object]:
    """The next event."""
    for line in lines:
        if line.startswith("data: "):
            found: dict[str, object] = json.loads(line.removeprefix("data: "))
            return found
    raise AssertionError("the stream has ended")


def test_one_hears_the_newest_barrier_at_once_and_then_what_begins_and_ends(store: MetaStore):
    with served(store) as url, httpx.stream("GET", url + EVENTS, trust_env=False) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        lines = answer.iter_lines()
        first = heard(lines)
        assert (first["barrier"], first["state"]) == (12, "COMMIT")
        fence = store.acquire()
        number = store.begin(fence).id
        began = heard(lines)
        while began["barrier"] == 12:  # the runner has begun, and its barrier not yet
            began = heard(lines)
        assert (began["barrier"], began["state"]) == (number, "OPEN")
        store.precommit(fence, number)
        store.commit(fence, number)
        ended = heard(lines)
        while ended["state"] != "COMMIT":
            ended = heard(lines)
        assert ended["barrier"] == number
        store.release(fence)


def test_only_who_has_a_token_hears_anything(store: MetaStore):
    with served(store, lambda token: everything if token == TOKEN else None) as url:
        assert httpx.get(url + EVENTS, trust_env=False).status_code == 401
        wrong = {"Cookie": "streamsql_token=wrong"}
        assert httpx.get(url + EVENTS, headers=wrong, trust_env=False).status_code == 401
        cookie = {"Cookie": f"streamsql_token={TOKEN}"}
        with httpx.stream("GET", url + EVENTS, headers=cookie, trust_env=False) as answer:
            assert answer.status_code == 200
            assert heard(answer.iter_lines())["barrier"] == 12


def app_of(events: Events) -> FastAPI:
    app = FastAPI()

    @app.get("/events")
    async def listen() -> Connection:
        return Connection(events, {})

    return app


def test_who_finds_no_room_hears_so_and_has_some_when_another_leaves(store: MetaStore):
    events = Events(store, most=2, poll=0.05)
    with served_app(app_of(events)) as url, httpx.Client(trust_env=False) as client:
        with client.stream("GET", f"{url}/events") as one:
            first = one.iter_lines()
            heard(first)
            with client.stream("GET", f"{url}/events") as two:
                second = two.iter_lines()
                heard(second)
                refused = client.get(f"{url}/events")
                assert refused.status_code == 503
                assert "too many pages are open" in refused.json()["detail"]
                assert int(refused.headers["retry-after"]) > 0
        end = time.monotonic() + 20
        while True:
            with client.stream("GET", f"{url}/events") as again:
                if again.status_code == 200:
                    break
            assert time.monotonic() < end
            time.sleep(0.05)


def test_a_server_that_stops_does_not_wait_for_its_listeners(store: MetaStore):
    """Their streams would last for a minute."""
    ended = threading.Event()

    def listen(address: str) -> None:
        with httpx.stream("GET", address + EVENTS, trust_env=False, timeout=50) as answer:
            lines = answer.iter_lines()
            heard(lines)
            listening.set()
            for _ in lines:
                pass
        ended.set()

    listening = threading.Event()
    with served(store) as url:
        thread = threading.Thread(target=listen, args=(url,))
        thread.start()
        assert listening.wait(30)
        began = time.monotonic()
    assert ended.wait(30)
    thread.join()
    assert time.monotonic() - began < 40, "the stream was ended, and did not end by itself"


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Its result, from a thread of its own: in this one, a browser may have a loop that runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def collect(events: Events, most: int) -> list[str]:
    """The first lines of one connection."""

    async def listen() -> list[str]:
        found = []
        async for line in events.lines():
            found.append(line)
            if len(found) == most:
                break
        return found

    return run(listen())


def test_a_connection_on_which_nothing_happens_has_heartbeats_and_ends(store: MetaStore):
    lines = collect(Events(store, poll=0.01, heartbeat=0.03), 4)
    assert lines[0].startswith("retry: ")
    assert lines[1].startswith("event: state\ndata: ")
    assert lines[2:] == [":\n\n", ":\n\n"]
    assert len(collect(Events(store, poll=0.01, stream=0.05), 1000)) == 2


def test_a_store_that_cannot_be_reached_ends_the_stream(store: MetaStore):
    class Away(Counting):
        def states(self):
            raise StreamSqlError("META_UNREACHABLE", "gone")

    assert len(collect(Events(Away(store), poll=0.01), 1000)) == 1


def test_all_connections_share_one_read_and_none_is_made_for_none(store: MetaStore):
    counted = Counting(store)
    events = Events(counted, poll=0.1, stream=1.0)

    async def many() -> None:
        async def one() -> None:
            async for _ in events.lines():
                pass

        await asyncio.gather(*(one() for _ in range(50)))

    assert counted.reads == 0
    run(many())
    assert 0 < counted.reads <= 12


@pytest.mark.parametrize("listeners", [60])
def test_listeners_hold_no_threads(store: MetaStore, listeners: int):
    """The pool of the server has forty."""

    async def ask(url: str) -> int:
        limits = httpx.Limits(max_connections=listeners + 5)
        async with httpx.AsyncClient(trust_env=False, limits=limits, timeout=50) as client:
            asked = [client.build_request("GET", url + EVENTS) for _ in range(listeners)]
            opened = await asyncio.gather(*(client.send(each, stream=True) for each in asked))
            assert {each.status_code for each in opened} == {200}
            status = (await client.get(f"{url}/ui/api/status")).status_code
            for each in opened:
                await each.aclose()
            return status

    with served(store) as url:
        assert run(ask(url)) == 200
