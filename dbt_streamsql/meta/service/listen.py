"""Where the service listens: loopback, or anywhere with TLS; until it is stopped."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import uvicorn
from fastapi import APIRouter
from starlette.types import ASGIApp

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.client import local_tokens
from dbt_streamsql.meta.model import tokens
from dbt_streamsql.meta.model.tokens import Tokens
from dbt_streamsql.meta.service.app import LOOPBACK, create_app
from dbt_streamsql.meta.store.store import SqlMetaStore

KEEP_ALIVE_SECONDS = 75
"""Longer than the client keeps an idle connection, so that none closes during a request."""
_CONNECTIONS = 256
_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - refused without TLS


log = logging.getLogger("dbt_streamsql.meta")


@dataclass(frozen=True)
class Address:
    """`port` 0 is any free one. `names`: the names of the host, in addition to `host` itself."""

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"

    @property
    def is_loopback(self) -> bool:
        return local_tokens.is_loopback(self.host)

    @property
    def hosts(self) -> Collection[str]:
        """The names by which requests may address the service."""
        named = {_bracketed(name) for name in (self.host, *self.names) if name not in _ANYWHERE}
        if self.is_loopback or self.host in _ANYWHERE:
            named.update(LOOPBACK)
        if self.host in _ANYWHERE:
            named.update((socket.gethostname().lower(), socket.getfqdn().lower()))
        return named

    def check(self) -> None:
        """Error: META_SERVICE, when a token would cross a network unencrypted."""
        if (self.certificate is None) != (self.key is None):
            raise _refused("TLS needs both `--tls-cert` and `--tls-key`")
        if self.certificate is None and not self.is_loopback:
            raise _refused(
                "other hosts could reach this address without TLS",
                given=self.host,
                allowed="127.0.0.1, or `--tls-cert` and `--tls-key`",
            )


Pages = Callable[[Tokens, Callable[[], bool]], APIRouter]
"""Makes routes from the tokens, and from whether the server is about to stop."""


def serve(
    store: SqlMetaStore,
    address: Address,
    token_file: Path,
    started: Callable[[str], None],
    pages: Pages | None = None,
    public: Collection[str] = (),
) -> None:
    """Serve until SIGINT or SIGTERM. `started` gets the URL when connections are accepted.

    A missing token file is created. `pages` are additional routes, and `public` their
    paths as in `create_app`. Errors: META_SERVICE.
    """
    address.check()
    tokens.make(token_file)
    known = tokens.load(token_file)
    running: list[uvicorn.Server] = []

    def stopping() -> bool:
        return any(server.should_exit for server in running)

    routers = [pages(known, stopping)] if pages is not None else []
    app = create_app(store, known, hosts=address.hosts, routers=routers, public=public)
    with listening(address) as listener:
        port = listener.getsockname()[1]
        server = server_of(app, address)
        running.append(server)
        if address.is_loopback:
            try:
                local_tokens.publish(port, token_file)
            except OSError as error:
                log.warning(
                    "cannot store the token for local clients, which need `meta_token`: %s", error
                )
        try:
            started(f"{address.scheme}://{_bracketed(address.host)}:{port}")
            server.run(sockets=[listener])
        except KeyboardInterrupt:
            # uvicorn has shut down cleanly and raises the signal once more.
            pass
        finally:
            local_tokens.withdraw(port)


def server_of(
    app: ASGIApp, address: Address, lifespan: Literal["on", "off"] = "on"
) -> uvicorn.Server:
    """The server, not yet running."""
    try:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan=lifespan,
            log_config=None,
            access_log=False,
            server_header=False,
            # Proxy headers would be trusted from any local process.
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=5,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
        )
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise _refused("the certificate or its key cannot be used", given=str(error)) from error
    return uvicorn.Server(config)


def listening(address: Address) -> socket.socket:
    """The socket that accepts connections to the address."""
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listener = socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        raise _refused(
            "cannot listen on the address",
            given=f"{address.host}:{address.port}: {error.strerror or error}",
            hint="if the port is in use, choose a different `--port`",
        ) from error
    # asyncio sets it only on its own sockets; without it a response waits for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def _refused(
    message: str, *, given: str = "", allowed: str = "", hint: str = ""
) -> StreamSqlError:
    return StreamSqlError("META_SERVICE", message, given=given, allowed=allowed, hint=hint)
