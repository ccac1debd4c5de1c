"""What the rows of a view depend on besides its query and its inputs: settings, and Spark itself.

A view that was computed under one of them is not continued under another: the rows that are stored
would be right by the old one, new rows by the new one.
"""

from __future__ import annotations

from collections.abc import Mapping

SETTINGS = (
    "spark.sql.ansi.",
    "spark.sql.caseSensitive",
    "spark.sql.charAsVarchar",
    "spark.sql.decimalOperations.",
    "spark.sql.groupByAliases",
    "spark.sql.groupByOrdinal",
    "spark.sql.legacy.",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.orderByOrdinal",
    "spark.sql.parser.",
    "spark.sql.preserveCharVarcharTypeInfo",
    "spark.sql.readSideCharPadding",
    "spark.sql.session.collation",
    "spark.sql.session.timeZone",
    "spark.sql.storeAssignmentPolicy",
    "spark.sql.timestampType",
    "spark.sql.variable.substitute",
)
"""Settings, or how their names begin, by which the same query gives other rows."""

SPARK = "spark"
"""The key of Spark's version: `4.1` of `4.1.2`, since patches keep what functions mean."""


def meaning(version: str, settings: Mapping[str, str]) -> dict[str, str]:
    """What rows depend on, of the version of Spark and the settings of a session."""
    major, minor, *_ = version.split(".")
    chosen = {name: value for name, value in settings.items() if name.startswith(SETTINGS)}
    return {SPARK: f"{major}.{minor}", **chosen}


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Each part that is another one, in words; '' when rows mean the same."""
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    unset = "the default"
    return ", ".join(
        f"{name} was {before.get(name, unset)} and is now {now.get(name, unset)}" for name in names
    )
