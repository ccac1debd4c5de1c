"""A clock that a test sets ahead instead of waiting."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Ahead:
    """The system's clock and the jumps made so far: a commit is as late as its writer's clock would
    have been, had it jumped too."""

    jumps: list[tuple[int, int]] = field(default_factory=list)
    """(the system's time of a jump, how far), both in milliseconds."""

    def jump(self, seconds: float) -> None:
        now = time.time_ns() // 1_000_000
        self.jumps.append((now, round(seconds * 1000)))
        # Commits are told by the millisecond: what comes next is after the jump.
        while time.time_ns() // 1_000_000 <= now:
            time.sleep(0.001)

    def time(self) -> float:
        return time.time() + sum(far for _, far in self.jumps) / 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def committed(self, at: int) -> int:
        return at + sum(far for since, far in self.jumps if since < at)


@contextmanager
def ahead(engine):
    """Inside, the engine has such a clock."""
    warehouse = engine.warehouse
    before, warehouse.clock = warehouse.clock, Ahead()
    try:
        yield warehouse.clock
    finally:
        warehouse.clock = before
