"""From the changes, by the query computed anew and compared, or in full: what each is expected to
cost.

The sizes of the work say what it would cost on the machine that they were measured on. What runs
took beside that tells what it costs here: runs of the view itself, else those of all views in this
process.
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
"""Seconds of a statement over nearly nothing."""
STEP = 0.2
"""The same of one of a program: it reads what the one before came to."""
CHARACTER = 1.2e-5
"""Seconds that it takes to plan a character of its text."""
ROW = 3e-7
"""Seconds of a row that is read."""
ANSWER = 3e-5
"""Seconds of a changed row of the view: it comes to the driver and is written."""
AROUND = 500
"""Characters that a comparison puts around the query."""
COMPARED = 2e-6
"""Seconds of a stored row that Spark compares with those of the query."""
HELD = 1e-6
"""The same of a row that is compared in the process."""
WRITTEN = 1.5e-7
"""Seconds of a row that a full refresh writes."""

_OWN, _OTHERS = 5, 50
"""Runs that are remembered: of a view, and of all of them."""
_LIKE: dict[Way, Way] = {COMPARE: FULL, FULL: COMPARE}
"""Ways that run the same query: where one was slow, the other would have been."""
_ENOUGH = 5
"""Runs of other ways that tell how quick the machine is."""


def expected_from_changes(program: Work, changed: int, shown: float, stored: int) -> float:
    """Seconds of a program over so many changed rows, of which `shown` rows of the view, looked up
    among those that are `stored`, become others; of a program without work, a little."""
    statements = max(1, program.statements)
    text = CHARACTER * program.characters
    rows = program.rows + changed + OF_CUT * stored
    return STEP * statements + text + ROW * rows + ANSWER * shown


def expected_by_comparing(
    characters: int, every: int, stored: int, *, held: bool, known: bool
) -> float:
    """Seconds of a query of so many characters over `every` rows, which gives about `stored`.

    `held`: the rows are compared in the process, which has them already if they are `known`.
    """
    if held:
        statements, text, each = (2 if known else 3), characters, HELD
    else:
        statements, text, each = 2, characters + AROUND, COMPARED
    return statements * STATEMENT + CHARACTER * text + ROW * every + each * stored


def expected_in_full(characters: int, every: int, stored: int) -> float:
    """Seconds in which the same query is written."""
    return 3 * STATEMENT + CHARACTER * characters + ROW * every + WRITTEN * stored


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
    _met: dict[tuple[View, frozenset[str]], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, view: View, way: Way, expected: float, seconds: float) -> None:
        """A run of a view took so many seconds."""
        with self._lock:
            self._of_view[view, way].append(seconds / expected)
            self._of_all[way].append(seconds / expected)

    def meets(self, view: View, moved: frozenset[str], changed: float, shown: int) -> None:
        """So many rows of the inputs `moved` changed, and `shown` rows of the view by that."""
        with self._lock:
            self._met[view, moved] = shown / max(1.0, changed)

    def shown(self, view: View, moved: frozenset[str], changed: float) -> float:
        """The rows of the view that change: as the last time those inputs moved, else as many."""
        with self._lock:
            return self._met.get((view, moved), 1.0) * changed

    def seconds(
        self,
        view: View,
        expected: Mapping[Way, float],
        past: Mapping[Way, Sequence[float]] | None = None,
    ) -> dict[Way, float]:
        """What each way takes, by what is expected of it; `past` are parts of what was expected
        that runs of the view took: those of other processes, where this one knows none."""
        with self._lock:
            return {
                way: self._factor(view, way, (past or {}).get(way, ())) * expected[way]
                for way in expected
            }

    def _factor(self, view: View, way: Way, past: Sequence[float]) -> float:
        """The quickest run of the view itself counts: others may have waited.

        One alone may have been the first of its kind in the process. Of a way that nothing is
        known of, one that is like it tells how quick the machine is, else all of them do.
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
