"""What is known of the sizes of an epoch of one view, and of its past runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dbt_streamsql.meta import TableVersion
from dbt_streamsql.runtime.core.ways import (
    CHANGES,
    COMPARE,
    FULL,
    Run,
    Way,
)

MARGIN = 1.1
"""How much more expensive an epoch from changes must look: the next one may be cheaper again."""

WORTH = 0.1
"""Seconds that a full refresh must save."""

WORTH_TO_READERS = 3.0
"""The same for a view with readers: to them it is a new version of every row."""

MET, MOVED = "met", "moved"
"""How many rows of the view changed for each changed row of the inputs, and which had changed."""

LONG = "long"
"""The rows that the view had when they were too long to be compared with its query."""

EXPECTED, FACTOR = "expected", "factor"
"""What was expected of the way of a run, before adjusting to the speed of the machine, and what it
took relative to that, without the start of its process."""

ESTIMATED: dict[Way, str] = {
    CHANGES: "estimated_incremental",
    COMPARE: "estimated_compare",
    FULL: "estimated_full",
}
"""The names in reports of the seconds that a way is expected to take."""

_BY: dict[Way, str] = {CHANGES: "from changes", COMPARE: "by comparison", FULL: "in full"}

_REMEMBERED = 20
"""Past runs that are considered."""


@dataclass(frozen=True)
class Estimate:
    """What is known before an epoch: rows that changed, rows of the changed inputs and of `every`
    input, `past` runs, and how many rows of the view a changed row `met` (None: not known)."""

    changed: int
    total: int
    every: int
    past: Mapping[Way, list[Run]] = field(default_factory=dict)
    met: float | None = None


def dear(seconds: Mapping[Way, float], changed: int, worth: float = WORTH) -> str:
    """Why a full refresh is cheaper than the cheapest other way ('': it is not)."""
    other = min(each for way, each in seconds.items() if way != FULL)
    full = seconds[FULL]
    if other <= max(MARGIN * full, full + worth):
        return ""
    return (
        f"{changed:,} changed rows are expected to take {other:.1f} s, a full refresh {full:.1f} s"
    )


def by_past_runs(past: Iterable[TableVersion]) -> dict[Way, list[Run]]:
    """The runs of each way; `past` is newest first."""
    found: dict[Way, list[Run]] = defaultdict(list)
    for version in list(past)[:_REMEMBERED]:
        factor = version.stats.get(FACTOR)
        if factor is not None:
            found[way_of(version)].append(Run(version.stats[EXPECTED], factor))
    return found


def last_run(version: TableVersion) -> str:
    """What the run that wrote a version took, and what each way was expected to take."""
    took = f"last run: {version.seconds:.2f} s {_BY[way_of(version)]}"
    expected = [
        f"{seconds:.2f} s {_BY[way]}"
        for way, name in ESTIMATED.items()
        if (seconds := version.stats.get(name)) is not None
    ]
    return f"{took}; expected: {', '.join(expected)}" if expected else took


def way_of(version: TableVersion) -> Way:
    """The way that a run took."""
    if version.mode == "full":
        return FULL
    return COMPARE if version.stats.get("strategy") == COMPARE else CHANGES
