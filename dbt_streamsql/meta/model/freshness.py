"""How old the newest change of a table may be: an objective that its model sets, in dbt's terms.

It is kept in the table's own properties, where a lost store finds it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_WARN, _ERROR = "streamsql.freshness.warn-after", "streamsql.freshness.error-after"

Staleness = Literal["", "warn", "error"]
"""Which limit a table exceeds; '': none."""


@dataclass(frozen=True)
class Freshness:
    """Limits of the age of a table's newest change, in seconds (None: no such limit)."""

    warn_after: float | None = None
    error_after: float | None = None

    def as_properties(self) -> dict[str, str]:
        """The table properties that keep it."""
        limits = {_WARN: self.warn_after, _ERROR: self.error_after}
        return {key: f"{limit:.0f}" for key, limit in limits.items() if limit is not None}

    def of_age(self, age: float) -> Staleness:
        """Which limit a table exceeds whose newest change is so many seconds old."""
        if self.error_after is not None and age > self.error_after:
            return "error"
        return "warn" if self.warn_after is not None and age > self.warn_after else ""


def freshness_of(properties: Mapping[str, str]) -> Freshness | None:
    """What a table's properties say; None when they have no limit."""
    found = Freshness(*(_seconds(properties.get(key)) for key in (_WARN, _ERROR)))
    return found if found != Freshness() else None


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        # Other programs can set properties of a table, too.
        return None
