"""The rows of a view and of its inputs at two moments, for comparisons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BEFORE, AFTER = "before", "after"
"""A barrier of a view and the view's barrier before it."""


@dataclass(frozen=True)
class Moments:
    """Where the rows of both moments are, as SQL that may follow FROM.

    `rows` gives the remembered rows at a position of `CompiledPlan.reads` (moment, position),
    `now` the one row of the relation `now()`, `view` the view's own rows. `clock` is the time of
    the later barrier, by which groups have expired, in microseconds since 1970.
    """

    rows: Callable[[str, int], str]
    now: Callable[[str], str]
    view: Callable[[str], str]
    clock: int
