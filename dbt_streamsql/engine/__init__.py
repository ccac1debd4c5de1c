"""The public Python API: `Engine` opens a warehouse; its parts define tables, run epochs, answer
queries."""

from __future__ import annotations

from dbt_streamsql.engine.engine import Engine
from dbt_streamsql.engine.options import (
    EngineOptions,
    EventTime,
    StreamSource,
    TableOptions,
    Upsert,
    ViewOptions,
)
from dbt_streamsql.runtime.report import Report, TableReport
from dbt_streamsql.runtime.upkeep.garbage_collection import Garbage

__all__ = [
    "Engine",
    "EngineOptions",
    "EventTime",
    "Garbage",
    "Report",
    "StreamSource",
    "TableOptions",
    "TableReport",
    "Upsert",
    "ViewOptions",
]
