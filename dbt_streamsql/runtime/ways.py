"""From the changes, or by the query computed anew and compared: what each is expected to cost.

The sizes of the work say what it would cost on the machine that they were measured on. What runs
of this process took beside that tells what it costs here: of the view itself, else of all.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Literal

from dbt_streamsql.plan.work import Work

Way = Literal["changes", "compare"]
CHANGES: Way = "changes"
COMPARE: Way = "compare"

View = tuple[str, str]
"""A table and the fingerprint of its plan."""

STATEMENT = 0.08
"""Seconds of a statement over nearly nothing, in an epoch of several views."""
CHARACTER = 1.2e-5
"""Seconds that it takes to plan a character of its text."""
ROW = 1e-6
"""Seconds of a row that is read."""
ANSWER = 1e-5
"""Seconds of a changed row that comes to the driver."""
AROUND = 500
"""Characters that a comparison puts around the query."""
COMPARED = 2e-6
"""Seconds of a stored row that is compared with those of the query."""

_OWN, _OTHERS = 5, 50
"""Runs that are remembered: of a view, and of all of them."""


def expected_from_changes(program: Work, changed: int) -> float:
    """Seconds of a program over so many changed rows; of a program without work, a little."""
    statements = max(1, program.statements)
    text = CHARACTER * program.characters
    return STATEMENT * statements + text + ROW * program.rows + ANSWER * changed


def expected_by_comparing(characters: int, every: int, stored: int) -> float:
    """Seconds of a query of so many characters over `every` rows, which gives about `stored`."""
    text = CHARACTER * (characters + AROUND)
    return 2 * STATEMENT + text + ROW * every + COMPARED * stored


def cheapest(seconds: Mapping[Way, float], comparing: float = 1.0) -> Way:
    """The way that takes the fewest seconds; a comparison counts `comparing` times."""
    looks = {way: each * (comparing if way is COMPARE else 1.0) for way, each in seconds.items()}
    return min(looks, key=lambda way: looks[way])


@dataclass
class Costs:
    """What the ways have cost in this process, in parts of what was expected of them.

    Threads share it.
    """

    _of_view: dict[tuple[View, Way], deque[float]] = field(
        default_factory=lambda: defaultdict(partial(deque[float], maxlen=_OWN))
    )
    _of_all: dict[Way, deque[float]] = field(
        default_factory=lambda: defaultdict(partial(deque[float], maxlen=_OTHERS))
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, view: View, way: Way, expected: float, seconds: float) -> None:
        """A run of a view took so many seconds."""
        with self._lock:
            self._of_view[view, way].append(seconds / expected)
            self._of_all[way].append(seconds / expected)

    def seconds(self, view: View, expected: Mapping[Way, float]) -> dict[Way, float]:
        """What each way takes, by what is expected of it."""
        with self._lock:
            return {way: self._factor(view, way) * expected[way] for way in expected}

    def _factor(self, view: View, way: Way) -> float:
        """The quickest run of the view itself counts: others may have waited."""
        own, others = self._of_view.get((view, way)), self._of_all.get(way)
        return min(own) if own else median(others) if others else 1.0
