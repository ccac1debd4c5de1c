"""Durations as written in a config: `90`, `5 minutes`, `1h 30m`, `7 days`."""

from __future__ import annotations

from typing import Any

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.store.retention import DAY, Retention


def seconds_of(value: object, key: str) -> float:
    """A number is in seconds; a text has units. Error: CONFIG_INVALID.

    >>> seconds_of("5 minutes", "max_staleness")
    300.0
    """
    import pandas as pd

    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise TypeError
        plain = not isinstance(value, str) or value.strip().replace(".", "", 1).isdigit()
        found = float(value) if plain else pd.Timedelta(value).total_seconds()
    except (TypeError, ValueError):
        found = -1.0
    if not 0 <= found < float("inf"):
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"`{key}` is not a duration",
            given=repr(value),
            allowed="a number of seconds, or text such as 30 seconds, 5 minutes, 1h 30m, 7 days",
        )
    return found


def event_times(
    event_time: str, lateness: object, late_data: str, idle_after: object
) -> dict[str, Any]:
    """The event-time options of a streaming table, durations in seconds. Error: CONFIG_INVALID.

    >>> event_times("ts", "10 seconds", "include_next", "never")["lateness"]
    10.0
    """
    found: dict[str, Any] = {"event_time": event_time, "late_data": late_data}
    if lateness is not None:
        found["lateness"] = seconds_of(lateness, "lateness")
    if idle_after is not None:
        never = idle_after == "never"
        found["idle_after"] = None if never else seconds_of(idle_after, "idle_after")
    return found


def retention_of(retain: object, barriers: object) -> Retention:
    """The retention from the options of a profile. Error: CONFIG_INVALID.

    >>> retention_of("7 days", 300)
    Retention(seconds=604800.0, barriers=300)
    """
    if type(barriers) is not int or barriers < 1:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "`retain_barriers` is not a number of barriers",
            given=repr(barriers),
            allowed="a whole number, at least 1",
        )
    return Retention(seconds_of(retain, "retain"), barriers)


def orphan_age(value: object) -> float | None:
    """The age in seconds from which an unreferenced file may be removed. Error: CONFIG_INVALID."""
    if value is None:
        return None
    found = seconds_of(value, "orphans_older_than")
    if found < DAY:
        raise StreamSqlError(
            "CONFIG_INVALID",
            "`orphans_older_than` is too short",
            given=repr(value),
            allowed="1 day or more: a newer file may belong to a write in progress",
        )
    return found
