"""A FastAPI app with nothing but our router, served by uvicorn in a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from dbt_streamsql import web
from dbt_streamsql.meta import MetaStore


def create_app(
    store: MetaStore,
    verify: web.Verify | None = None,
    clock=time.time,
    stopping=lambda: False,
    ask=None,
) -> FastAPI:
    app = FastAPI(openapi_url=None)
    app.include_router(web.router(store, verify, clock, stopping, ask))
    return app


@contextmanager
def served(store: MetaStore, verify: web.Verify | None = None, ask=None) -> Iterator[str]:
    """The address of the running app."""
    servers: list[uvicorn.Server] = []
    app = create_app(
        store, verify, stopping=lambda: any(each.should_exit for each in servers), ask=ask
    )
    with served_app(app, servers) as address:
        yield address


@contextmanager
def served_app(app: FastAPI, servers: list[uvicorn.Server] | None = None) -> Iterator[str]:
    """The address of any app; its server is added to `servers`."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
    if servers is not None:
        servers.append(server)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
