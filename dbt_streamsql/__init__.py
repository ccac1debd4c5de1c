"""Incremental materialized views for dbt on Spark: `Engine` is the Python API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbt_streamsql.__version__ import version as __version__
from dbt_streamsql.errors import StreamSqlError

if TYPE_CHECKING:
    from dbt_streamsql.engine import Engine, Report, TableReport

__all__ = ["Engine", "Report", "StreamSqlError", "TableReport", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the engine on demand: `dbt --version` works without Spark."""
    if name in {"Engine", "Report", "TableReport"}:
        from dbt_streamsql import engine

        return getattr(engine, name)
    raise AttributeError(name)
