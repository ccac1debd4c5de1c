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


def create_app(store: MetaStore, verify: web.Verify | None = None, clock=time.time) -> FastAPI:
    app = FastAPI(openapi_url=None)
    app.include_router(web.router(store, verify, clock))
    return app


@contextmanager
def served(store: MetaStore, verify: web.Verify | None = None) -> Iterator[str]:
    """The address of the running app."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(store, verify), log_level="warning", ws="none")
    server = uvicorn.Server(config)
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
