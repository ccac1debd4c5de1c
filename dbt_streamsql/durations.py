"""Lengths of time as people write them in a config: `90`, `5 minutes`, `1h 30m`, `7 days`."""

from __future__ import annotations

from dbt_streamsql.errors import StreamSqlError


def seconds_of(value: object, key: str) -> float:
    """A number is seconds; a text has units. Error: CONFIG_INVALID.

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
            f"`{key}` is not a length of time",
            given=repr(value),
            allowed="a number of seconds, or a text such as 30 seconds, 5 minutes, 1h 30m, 7 days",
        )
    return found
