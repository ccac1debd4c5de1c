"""A heartbeat thread for as long as this process holds something of a MetaService."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.client.transport import Transport

PER_LIMIT = 3
"""Heartbeats sent within the service's time limit."""

log = logging.getLogger("dbt_streamsql")


@dataclass
class _Beat:
    body: dict[str, object]
    every: float
    due: float = field(default=0.0)


class Heartbeats:
    """The things held, by their heartbeat path. The thread ends with the last one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._beats: dict[str, _Beat] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self, path: str, heard_within: float, **body: object) -> None:
        """Post `body` to `path` from now on, often enough for the service's time limit."""
        every = heard_within / PER_LIMIT
        with self._changed:
            self._beats[path] = _Beat(body, every, time.monotonic() + every)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="streamsql-heartbeat", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def end(self, path: str | None = None) -> None:
        """Stop the heartbeats; `path` is None for all of them."""
        with self._changed:
            for known in list(self._beats) if path is None else [path]:
                self._beats.pop(known, None)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._beats:
                    self._thread = None
                    return
                path, beat = min(self._beats.items(), key=lambda known: known[1].due)
                wait = beat.due - time.monotonic()
                if wait > 0:
                    self._changed.wait(wait)
                    continue
                beat.due = time.monotonic() + beat.every
            self._beat(path, beat)

    def _beat(self, path: str, beat: _Beat) -> None:
        try:
            self._transport.do(path, **beat.body)
        except StreamSqlError as error:
            if error.code == "META_UNREACHABLE":
                # It may recover before the time limit.
                log.debug("sending a heartbeat to MetaService failed: %s", error.given)
                return
            with self._changed:
                if self._beats.get(path) is not beat:
                    return
                del self._beats[path]
            log.warning("MetaService considers this process dead: %s", error.message)
