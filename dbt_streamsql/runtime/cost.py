"""From changes or in full: the choice of one epoch, by sizes of inputs and by past runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dbt_streamsql.meta import TableVersion
from dbt_streamsql.runtime.ways import COMPARE
from dbt_streamsql.tuning import Tuning

FULL_SHARE = 0.3
"""Changed rows as a share of the rows of the changed inputs: above it, refresh in full."""

MARGIN = 1.1
"""How much dearer an epoch from changes must look: the next one it may be cheaper again."""

WORTH = 1.0
"""Seconds that a full refresh must save: the first runs of a process are slower than those that
follow."""

WORTH_TO_READERS = 3.0
"""The same for a view that others read: to them it is a new version of every row."""

_REMEMBERED = 20
"""Past runs that are looked at; the quickest of each kind counts: others may have waited."""


@dataclass(frozen=True)
class Estimate:
    """What is known before an epoch: rows that changed, rows of the changed inputs, seconds.

    The seconds are None while no run of that kind is known. `worth` are those that a full refresh
    must save. `every` are the rows of all inputs (0 = it was not asked). `guarded`: see
    `Tuning.guarded_rows`.
    """

    changed: int
    total: int
    incremental: float | None = None
    full: float | None = None
    worth: float = WORTH
    every: int = 0
    guarded: int = Tuning.guarded_rows

    @property
    def dear(self) -> str:
        """Why a full refresh is cheaper ('' when it is not)."""
        if self.total <= self.guarded:
            return ""
        if self.changed > FULL_SHARE * self.total:
            return f"{self.changed:,} changed rows of {self.total:,}: recomputing is cheaper"
        if self.incremental is None or self.full is None:
            return ""
        if self.incremental > max(MARGIN * self.full, self.full + self.worth):
            return (
                f"by past runs {self.changed:,} changed rows take about {self.incremental:.1f} s, "
                f"a full refresh {self.full:.1f} s"
            )
        return ""

    def stats(self) -> dict[str, float | int | None]:
        """The estimate as it is kept with a version."""
        return {
            "rows_read": self.changed,
            "rows_there": self.total,
            "rows_of_all": self.every or self.total,
            "estimated_incremental": self.incremental and round(self.incremental, 3),
            "estimated_full": self.full and round(self.full, 3),
        }


def estimate(
    changed: int,
    total: int,
    every: int,
    past: Iterable[TableVersion],
    worth: float = WORTH,
    guarded: int = Tuning.guarded_rows,
) -> Estimate:
    """Scale the quickest past runs to the rows of this epoch; `past` is newest first.

    Runs that compared a view with its query tell nothing of either: see `ways`.
    """
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for version in list(past)[:_REMEMBERED]:
        rows, there = version.stats.get("rows_read"), version.stats.get("rows_there")
        if not rows or not there or version.stats.get("strategy") == COMPARE:
            continue
        full = version.mode == "full"
        # A full refresh reads all inputs, and grows with them; an epoch has a fixed cost, and then
        # its changes.
        scale = every / version.stats.get("rows_of_all", every) if full else max(1, changed / rows)
        seconds[full].append(version.seconds * scale)
    by_changes, anew = (min(seconds[kind], default=None) for kind in (False, True))
    return Estimate(changed, total, by_changes, anew, worth, every, guarded)
