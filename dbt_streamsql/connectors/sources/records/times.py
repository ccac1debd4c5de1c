"""Text and numbers as dates and times, by the patterns that a source declares.

Inputs and outputs are SQL expressions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dbt_streamsql.connectors.sources.records.sql import concat, when
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCHS = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1, "epoch_ns": 1}
"""Microseconds in each; for `epoch_ns`, a fraction of one."""
DAYS = "epoch_days"
_DATE = r"^\s*[+-]?\d{4,7}-\d{1,2}(?:-\d{1,2})?"
_UTC = r"(?:\s*(?:Z|UTC|GMT|[+-]00:?00))?"
_MIDNIGHT = r"(?:0{1,2}:0{1,2}(?::0{1,2}(?:\.0*)?)?)?\s*(?:Z|UTC|[+-][\d:]+)?"
_DAY = rf"{_DATE}(?:[T ]\s*{_MIDNIGHT})?\s*$"
"""A date, maybe with a time of day of midnight. Spark ignores all that follows the date."""
_WALL = rf"{_DATE}(?:[T ][\d:.]*)?{_UTC}\s*$"
"""A date and a time without a zone, or in UTC. Spark ignores the zone."""
_ZONED = re.compile("[VzOXxZ]")
_QUOTED = re.compile("'[^']*'")


def timestamp(text: str, pattern: str | None) -> str:
    """NULL for invalid text. Where times are counted, the SQL form is also accepted."""
    # Spark would read `10:00` as a time of today.
    written = when(f"{text} RLIKE {literal(_DATE)}", f"try_cast({text} AS TIMESTAMP)")
    if pattern in EPOCHS:
        return f"coalesce(timestamp_micros({micros(text, pattern)}), {written})"
    return _parsed(text, pattern) if pattern else written


def timestamp_ntz(text: str, pattern: str | None) -> str:
    """NULL for invalid text. Counted since 1970, it is the time in UTC."""
    written = when(f"{text} RLIKE {literal(_WALL)}", f"try_cast({text} AS TIMESTAMP_NTZ)")
    if pattern in EPOCHS:
        return f"coalesce({_ntz_of(micros(text, pattern))}, {written})"
    if pattern and _ZONED.search(_QUOTED.sub("", pattern)):
        return f"CAST({_parsed(text, pattern)} AS TIMESTAMP_NTZ)"
    if pattern:
        # Read as UTC: every other time zone has hours that do not exist.
        in_utc = _parsed(concat(text, "' UTC'"), f"{pattern} VV")
        return _ntz_of(f"unix_micros({in_utc})")
    return written


def date(text: str, pattern: str | None) -> str:
    """NULL for invalid text, and for a time of day other than midnight."""
    written = when(f"{text} RLIKE {literal(_DAY)}", f"try_cast({text} AS DATE)")
    if pattern == DAYS:
        return f"coalesce(date_from_unix_date(try_cast({text} AS INT)), {written})"
    return f"CAST({_parsed(text, pattern)} AS DATE)" if pattern else written


def micros(count: str, unit: str) -> str:
    """Microseconds in a text that counts a unit of `EPOCHS`; NULL for invalid text."""
    number = f"try_cast({count} AS BIGINT)"
    if unit == "epoch_ns":
        return f"CAST(floor(CAST({number} AS DECIMAL(20,0)) / 1000) AS BIGINT)"
    return f"try_multiply({number}, {EPOCHS[unit]}L)"


def _ntz_of(micros: str) -> str:
    """The UTC time this many microseconds after the start of 1970."""
    return f"timestampadd(MICROSECOND, {micros}, TIMESTAMP_NTZ'1970-01-01')"


def check(spark: SparkSession, key: str, pattern: str | None, place: Place) -> None:
    """Error: CONFIG_INVALID for a pattern that Spark does not accept."""
    if not pattern or pattern in EPOCHS or pattern == DAYS:
        return
    from pyspark.errors import PySparkException

    try:
        _accepted(spark, pattern)
    except PySparkException as error:
        names = DAYS if key == "date_format" else ", ".join(EPOCHS)
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"`{key}` is not a date or time pattern",
            given=pattern,
            allowed=f"{names}, or a Spark pattern such as dd/MM/yyyy HH:mm:ss",
            hint="https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html lists its "
            "letters: years are `yyyy`, days of the month `dd`",
            place=place,
        ) from error


def _parsed(text: str, pattern: str) -> str:
    # A year that is too large is an error of `try_to_timestamp`, not of `try_add` around it.
    return f"try_add(try_to_timestamp({text}, {literal(pattern)}), INTERVAL '0' SECOND)"


_known: set[str] = set()


def _accepted(spark: SparkSession, pattern: str) -> None:
    if pattern not in _known:
        spark.sql("SELECT try_to_timestamp('x', :pattern)", args={"pattern": pattern}).collect()
        _known.add(pattern)
