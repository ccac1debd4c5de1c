"""Waiting for a barrier: to read what one has written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dbt_streamsql.errors import StreamSqlError

if TYPE_CHECKING:
    from dbt_streamsql.meta.reader import MetaReader

_POLL_SECONDS = 0.1


def wait_for(reader: MetaReader, barrier: int, seconds: float | None) -> int:
    """Wait until that barrier, or a later one, is committed; its number.

    Error: CONSISTENCY_UNAVAILABLE when it is not within `seconds` (None: for ever).
    """
    end = None if seconds is None else time.monotonic() + seconds
    while (last := reader.last_committed()) < barrier:
        if end is not None and time.monotonic() > end:
            raise StreamSqlError(
                "CONSISTENCY_UNAVAILABLE",
                f"barrier {barrier} was not committed in time",
                given=f"barrier {last} after {seconds:g} s",
                hint="see whether a run is at work: `streamsql status`",
            )
        time.sleep(_POLL_SECONDS)
    return last
