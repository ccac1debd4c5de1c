"""What stateful operators remember, and for how long: the `state` of a node in a plan.

One entry for each input of an operator (FLIP-292, "Proposed Design"), so that the two sides of a
join may be kept for different lengths of time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEDUPLICATE, RANK, OVER = "deduplicateState", "rankState", "overAggregateState"
GROUPS, LIMIT, SORT_LIMIT = "groupAggregateState", "limitState", "sortLimitState"
LEFT, RIGHT = "join-left-state", "join-right-state"

KEPT = 10**15
"""The TTL, in milliseconds, of what had another one and is now kept for ever: nothing expires any
more, and what has expired stays so. People are shown 0 (`told`)."""


def display_ttl(ttl: int) -> int:
    """A TTL as people know it."""
    return 0 if ttl == KEPT else ttl


@dataclass(frozen=True)
class State:
    """What an operator remembers of its input `index` (from 0), for `ttl` milliseconds after it
    was written (0: for ever).

    `fixed` says why it cannot be forgotten ('' = it can), `said` what of a config its TTL comes
    from ('' = nothing was said of it).
    """

    index: int
    name: str
    ttl: int = 0
    fixed: str = ""
    said: str = field(default="", compare=False)

    @property
    def lasts(self) -> str:
        """The length of time for people.

        >>> State(0, "leftState", 90_000_000).lasts
        '1 day 1 hour'
        """
        return lasting(self.ttl) if self.ttl else "for ever"


_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


def lasting(milliseconds: int) -> str:
    """A length of time in words.

    >>> lasting(90_061_001)
    '1 day 1 hour 1 minute 1 second 1 ms'
    """
    words = []
    for name, length in _UNITS:
        count, milliseconds = divmod(milliseconds, length)
        if count:
            words.append(f"{count} {name}{'s' if count > 1 else ''}")
    if milliseconds or not words:
        words.append(f"{milliseconds} ms")
    return " ".join(words)


@dataclass(frozen=True)
class StateTtl:
    """What a config says of how long state is kept, in milliseconds (0: for ever).

    The later says it more exactly and wins: `default` for all operators, `kinds` for those of one
    kind, `inputs` for an input of joins by its alias or table, `hints` the same in the query's
    text, `ids` for (node, input).
    """

    default: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, int] = field(default_factory=dict)
    hints: Mapping[str, int] = field(default_factory=dict)
    ids: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def of_ids(cls, ids: Mapping[tuple[int, int], int]) -> StateTtl | None:
        """What a plan file says, of every (node, input); None when all is kept for ever."""
        return cls(ids=ids) if any(ids.values()) else None


KINDS = ("joins", "aggregates", "deduplicate", "rank", "windows", "limits")
"""The kinds of stateful operators that a config can name."""
