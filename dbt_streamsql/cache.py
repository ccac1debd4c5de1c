"""The folder for dbt-streamsql's per-user files, outside of warehouses and projects."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """`STREAMSQL_CACHE`, or `dbt-streamsql` in the user's cache folder.

    It contains downloads, and the records of running services.
    """
    chosen = os.environ.get("STREAMSQL_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return user_cache_path("dbt-streamsql", appauthor=False).absolute()
