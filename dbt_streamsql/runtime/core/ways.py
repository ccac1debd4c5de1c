"""The expected cost of each way: from the changes, by recomputing and comparing, or in full.

The amount of work gives the cost on the machine where it was measured. What runs took relative to
that gives the cost here: runs of the view itself, else those of all views in this process.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from statistics import median
from typing import Literal, NamedTuple

from dbt_streamsql.plan.program.work import OF_CUT, Work

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
FIND = 0.15
"""The same for a statement that finds the rows that a change deleted or rewrote."""
ROW = 3e-7
"""Seconds per row that is read."""
SCANNED = 1.2e-7
"""The same of a whole query, which does nothing with most of them but filter and project."""
WORKED = 2e-7
"""What each stateful operator of the query adds to that."""
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

_ALIKE = 4.0
"""A run says what the next one takes where that is expected to take at most so many times more, or
less: over few rows other costs prevail than over many."""

FADING = 0.25
"""What a full refresh leaves of the rows that a change is expected to meet."""

_OWN, _OTHERS = 5, 50
"""Runs that are remembered: of a view, and of all views."""
_LIKE: dict[Way, Way] = {COMPARE: FULL, FULL: COMPARE}
"""Ways that run the same query: where one was slow, the other would have been."""
_ENOUGH = 5
"""Runs of other ways that suffice to estimate the speed of the machine."""


def expected_from_changes(
    program: Work, changed: int, shown: float, stored: int, searched: Sequence[float] = ()
) -> float:
    """Seconds of a program over `changed` rows that changes `shown` rows of the view, looked up
    among `stored` rows; of a program without work, a little. `searched`: the rows of each input
    that are read to find those that changed."""
    statements = max(1, program.statements)
    found = FIND * len(searched) + ROW * sum(searched)
    text = CHARACTER * program.characters
    rows = ROW * (program.rows + changed) + expected_in_look_ups(stored)
    return STEP * statements + text + found + rows + ANSWER * shown


def expected_in_look_ups(rows: int) -> float:
    """Seconds to find the rows of some keys in tables of so many `rows`."""
    return ROW * OF_CUT * rows


@dataclass(frozen=True)
class Query:
    """The size of a view's query: the characters of its text, its stateful operators, and the rows
    of all its inputs."""

    characters: int
    operators: int
    every: int

    @property
    def seconds(self) -> float:
        """Expected for its text and the rows that it reads."""
        return CHARACTER * self.characters + (SCANNED + WORKED * self.operators) * self.every


def expected_by_comparing(query: Query, stored: int, *, held: bool, at_hand: bool) -> float:
    """Seconds of a query which returns about `stored` rows.

    `held`: the rows are compared in the process, which needs no statement to get them where they
    are `at_hand`.
    """
    if held:
        statements, each = (2 if at_hand else 3), HELD
    else:
        statements, each = 2, COMPARED
    around = 0.0 if held else CHARACTER * AROUND
    return statements * STATEMENT + query.seconds + around + each * stored


def expected_in_full(query: Query, stored: int) -> float:
    """Seconds to write the result of the same query."""
    return 3 * STATEMENT + query.seconds + WRITTEN * stored


def cheapest(seconds: Mapping[Way, float], comparing: float = 1.0) -> Way:
    """The way that takes the fewest seconds; a comparison counts `comparing` times."""
    looks = {way: each * (comparing if way is COMPARE else 1.0) for way, each in seconds.items()}
    return min(looks, key=lambda way: looks[way])


class Run(NamedTuple):
    """The seconds that a run was expected to take, and what it took relative to that."""

    expected: float
    factor: float


@dataclass
class Costs:
    """What the ways have cost in this process, relative to what was expected. `cold`: seconds by
    which its first runs may exceed that before they count.

    Threads share it.
    """

    cold: float = 0.0

    _of_view: dict[tuple[View, Way], deque[Run]] = field(
        default_factory=lambda: defaultdict(partial(deque[Run], maxlen=_OWN))
    )
    _of_all: dict[Way, deque[Run]] = field(
        default_factory=lambda: defaultdict(partial(deque[Run], maxlen=_OTHERS))
    )
    _met: dict[tuple[View, frozenset[str]], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def measured(self, expected: float, seconds: float) -> float | None:
        """What a run took relative to what was expected; None when most of it was the start of the
        process."""
        with self._lock:
            cold = min(self.cold, max(0.0, seconds - expected))
            self.cold -= cold
        return (seconds - cold) / expected if 2 * cold <= seconds else None

    def learn(self, view: View, way: Way, run: Run) -> None:
        """A view was refreshed."""
        with self._lock:
            self._of_view[view, way].append(run)
            self._of_all[way].append(run)

    def knows(self, view: View, way: Way) -> bool:
        """Whether this process has brought a view up to date in that way."""
        with self._lock:
            return bool(self._of_view.get((view, way)))

    def meets(self, view: View, moved: frozenset[str], changed: float, shown: int) -> float:
        """`changed` rows of the inputs `moved` changed, and so did `shown` rows of the view: how
        many for each."""
        with self._lock:
            met = self._met[view, moved] = shown / max(1.0, changed)
            return met

    def fade(self, view: View, moved: frozenset[str], met: float) -> float:
        """A full refresh shows nothing of what the changes would have met: what is known of it
        counts less, so that they are tried again after some."""
        with self._lock:
            self._met[view, moved] = FADING * met
            return FADING * met

    def met(self, view: View, moved: frozenset[str]) -> float | None:
        """The rows of the view that changed for each changed row of those inputs, the last time
        (None: not known)."""
        with self._lock:
            return self._met.get((view, moved))

    def seconds(
        self,
        view: View,
        expected: Mapping[Way, float],
        past: Mapping[Way, Sequence[Run]] | None = None,
    ) -> dict[Way, float]:
        """What each way takes, given what is expected; `past` are runs of the view in other
        processes, where this one knows none."""
        with self._lock:
            return {
                way: each * self._factor(view, way, each, past or {})
                for way, each in expected.items()
            }

    def _factor(
        self, view: View, way: Way, expected: float, past: Mapping[Way, Sequence[Run]]
    ) -> float:
        """What a run takes, relative to what is expected, as runs alike in that say.

        The fastest run of the view itself counts: others may have waited.

        A single one may have been the first of its kind in the process; of a full refresh there
        often is no other. For a way without known runs in this process a similar way counts, then
        runs before; of other views likewise, and at last those of any way.
        """
        own: Sequence[float] = ()
        before: Sequence[float] = ()
        others: Sequence[float] = ()
        for each in (way, _LIKE.get(way, way)):
            own = own or _alike(self._of_view.get((view, each), ()), expected)
            before = before or _alike(past.get(each, ()), expected)
            others = others or _alike(self._of_all.get(each, ()), expected)
        own = own or before
        if not others:
            every = _alike(chain.from_iterable(self._of_all.values()), expected)
            others = every if len(every) >= _ENOUGH else ()
        usual = median(others) if others else 1.0
        if not own:
            return usual
        return min(own[0], usual) if len(own) == 1 and way is not FULL else min(own)


def _alike(runs: Iterable[Run], expected: float) -> list[float]:
    """The factors of the runs that were expected to take about as long."""
    return [
        run.factor
        for run in runs
        if expected <= _ALIKE * run.expected and run.expected <= _ALIKE * expected
    ]
