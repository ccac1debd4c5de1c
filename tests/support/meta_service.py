"""A MetaService for tests: uvicorn in a thread over one store at a time, or the command itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from dbt_streamsql.meta import MetaStore, open_store
from dbt_streamsql.meta.client import local_tokens
from dbt_streamsql.meta.model import tokens
from dbt_streamsql.meta.service.access.state import Service
from dbt_streamsql.meta.service.app import create_app
from dbt_streamsql.meta.service.listen import Address, listening, server_of
from tests.support import patience


class Server:
    """The service of whatever store is served at the moment."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder
        self.token_file = folder / "token"
        tokens.make(self.token_file)
        self.token = tokens.single(self.token_file)
        self.clock: Callable[[], float] = time.time
        self.url = ""
        self._silent = 0.0
        self._app: FastAPI | None = None
        self._options: dict[str, Any] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert self._app is not None
        await self._app(scope, receive, send)

    @property
    def service(self) -> Service:
        assert self._app is not None
        service: Service = self._app.state.service
        return service

    def fall_silent(self, seconds: float) -> None:
        """For the service, nobody was heard of for so long; nobody has to wait."""
        self._silent += seconds

    def _now(self) -> float:
        return self.clock()

    def _silence(self) -> float:
        return time.monotonic() + self._silent

    @contextmanager
    def serving(
        self, url: str, known: tokens.Tokens | None = None, **options: Any
    ) -> Iterator[MetaStore]:
        """Serve a store, which is given; by default to the one token of the token file.

        `options`: what the application has besides, as in `create_app`.
        """
        self.clock = time.time
        store = open_store(url, clock=self._now)
        known = known or tokens.load(self.token_file)
        if self._app is None or options != self._options:
            self._app, self._options = create_app(store, known, **options), options
        # Routes are built at an application's first requests, which takes longer than a test.
        self._app.state.service = Service(store, known, clock=self._silence)
        self.service.start()
        try:
            yield store
        finally:
            self.service.close()
            store.close()


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server that is up; it finds its clients by the cache folder `folder`."""
    server, address = Server(folder), Address()
    with listening(address) as listener:
        port = listener.getsockname()[1]
        server.url = f"http://127.0.0.1:{port}"
        uvicorn = server_of(server, address, lifespan="off")
        thread = threading.Thread(target=uvicorn.run, args=([listener],), daemon=True)
        thread.start()
        before = os.environ.get("STREAMSQL_CACHE")
        os.environ["STREAMSQL_CACHE"] = str(folder)
        try:
            local_tokens.publish(port, server.token_file)
        finally:
            os.environ.pop("STREAMSQL_CACHE")
            if before is not None:
                os.environ["STREAMSQL_CACHE"] = before
        try:
            yield server
        finally:
            uvicorn.should_exit = True
            patience.join(thread)


def command(folder: Path, *options: str, code: str = "") -> subprocess.Popen[str]:
    """`streamsql meta serve` in a process, with `folder / "cache"` as the cache of its user."""
    start = ["-c", code] if code else ["-m", "dbt_streamsql.cli", "meta", "serve", *options]
    return subprocess.Popen(
        [sys.executable, *start],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("STREAMSQL")},
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONUNBUFFERED": "1",
            "STREAMSQL_CACHE": str(folder / "cache"),
        },
        # Whoever starts the tests in the background has switched Ctrl-C off for its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def url_of(process: subprocess.Popen[str]) -> str:
    """Where it says that it listens."""
    said = patience.line(process, lambda line: line.strip().startswith("meta: "))
    return said.split("meta: ")[1].strip()
