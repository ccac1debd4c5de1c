"""Barriers of event time: a barrier holds the records whose own time is not after its W.

Let seen(R) be the greatest time that stream R has reported, and promise(R) = seen(R) -
lateness(R). For all streams of a boundary that have a `lateness`

    W(t) = max(W(t - 1), min over the streams R that are not idle: promise(R))

A stream is idle when it has had no record for `idle_after`; when all are, nothing is worth waiting
for, and W is the greatest time that one of them has reported. Records with a time after W wait in
a side table. So table = {records read so far, time <= W}, whatever their order and however many
barriers they took. A record that was read is *late* when W and its own stream's promise had passed
it before: a stream that W did not wait for has broken no promise.

Times are microseconds since 1970.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dbt_streamsql.meta.inspect.history import EVENT_TIME
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.quoting import quote

TIME = f"{HIDDEN_PREFIX}event_time"
"""The column of a record's time, where it waits."""

LATE_DATA = ("include_next", "quarantine")

IDLE_AFTER = 300.0
"""Seconds."""


@dataclass(frozen=True)
class Progress:
    """The event-time progress of one streaming table.

    `upto` is the W of its version, `seen` the greatest time of its stream (None: there is none
    yet), `heard` when that last had records, in seconds; `waiting` counts the records after
    `upto`, and `first` is the least of their times.
    """

    upto: int | None = None
    seen: int | None = None
    heard: float = 0.0
    first: int | None = None
    waiting: int = 0

    @classmethod
    def of(cls, stats: Mapping[str, Any]) -> Progress:
        """As stored with the version of a table."""
        return cls(**stats.get(EVENT_TIME) or {})

    def kept(self) -> dict[str, Any]:
        return asdict(self)

    def passed(self, stats: Mapping[str, Any]) -> bool:
        """Whether records that waited are in a barrier with these `stats`."""
        upto = Progress.of(stats).upto
        return self.first is not None and upto is not None and self.first <= upto

    def promised(self, lateness: float) -> int | None:
        """No more records with a time up to this one were expected (None: nothing is said)."""
        return None if self.seen is None else self.seen - round(lateness * 1e6)

    def late(self, lateness: float) -> int | None:
        """A record with a time up to this one comes late (None: none does)."""
        promised = self.promised(lateness)
        return None if promised is None or self.upto is None else min(promised, self.upto)


@dataclass(frozen=True)
class Root:
    """What one stream contributes to W: the W of its last version, and what it reports now."""

    before: int | None
    seen: int | None
    lateness: float
    idle: bool = False


def watermark(roots: Iterable[Root]) -> int | None:
    """The W of a barrier; None when nothing can be in it yet.

    >>> watermark([Root(None, 50_000_000, 10), Root(None, 70_000_000, 10)])
    40000000
    >>> watermark([Root(45_000_000, 50_000_000, 10), Root(None, None, 10)])
    45000000
    >>> watermark([Root(None, 50_000_000, 10, idle=True), Root(None, 70_000_000, 10)])
    60000000
    """
    roots = list(roots)
    busy = [Progress(seen=root.seen).promised(root.lateness) for root in roots if not root.idle]
    if busy:
        promises = [promise for promise in busy if promise is not None]
        reached = min(promises) if len(promises) == len(busy) else None
    else:
        reached = max((root.seen for root in roots if root.seen is not None), default=None)
    known = [root.before for root in roots] + [reached]
    return max((at for at in known if at is not None), default=None)


@dataclass
class Watermark:
    """The W of one epoch: decided by the first stream that asks, the same for all."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _decided: bool = False
    _at: int | None = None

    def once(self, decide: Callable[[], int | None]) -> int | None:
        with self._lock:
            if not self._decided:
                self._at, self._decided = decide(), True
            return self._at


@dataclass(frozen=True)
class Split:
    """The records of one barrier, and those that waited, at its W. `fresh` and `waited` may follow
    FROM; both have `names` and TIME. `late`: rows of `fresh` up to this time are quarantined."""

    names: tuple[str, ...]
    fresh: str
    waited: str
    upto: int | None
    late: int | None = None

    @property
    def ripe(self) -> str:
        """A query of the rows that the barrier takes, without TIME."""
        names = ", ".join(map(quote, self.names))
        return f"SELECT {names} FROM ({self._all}) WHERE {self._passed}"

    @property
    def early(self) -> str:
        """A query of the rows that wait, with TIME."""
        return f"SELECT * FROM ({self._all}) WHERE NOT {self._passed}"

    @property
    def refused(self) -> str:
        """A query of the quarantined rows, as rows of a quarantine without barrier."""
        raw = ", ".join(f"f.{quote(name)}" for name in self.names)
        text = (
            f"SELECT to_json(struct({raw})) AS raw, CAST(NULL AS STRING) AS at, "
            f"CASE WHEN {TIME} IS NULL THEN 'NULL is its event time' "
            f"ELSE concat('LATE: ', {TIME}, ' is not after ', {_moment(self.late)}) END AS reason "
            f"FROM {self.fresh} f WHERE {TIME} IS NULL"
        )
        return text if self.late is None else f"{text} OR unix_micros({TIME}) <= {self.late}L"

    @property
    def _all(self) -> str:
        names = ", ".join([*map(quote, self.names), TIME])
        on_time = "" if self.late is None else f" AND unix_micros({TIME}) > {self.late}L"
        fresh = f"SELECT {names} FROM {self.fresh} WHERE {TIME} IS NOT NULL{on_time}"
        return f"{fresh} UNION ALL SELECT {names} FROM {self.waited}" if self.waited else fresh

    @property
    def _passed(self) -> str:
        return "false" if self.upto is None else f"(unix_micros({TIME}) <= {self.upto}L)"


def _moment(at: int | None) -> str:
    return "CAST(NULL AS TIMESTAMP)" if at is None else f"timestamp_micros({at}L)"
