"""A small project that runs by itself: what `streamsql quickstart` writes, starts and stops."""

from __future__ import annotations

from dbt_streamsql.quickstart.background import Background, Running
from dbt_streamsql.quickstart.project import write_project

__all__ = ["Background", "Running", "write_project"]
