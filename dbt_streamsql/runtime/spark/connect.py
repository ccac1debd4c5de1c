"""Sessions over Spark Connect: open one, open more on its client, interrupt them, release them.

The server outlives this process, and so do its sessions and whatever runs in them: sessions are
released at the end of the process, and Ctrl-C stops the statements of all of them.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import urllib.parse
import warnings
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark import versions
from dbt_streamsql.storage.conf import to_carry
from dbt_streamsql.storage.iceberg import sqlite_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_streamsql.runtime.spark.settings import SessionSettings

PORT = 15002
LOOPBACK = ("127.0.0.1", "::1", "[::1]", "localhost")

_KEEP_ALIVE = {
    "grpc.keepalive_time_ms": 330_000,  # a server allows one ping every five minutes
    "grpc.keepalive_timeout_ms": 120_000,
    "grpc.http2.max_pings_without_data": 0,
}
"""While a statement runs, the client pings the server: a host that is gone, or a process that is
stopped, sends nothing and closes nothing. Its calls fail and are retried."""

_open: weakref.WeakSet[Any] = weakref.WeakSet()
_lock = threading.Lock()
log = logging.getLogger("dbt_streamsql")


def open_remote(settings: SessionSettings, wanted: Mapping[str, str]) -> SparkSession:
    """A session on the server of `settings` with the Spark settings `wanted`.

    Errors: CONNECTION (nothing answers, or the token is wrong), CONFIG_INVALID (the server refuses
    a setting).
    """
    # PySpark's own message in addition to the error that is raised anyway.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    session: Any = None
    try:
        session = _created(settings)
        _enter(session, retries=3)
        _ = session.version
    except Exception as error:
        if session is not None:
            _leave(session)
        raise StreamSqlError(
            "CONNECTION",
            f"no Spark Connect server answers at {settings.host}:{settings.port or PORT}",
            given=_told(error, settings.token),
            hint="check `host`, `port`, `token`, and that the server is running",
        ) from error
    try:
        versions.check(session)
    except StreamSqlError:
        release(session)
        raise
    _be_patient(session, retries=3 if settings.host in LOOPBACK else 8)
    try:
        _set_all(session, wanted)
    except Exception as error:
        release(session)
        raise StreamSqlError(
            "CONFIG_INVALID",
            "the Spark Connect server refused a setting",
            given=_told(error, settings.token),
            allowed="session settings; all others belong to the server",
            hint="correct `spark_properties` or `catalog_properties` in the profile",
        ) from error
    return session  # type: ignore[no-any-return] # PySpark types it as the classic one


def _created(settings: SessionSettings) -> Any:
    """A new session: `getOrCreate` would return one of another owner."""
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession

    from dbt_streamsql.runtime.spark.deadlines import Deadlines

    # As PySpark's own `remote(…)` does: code that creates columns checks it.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    builder = DefaultChannelBuilder(url(settings), list(_KEEP_ALIVE.items()))
    builder.add_interceptor(Deadlines())
    return SparkSession.builder.channelBuilder(builder).create()


def beside(spark: SparkSession) -> SparkSession:
    """Another session of the same client, with the same settings, except those of single jobs."""
    first: Any = spark
    # The channel keeps the address and the token; a client has no getter for them.
    other: Any = type(spark)(first.client._builder)  # noqa: SLF001
    _enter(other)
    sqlite_catalog.inherit(spark, other)
    other.client.set_retry_policies(first.client.get_retry_policies())
    _set_all(other, to_carry(spark, other))
    return other  # type: ignore[no-any-return] # as above


def interrupt_all() -> None:
    """Stop what this process runs on any server."""
    for session in _sessions():
        try:
            session.interruptAll()
        except Exception as error:  # noqa: BLE001 - the others are to be stopped too
            log.debug("a session could not be interrupted: %s", error)


def release(session: Any) -> None:
    """Release the session on its server, which drops its views and stops its statements."""
    _leave(session)
    try:
        session.client.set_retry_policies([])
        session.client.release_session()
    except Exception as error:  # noqa: BLE001 - a server that is gone has no sessions
        log.debug("a session could not be released: %s", error)
    session.client.close()


@atexit.register
def release_all() -> None:
    """Release all sessions of this process."""
    for session in _sessions():
        release(session)


def url(settings: SessionSettings) -> str:
    """`sc://host:port/;token=…`, with the host spelled so that a local token needs no TLS."""
    host = settings.host
    if settings.token and host in LOOPBACK:
        host = "localhost"
    found = f"sc://{host}:{settings.port or PORT}"
    parts = {"token": settings.token, "user_id": settings.user}
    given = [f";{key}={urllib.parse.quote(text, safe='')}" for key, text in parts.items() if text]
    return f"{found}/{''.join(given)}" if given else found


def _enter(session: Any, retries: int | None = None) -> None:
    if retries is not None:
        _be_patient(session, retries)
    # At exit, each client asks its server to forget machine learning models: a query each, and
    # minutes of waiting for a server that is gone. The session's end frees them as well.
    client = session.client
    name = "_cleanup_ml_cache" if hasattr(client, "_cleanup_ml_cache") else "_cleanup_ml"  # 4.0
    atexit.unregister(getattr(client, name))
    with _lock:
        _open.add(session)


def _leave(session: Any) -> None:
    with _lock:
        _open.discard(session)


def _sessions() -> list[Any]:
    with _lock:
        return list(_open)


def _be_patient(session: Any, retries: int) -> None:
    """Set the retries for a server that cannot be reached: 3 take a second, 8 half a minute.

    PySpark retries for ten minutes, for every statement.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=retries, max_backoff=5000)])


def _set_all(session: Any, wanted: Mapping[str, str]) -> None:
    if wanted:
        # One round trip; the public `set` takes one for each.
        session.conf._set_all(dict(wanted), silent=False)  # noqa: SLF001


def _told(error: Exception, secret: str) -> str:
    text = str(error)
    return text.replace(secret, "…") if secret else text
