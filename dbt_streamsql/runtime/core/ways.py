"""The expected cost of each way: from the changes, by recomputing and comparing, or in full.

The amount of work gives the cost on the machine where it was measured. What runs took relative to
that gives the cost here: runs of the view itself, else those of all views in this process.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Literal

from dbt_streamsql.plan.work import OF_CUT, Work

Way = Literal["changes", "compare", "full"]
CHANGES: Way = "changes"
COMPARE: Way = "compare"
FULL: Way = "full"

View = tuple[str, str]
"""A table and the fingerprint of its plan."""

STATEMENT = 0.1
"""Seconds per statement over nearly nothing."""
STEP = 0.2
"""The same for a statement of a program: it reads the result of the one before."""
CHARACTER = 1.2e-5
"""Seconds to plan a character of its text."""
ROW = 3e-7
"""Seconds per row that is read."""
ANSWER = 3e-5
"""Seconds per changed row of the view: it comes to the driver and is written."""
AROUND = 500
"""Characters that a comparison adds around the query."""
COMPARED = 2e-6
"""Seconds per stored row that Spark compares with those of the query."""
HELD = 1e-6
"""The same per row that is compared in the process."""
WRITTEN = 1.5e-7
"""Seconds per row that a full refresh writes."""

_OWN, _OTHERS = 5, 50
"""Runs that are remembered: of a view, and of all views."""
_LIKE: dict[Way, Way] = {COMPARE: FULL, FULL: COMPARE}
"""Ways that run the same query: where one was slow, the other would have been."""
_ENOUGH = 5
"""Runs of other ways that suffice to estimate the speed of the machine."""


def expected_from_changes(program: Work, changed: int, shown: float, stored: int) -> float:
    """Seconds of a program over `changed` rows that changes `shown` rows of the view, looked up
    among `stored` rows; of a program without work, a little."""
    statements = max(1, program.statements)
    text = CHARACTER * program.characters
    rows = program.rows + changed + OF_CUT * stored
    return STEP * statements + text + ROW * rows + ANSWER * shown


def expected_by_comparing(
    characters: int, every: int, stored: int, *, held: bool, known: bool
) -> float:
    """Seconds of a query of `characters` over `every` rows, which returns about `stored`.

    `held`: the rows are compared in the process, which has them already if they are `known`.
    """
    if held:
        statements, text, each = (2 if known else 3), characters, HELD
    else:
        statements, text, each = 2, characters + AROUND, COMPARED
    return statements * STATEMENT + CHARACTER * text + ROW * every + each * stored


def expected_in_full(characters: int, every: int, stored: int) -> float:
    """Seconds to write the result of the same query."""
    return 3 * STATEMENT + CHARACTER * characters + ROW * every + WRITTEN * stored


def cheapest(seconds: Mapping[Way, float], comparing: float = 1.0) -> Way:
    """The way that takes the fewest seconds; a comparison counts `comparing` times."""
    looks = {way: each * (comparing if way is COMPARE else 1.0) for way, each in seconds.items()}
    return min(looks, key=lambda way: looks[way])


@dataclass
class Costs:
    """What the ways have cost in this process, relative to what was expected.

    Threads share it.
    """

    _of_view: dict[tuple[View, Way], deque[float]] = field(
        default_factory=lambda: defaultdict(partial(deque[float], maxlen=_OWN))
    )
    _of_all: dict[Way, deque[float]] = field(
        default_factory=lambda: defaultdict(partial(deque[float], maxlen=_OTHERS))
    )
    _met: dict[tuple[View, frozenset[str]], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, view: View, way: Way, expected: float, seconds: float) -> None:
        """A run of a view took `seconds`."""
        with self._lock:
            self._of_view[view, way].append(seconds / expected)
            self._of_all[way].append(seconds / expected)

    def knows(self, view: View) -> bool:
        """Whether this process has brought a view up to date in another way than in full."""
        with self._lock:
            return any(self._of_view.get((view, way)) for way in (CHANGES, COMPARE))

    def meets(self, view: View, moved: frozenset[str], changed: float, shown: int) -> None:
        """`changed` rows of the inputs `moved` changed, and so did `shown` rows of the view."""
        with self._lock:
            self._met[view, moved] = shown / max(1.0, changed)

    def shown(self, view: View, moved: frozenset[str], changed: float) -> float:
        """The rows of the view that change: as when those inputs last changed, else equally
        many."""
        with self._lock:
            return self._met.get((view, moved), 1.0) * changed

    def seconds(
        self,
        view: View,
        expected: Mapping[Way, float],
        past: Mapping[Way, Sequence[float]] | None = None,
    ) -> dict[Way, float]:
        """What each way takes, given what is expected; `past` is what runs of the view took,
        relative to what was expected: those of other processes, where this one knows none."""
        with self._lock:
            return {
                way: self._factor(view, way, (past or {}).get(way, ())) * expected[way]
                for way in expected
            }

    def _factor(self, view: View, way: Way, past: Sequence[float]) -> float:
        """The fastest run of the view itself counts: others may have waited.

        A single one may have been the first of its kind in the process. For a way without known
        runs, a similar way gives the speed of the machine, else all of them do.
        """
        own: Sequence[float] = self._of_view.get((view, way)) or past
        others: Sequence[float] = ()
        for each in (way, _LIKE.get(way, way)):
            others = others or self._of_all.get(each, ())
        if not others:
            every = [factor for each in self._of_all.values() for factor in each]
            others = every if len(every) >= _ENOUGH else ()
        usual = median(others) if others else 1.0
        if not own:
            return usual
        return min(own[0], usual) if len(own) == 1 else min(own)
