"""`/ui/api/events`: the pages learn that the store has changed, by server-sent events.

A connection holds no thread: it is a coroutine that looks at what one read of the store found, and
all connections share that read. None is read while no connection is open.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse

from dbt_streamsql.errors import StreamSqlError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from dbt_streamsql.meta import MetaStore

MOST = 64
"""Open connections; browsers need one for each visible page."""
POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
"""Proxies close connections on which nothing is sent for a while."""
STREAM_SECONDS = 60.0
"""A connection ends after this long, and the browser opens the next one: its token is checked
again, and an application that does not say when it stops waits no longer."""
RETRY_MS = 2000


def never() -> bool:
    """The server does not say when it stops."""
    return False


class Events:
    """The connections of one application."""

    def __init__(
        self,
        store: MetaStore,
        stopping: Callable[[], bool] = never,
        *,
        most: int = MOST,
        poll: float = POLL_SECONDS,
        heartbeat: float = HEARTBEAT_SECONDS,
        stream: float = STREAM_SECONDS,
    ) -> None:
        """`stopping`: whether the server is about to stop, which ends all connections. `most`
        connections are open at a time; the other limits are in seconds, see above."""
        self._store = store
        self._stopping = stopping
        self._most = most
        self._poll, self._heartbeat, self._stream = poll, heartbeat, stream
        self._open = 0
        self._reading = asyncio.Lock()
        self._read_at = float("-inf")
        self._seen = ""
        self._event = ""

    def enter(self) -> bool:
        """Whether there is room for one more connection, which then has to `leave`."""
        if self._open >= self._most or self._stopping():
            return False
        self._open += 1
        return True

    def leave(self) -> None:
        self._open -= 1

    async def lines(self) -> AsyncIterator[str]:
        """What one connection sends: the newest state at once and after each change."""
        end = time.monotonic() + self._stream
        beat, sent = time.monotonic(), ""
        yield f"retry: {RETRY_MS}\n\n"
        while not self._stopping() and time.monotonic() < end:
            try:
                event = await self._newest()
            except StreamSqlError:
                # The store cannot be reached: the page asks for itself, and shows why.
                return
            now = time.monotonic()
            if event != sent:
                beat, sent = now, event
                yield f"event: state\ndata: {event}\n\n"
            elif now - beat >= self._heartbeat:
                beat = now
                yield ":\n\n"
            await asyncio.sleep(self._poll)

    async def _newest(self) -> str:
        async with self._reading:
            if time.monotonic() - self._read_at >= self._poll:
                self._event = await run_in_threadpool(self._read)
                self._read_at = time.monotonic()
            return self._event

    def _read(self) -> str:
        state = self._store.states().all
        if state == self._seen and self._event:
            return self._event
        newest = self._store.newest_barriers(1)
        body = {"barrier": newest[0].id, "state": newest[0].state} if newest else {}
        self._seen = state
        # The state of the store makes each change another event, also within a barrier.
        return json.dumps({**body, "change": state})


class Connection(StreamingResponse):
    """The response of one connection, which counts while it is served; 503 when there are too
    many."""

    def __init__(self, events: Events, headers: Mapping[str, str]) -> None:
        super().__init__(events.lines(), headers=headers, media_type="text/event-stream")
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._events.enter():
            problem = {"detail": "too many pages are open, or the service is stopping"}
            await JSONResponse(problem, 503, {"Retry-After": "30"})(scope, receive, send)
            return
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._events.leave()
