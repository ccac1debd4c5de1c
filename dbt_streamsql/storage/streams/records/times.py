"""Texts and numbers as dates and times, by the patterns that a source declares."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dbt_streamsql.errors import Place, StreamSqlError

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

EPOCHS = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1, "epoch_ns": 1}
"""Microseconds in each, of `epoch_ns` a part of one."""
DAYS = "epoch_days"
_DATE = r"^\s*[+-]?\d{4,7}-\d{1,2}(?:-\d{1,2})?"
_UTC = r"(?:\s*(?:Z|UTC|GMT|[+-]00:?00))?"
_MIDNIGHT = r"(?:0{1,2}:0{1,2}(?::0{1,2}(?:\.0*)?)?)?\s*(?:Z|UTC|[+-][\d:]+)?"
_DAY = rf"{_DATE}(?:[T ]\s*{_MIDNIGHT})?\s*$"
"""A date, maybe with a time of day, which is midnight. Spark leaves all that follows the date."""
_WALL = rf"{_DATE}(?:[T ][\d:.]*)?{_UTC}\s*$"
"""A date and a time of no zone, or of UTC. Spark leaves the zone."""
_ZONED = re.compile("[VzOXxZ]")
_QUOTED = re.compile("'[^']*'")


def timestamp(text: Column, pattern: str | None) -> Column:
    """NULL for what is none. Where times are counted, one may be written as SQL has it too."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    # Spark takes `10:00` for a time of today, whatever day that is.
    written = F.when(text.rlike(_DATE), text.try_cast("timestamp"))
    if pattern in EPOCHS:
        return F.coalesce(F.timestamp_micros(micros(text, pattern)), written)
    return _parsed(text, pattern) if pattern else written


def timestamp_ntz(text: Column, pattern: str | None) -> Column:
    """NULL for what is none. Counted since 1970, it is the time in UTC."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    written = F.when(text.rlike(_WALL), text.try_cast("timestamp_ntz"))
    if pattern in EPOCHS:
        return F.coalesce(ntz_of(micros(text, pattern)), written)
    if pattern and _ZONED.search(_QUOTED.sub("", pattern)):
        return _parsed(text, pattern).cast("timestamp_ntz")
    if pattern:
        # Read as a time of UTC: every other zone has hours that there are not.
        in_utc = _parsed(F.concat(text, F.lit(" UTC")), f"{pattern} VV")
        return ntz_of(F.unix_micros(in_utc))
    return written


def date(text: Column, pattern: str | None) -> Column:
    """NULL for what is none, and for a time of day that is not midnight."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    written = F.when(text.rlike(_DAY), text.try_cast("date"))
    if pattern == DAYS:
        return F.coalesce(F.date_from_unix_date(text.try_cast("int")), written)
    return _parsed(text, pattern).cast("date") if pattern else written


def ntz_of(micros: Column) -> Column:
    """The time in UTC, so many microseconds after the beginning of 1970."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    start = F.lit("1970-01-01T00:00:00").cast("timestamp_ntz")
    return F.timestamp_add("MICROSECOND", micros, start)


def micros(count: Column, unit: str) -> Column:
    """Microseconds in a number of `EPOCHS`, as a text; NULL for what is none."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    number = count.try_cast("bigint")
    if unit == "epoch_ns":
        return F.floor(number.cast("decimal(20,0)") / F.lit(1000)).cast("bigint")
    return F.try_multiply(number, F.lit(EPOCHS[unit]).cast("bigint"))


def check(spark: SparkSession, key: str, pattern: str | None, place: Place) -> None:
    """Error: CONFIG_INVALID for a pattern that Spark does not take."""
    if not pattern or pattern in EPOCHS or pattern == DAYS:
        return
    from pyspark.errors import PySparkException

    try:
        _accepted(spark, pattern)
    except PySparkException as error:
        names = DAYS if key == "date_format" else ", ".join(EPOCHS)
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"`{key}` is no pattern of a date or a time",
            given=pattern,
            allowed=f"{names}, or a pattern of Spark, such as dd/MM/yyyy HH:mm:ss",
            hint="https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html lists its "
            "letters: years are `yyyy`, days of the month `dd`",
            place=place,
        ) from error


def _parsed(text: Column, pattern: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    # A year that is too great is an error of `try_to_timestamp`; not of `try_add` around it.
    nothing = F.expr("INTERVAL '0' SECOND")
    return F.try_add(F.try_to_timestamp(text, F.lit(pattern)), nothing)


_known: set[str] = set()


def _accepted(spark: SparkSession, pattern: str) -> None:
    if pattern not in _known:
        spark.sql("SELECT try_to_timestamp('x', :pattern)", args={"pattern": pattern}).collect()
        _known.add(pattern)
