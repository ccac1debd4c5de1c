"""What a view's rows depend on in addition to its query and inputs: settings, and Spark itself.

A view that was computed under one of them is not continued under another: the stored rows would be
correct by the old one, new rows by the new one.
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
"""Settings, or prefixes of their names, that change the rows of the same query."""

SPARK = "spark"
"""The key of Spark's version: `4.1` of `4.1.2`, since patches do not change functions."""


def meaning(version: str, settings: Mapping[str, str]) -> dict[str, str]:
    """What rows depend on, from the Spark version and the settings of a session."""
    major, minor, *_ = version.split(".")
    chosen = {name: value for name, value in settings.items() if name.startswith(SETTINGS)}
    return {SPARK: f"{major}.{minor}", **chosen}


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Each part that differs, in words; '' when rows have the same meaning."""
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    unset = "the default"
    return ", ".join(
        f"{name} was {before.get(name, unset)} and is now {now.get(name, unset)}" for name in names
    )
