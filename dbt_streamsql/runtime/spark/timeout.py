"""Limit how long work in a Spark session may take."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dbt_streamsql.errors import StreamSqlError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AGAIN_SECONDS = 0.5
log = logging.getLogger("dbt_streamsql")


@contextmanager
def limited(spark: SparkSession, seconds: float | None) -> Iterator[None]:
    """Stop what the session runs when the block takes longer than `seconds` (None: never).

    Error: QUERY_TIMEOUT. A block that completes in spite of it has not failed.
    """
    if seconds is None:
        yield
        return
    ended, late = threading.Event(), threading.Event()

    def stop() -> None:
        wait = seconds
        while not ended.wait(wait):
            late.set()
            # Repeatedly: the block may be between two statements, or send one more.
            wait = _AGAIN_SECONDS
            try:
                spark.interruptAll()
            except Exception as error:  # noqa: BLE001 - the block gets the error itself
                log.debug("a statement could not be stopped: %s", error)

    watch = threading.Thread(target=stop, name="streamsql-limit", daemon=True)
    watch.start()
    try:
        yield
    except Exception as error:
        if not late.is_set():
            raise
        raise StreamSqlError(
            "QUERY_TIMEOUT",
            "the query took too long and was stopped; the table is unchanged",
            given=f"more than {seconds:g} seconds",
            allowed="`query_timeout` of the profile",
            hint="make the query cheaper, or allow it more time",
        ) from error
    finally:
        ended.set()
        # Otherwise it could stop what the session does next.
        watch.join()
