"""HTTP to a MetaService: tokens, timeouts, and errors as raised on the other side.

A read is retried when the connection fails. A write never is: it may have succeeded.
"""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError
from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_chain,
    wait_fixed,
)

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.client import local_tokens
from dbt_streamsql.meta.client.protocol import API, Problem
from dbt_streamsql.meta.store.sql.database import redact

T = TypeVar("T")

ANSWER_SECONDS = 60.0
"""Longer than a write waits for another write in the store."""
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 5.0
"""How long a connection is kept for the next request; the service keeps it longer."""
AGAIN_SECONDS = (0.1, 0.5)
"""Pauses before a read is retried."""

_again = Retrying(
    retry=retry_if_exception_type(httpx.TransportError),
    wait=wait_chain(*map(wait_fixed, AGAIN_SECONDS)),
    stop=stop_after_attempt(1 + len(AGAIN_SECONDS)),
    reraise=True,
)
_DO = "then run again: committed barriers are safe, and an unfinished barrier is cleaned up"


class Transport:
    """Requests to one service. Thread-safe."""

    def __init__(self, url: str, token: str = "") -> None:
        """`token`: '' takes that of a service on this host. Errors: META_UNREACHABLE."""
        self.url = redact(url)
        parsed, loopback = _checked(url)
        token = token or (local_tokens.find(parsed.port or 80) if loopback else "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            base_url=parsed,
            headers=headers,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
            verify=_verifying(parsed),
            # No proxy gets the token of a service on this host.
            trust_env=not loopback,
        )

    def close(self) -> None:
        self._http.close()

    def get(self, kind: type[T], path: str, **parameters: object) -> T:
        """Send a GET request; `kind` is the type of the response."""
        given = {name: str(value) for name, value in parameters.items() if value is not None}
        try:
            return self._answer(kind, _again(self._http.get, API + path, params=given))
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def find(self, kind: type[T], path: str, **parameters: object) -> T | None:
        """Like `get`; None when the object does not exist."""
        try:
            return self.get(kind, path, **parameters)
        except StreamSqlError as error:
            if error.code == "META_MISSING":
                return None
            raise

    def do(self, path: str, **body: object) -> None:
        """Run one step; it is never retried."""
        self.post(NoneType, path, **body)

    def post(self, kind: type[T], path: str, **body: object) -> T:
        """Run one step that has a response; it is never retried."""
        content = json.dumps(body, default=_plain, allow_nan=False).encode()
        headers = {"Content-Type": "application/json"}
        try:
            answer = self._http.post(API + path, content=content, headers=headers)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        return self._answer(kind, answer)

    def delete(self, path: str) -> None:
        try:
            self._answer(NoneType, self._http.delete(API + path))
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _answer(self, kind: type[T], answer: httpx.Response) -> T:
        try:
            if not answer.is_success:
                raise Problem.model_validate_json(answer.content).error()
            known: Any = kind
            found: T = _adapter(known).validate_json(answer.content)
        except ValidationError as error:
            raise StreamSqlError(
                "META_UNREACHABLE",
                "the server is not a MetaService of this version",
                given=f"{self.url}: status {answer.status_code}",
                hint="check the port in `meta`, and that the service runs this version",
            ) from error
        return found

    def _unreachable(self, error: httpx.TransportError) -> StreamSqlError:
        sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
        maybe = "the last step may or may not have been applied; " if sent else ""
        return StreamSqlError(
            "META_UNREACHABLE",
            "MetaService does not answer",
            given=f"{self.url}: {type(error).__name__}: {error}",
            hint=f"{maybe}check that `streamsql meta serve` is running and that `meta` in the "
            f"profile names its host and port; {_DO}",
        )


def _verifying(url: httpx.URL) -> ssl.SSLContext:
    if url.scheme == "http":
        # Connections use no TLS, and loading the authorities takes longer than a dozen requests.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # SSL_CERT_FILE replaces the default authorities.
    return httpx.create_ssl_context()


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _checked(url: str) -> tuple[httpx.URL, bool]:
    """The URL, and whether it points to this host."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        parsed = None
    if parsed is None or not parsed.host or parsed.userinfo or parsed.path not in ("", "/"):
        raise _unusable(url, "not the address of a MetaService", "`http://127.0.0.1:<port>`")
    loopback = local_tokens.is_loopback(parsed.host)
    if parsed.scheme == "http" and not loopback:
        raise _unusable(url, "the token would cross the network unencrypted", "`https://…`")
    return parsed, loopback


def _unusable(url: str, message: str, allowed: str) -> StreamSqlError:
    return StreamSqlError(
        "META_UNREACHABLE",
        message,
        given=redact(url),
        allowed=allowed,
        hint="correct `meta` in the profile, and put a token in `meta_token`",
    )


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value):
        # Not all that is in its dict: a job keeps what was read from it there.
        return {each.name: getattr(value, each.name) for each in fields(value)}
    raise TypeError(f"{type(value).__name__} is not JSON")
