"""Whether a profile's embedded Spark already runs, as a warm engine."""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings, catalog_file
from dbt_streamsql.storage.iceberg import sqlite_catalog
from dbt_streamsql.warm import process
from dbt_streamsql.warm.record import (
    Place,
    Record,
    catalog_identity,
    fingerprint,
    versions,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SWITCH = "STREAMSQL_SERVER"
ANSWER_SECONDS = 3.0

_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""An HTTP/2 client's first message: the preface and empty settings. A server sends its own."""
log = logging.getLogger("dbt_streamsql")


def open_warm(settings: SessionSettings) -> SparkSession | None:
    """A session on the warm engine that stands in for `settings`; None when there is none.

    If one is up and does not fit, a log line says what to do.
    """
    served = warm(settings)
    if served is None:
        return None
    session = open_session(served)
    file = catalog_file(settings)
    if file is not None:
        sqlite_catalog.declare(session, settings.catalog, file)
    return session


def warm(settings: SessionSettings) -> SessionSettings | None:
    """How to reach the warm engine that stands in for `settings`; None when there is none."""
    if not wanted() or settings.method != "embedded":
        return None
    record = Place(settings).read()
    if record is None:
        return None
    problem = unfit(record, settings)
    if problem:
        log.warning("not using the warm engine: %s", problem)
        return None
    log.debug("using the warm engine on port %s", record.port)
    # The engine was started with all settings of the profile: none needs to be set again.
    zone = settings.spark_properties.get("spark.sql.session.timeZone", "UTC")
    return SessionSettings(
        method="connect",
        host="localhost",
        port=record.port,
        token=record.token,
        user=process.own(),
        catalog=settings.catalog,
        spark_properties={"spark.sql.session.timeZone": zone},
    )


def wanted() -> bool:
    """Whether a warm engine may be used here. Error: CONFIG_INVALID for an unknown word."""
    switch = os.environ.get(SWITCH, "").lower()
    if switch not in ("", "on", "off"):
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"invalid value of {SWITCH}",
            given=repr(switch),
            allowed="on, off",
            hint="unset it, or set it to off to run without a warm engine",
        )
    return switch != "off"


def unfit(record: Record, settings: SessionSettings) -> str:
    """Why the engine cannot stand in for `settings`, and what to do; '' when it can."""
    again = "`streamsql spark stop`, then `streamsql spark start`"
    if not record.alive:
        return "it is not running any more; `streamsql spark start` starts a new one"
    if record.versions != versions():
        return f"it runs different versions ({record.versions}); {again}"
    if record.fingerprint != fingerprint(settings):
        return f"it was started with different settings than this profile has; {again}"
    if record.catalog != catalog_identity(settings):
        return f"its catalog was removed since it started; {again}"
    if not _answers(record.port):
        return f"it does not answer on port {record.port}; {again}"
    return ""


def _answers(port: int) -> bool:
    """A process that is stopped or out of memory still has an open port, but sends nothing."""
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as connection:
            connection.sendall(_GREETING)
            return bool(connection.recv(9))
    except OSError:
        return False
