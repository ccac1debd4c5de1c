"""What stateful operators keep, and for how long: the `state` of a node in a plan.

One entry for each input of an operator (FLIP-292, "Proposed Design"), so that the two sides of a
join can have different TTLs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEDUPLICATE, RANK, OVER = "deduplicateState", "rankState", "overAggregateState"
GROUPS, LIMIT, SORT_LIMIT = "groupAggregateState", "limitState", "sortLimitState"
LEFT, RIGHT = "join-left-state", "join-right-state"

KEPT = 10**15
"""The TTL, in milliseconds, of state that had another one and is now kept forever: nothing more
expires, and what has expired stays so. It is displayed as 0 (`display_ttl`)."""


def display_ttl(ttl: int) -> int:
    """A TTL as displayed."""
    return 0 if ttl == KEPT else ttl


@dataclass(frozen=True)
class State:
    """What an operator remembers of its input `index` (from 0), for `ttl` milliseconds after it
    was written (0: forever).

    `fixed` says why it cannot expire ('' = it can), `said` which config entry its TTL comes
    from ('' = none).
    """

    index: int
    name: str
    ttl: int = 0
    fixed: str = ""
    said: str = field(default="", compare=False)

    @property
    def lasts(self) -> str:
        """The length of time in words.

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
    """The configured TTLs of state, in milliseconds (0: forever).

    The later ones are more specific and win: `default` for all operators, `kinds` for those of one
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
        """The TTLs of a plan file, for every (node, input); None when all are forever."""
        return cls(ids=ids) if any(ids.values()) else None


KINDS = ("joins", "aggregates", "deduplicate", "rank", "windows", "limits")
"""The kinds of stateful operators that a config can name."""
