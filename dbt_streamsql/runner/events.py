"""What a runner reports about its work, to any listener: a terminal, a log, a test."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from dbt_streamsql.engine import Report
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import NOOP


@dataclass(frozen=True)
class Event:
    """`kind`: standby, leading, project, tick, error, stopping. `at`: seconds since 1970.

    docs/runner.md describes the fields of an event; they can be written as JSON.
    """

    kind: str
    at: float
    told: Mapping[str, Any] = field(default_factory=dict)


Tell = Callable[[Event], None]


def of_tick(report: Report, seconds: float, resting: Collection[str]) -> dict[str, Any]:
    """One epoch: what it did to the tables that it changed, and what it could not do."""
    changed = {
        name: {
            "mode": table.mode,
            "rows_inserted": table.rows_inserted,
            "rows_deleted": table.rows_deleted,
            "seconds": round(table.seconds, 3),
            "last_full": None if table.last_full is None else round(table.last_full, 3),
            "delay": None if table.delay is None else round(table.delay, 3),
        }
        for name, table in report.tables.items()
        if table.mode != NOOP
    }
    return {
        "barrier": report.barrier,
        "seconds": round(seconds, 3),
        "checked": len(report.tables),
        "tables": changed,
        "failed": {name: of_error(error) for name, error in report.failed.items()},
        "waiting": dict(report.waiting),
        "backing_off": sorted(resting),
        "sinks": {
            name: {
                "target": done.target,
                "barrier": done.barrier,
                "seconds": round(done.seconds, 3),
                "failed": None if done.error is None else of_error(done.error),
            }
            for name, done in report.sinks.items()
        },
    }


def of_error(error: Exception) -> dict[str, str]:
    """Its code ('' when it has none) and its text."""
    code = error.code if isinstance(error, StreamSqlError) else ""
    return {"code": code, "message": str(error) or type(error).__name__}
