"""The checks on every request: the host it names, its token, its size, and that it is JSON."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.client.protocol import API, Problem
from dbt_streamsql.meta.service.access.state import Service

BODY_BYTES = 16 << 20
"""A definition with its plan has about ten thousand, a barrier of 10,000 tables four million."""
PUBLIC = ("/openapi.json", f"{API}/health")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

log = logging.getLogger("dbt_streamsql.meta")


class Refused(Exception):
    """A response from the gate, with its status."""

    def __init__(self, status: int, error: StreamSqlError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


class Gate:
    """An ASGI application around another one. Requests that pass have `state["identity"]`.

    Like the routes, it uses the service of the application, `app.state.service`.
    """

    def __init__(self, app: App, hosts: Collection[str], public: Collection[str] = ()) -> None:
        """`hosts`: the names that clients know this service by; without port, IPv6 in brackets.

        `public`: paths that need no token, and prefixes of paths when they end in `/`.
        """
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._public = (*PUBLIC, *public)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        assert scope["type"] == "http", "the server speaks nothing else"
        began = time.monotonic()
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = list(message.get("headers", ()))
                names = {name for name, _ in given}
                missing = [(name, value) for name, value in _HEADERS if name not in names]
                message["headers"] = [*given, *missing]
            await send(message)

        who = "-"
        try:
            who = self._admit(scope)
            await self._app(scope, await _replayed(scope, receive), answer)
        except Refused as refused:
            await _refuse(answer, refused)
        except Exception:
            log.exception("a request failed")
            if status:
                raise
            await _refuse(answer, Refused(500, _broken()))
        finally:
            # Neither headers nor parameters: the path alone identifies the request.
            took = 1000 * (time.monotonic() - began)
            path = scope["path"].encode("unicode_escape").decode()
            log.info("%s %s %s %s %.0f ms", who, scope["method"], path, status, took)

    def _admit(self, scope: Message) -> str:
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        self._check_host(headers)
        path: str = scope["path"]
        scope.setdefault("state", {})["identity"] = None
        if any(
            path == open_ or (open_[-1] == "/" and path.startswith(open_))
            for open_ in self._public
        ):
            return "-"
        scheme, _, token = headers.get("authorization", "").partition(" ")
        service: Service = scope["app"].state.service
        identity = service.tokens.find(token.strip()) if scheme.lower() == "bearer" else None
        if identity is None:
            raise Refused(
                401,
                StreamSqlError(
                    "META_DENIED",
                    "MetaService does not know the token",
                    given="an unknown token" if token else "no token",
                    allowed="Authorization: Bearer <token>",
                    hint="set `meta_token` in the profile; on the host of the service the token "
                    "is found automatically if its file holds only one",
                ),
            )
        scope["state"]["identity"] = identity
        return identity.name

    def _check_host(self, headers: dict[str, str]) -> None:
        """A browser page may use its own host name that resolves here: that is not our name."""
        host = _without_port(headers.get("host", ""))
        origin = headers.get("origin")
        named = [host] if origin is None else [host, _origin_host(origin)]
        for name in named:
            if name not in self._hosts:
                raise Refused(
                    421,
                    StreamSqlError(
                        "META_DENIED",
                        "MetaService does not accept this host name",
                        given=name[:100],
                        allowed=", ".join(sorted(self._hosts)),
                        hint="`streamsql meta serve --name …` adds a name",
                    ),
                )


_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


def _origin_host(origin: str) -> str:
    try:
        return _without_port(urlsplit(origin).netloc)
    except ValueError:
        return origin


async def _replayed(scope: Message, receive: Receive) -> Receive:
    """The whole body, empty or JSON and within the size limit, as the application reads it."""
    headers = dict(scope["headers"])
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit() or int(declared) > BODY_BYTES:
        raise _too_long()
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
        if size > BODY_BYTES:
            raise _too_long()
    body = b"".join(chunks)
    if body:
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind != b"application/json":
            raise Refused(415, _malformed("the body is not declared as JSON", "application/json"))
        try:
            # Stricter than Python: no NaN, no lone surrogates, no unlimited nesting.
            from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise Refused(400, _malformed("the body is not JSON", "JSON", str(error))) from None
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _malformed(message: str, allowed: str, given: str = "") -> StreamSqlError:
    return StreamSqlError("META_REQUEST", message, given=given, allowed=allowed)


def _broken() -> StreamSqlError:
    return StreamSqlError(
        "INTERNAL",
        "MetaService failed to handle the request",
        hint="see the log of the service, and please report this error",
    )


def _too_long() -> Refused:
    return Refused(413, _malformed("the body is too long", f"{BODY_BYTES} bytes"))


async def _refuse(send: Send, refused: Refused) -> None:
    body = json.dumps(Problem.of(refused.error).model_dump()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
