"""Waiting for a barrier: to read one's own writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.inspect.consistent_cut import behind

if TYPE_CHECKING:
    from dbt_streamsql.meta.store.api import MetaReader

_POLL_SECONDS = 0.1
_ASK_SECONDS = 1.0
"""The interval between queries that tables and streams must answer."""


def wait_for(reader: MetaReader, barrier: int, seconds: float | None) -> int:
    """Wait until that barrier, or a later one, is committed; returns its number.

    Error: CONSISTENCY_UNAVAILABLE when it is not within `seconds` (None: forever).
    """
    last = 0

    def reached() -> str:
        nonlocal last
        last = reader.last_committed()
        return "" if last >= barrier else f"barrier {last}"

    _wait(reached, f"barrier {barrier} was not committed in time", seconds, _POLL_SECONDS)
    return last


def wait_for_table(reader: MetaReader, table: str, barrier: int, seconds: float | None) -> int:
    """Wait until the table holds all that its roots held at that barrier, or a later one.

    A table that a run has left behind, because of an error or selection, does not.
    Errors: DEFINITION_MISSING, CONSISTENCY_UNAVAILABLE.
    """
    if table not in reader.jobs():
        raise StreamSqlError("DEFINITION_MISSING", f"{table} is not a maintained table")
    last = 0

    def reached() -> str:
        nonlocal last
        last = reader.last_committed()
        if last < barrier:
            return f"barrier {last}"
        left = behind(reader, table, last)
        return "" if not left else f"not up to date at barrier {last}"

    _wait(reached, f"{table} did not reach barrier {barrier} in time", seconds, _POLL_SECONDS)
    return last


def wait_for_lag(
    lag: Callable[[], float], table: str, at_most: float, seconds: float | None
) -> float:
    """Wait until a table's lag (seconds) is no longer than that; returns the lag.

    Error: CONSISTENCY_UNAVAILABLE.
    """
    now = 0.0

    def reached() -> str:
        nonlocal now
        now = lag()
        return "" if now <= at_most else f"a lag of {now:.1f} s"

    told = f"the lag of {table} did not fall to {at_most:g} s in time"
    _wait(reached, told, seconds, _ASK_SECONDS)
    return now


def _wait(missing: Callable[[], str], message: str, seconds: float | None, pause: float) -> None:
    """Wait until nothing is missing."""
    end = None if seconds is None else time.monotonic() + seconds
    while left := missing():
        if end is not None and time.monotonic() > end:
            raise StreamSqlError(
                "CONSISTENCY_UNAVAILABLE",
                message,
                given=f"{left} after {seconds:g} s",
                hint="check whether a run is in progress: `streamsql status`",
            )
        time.sleep(pause)
