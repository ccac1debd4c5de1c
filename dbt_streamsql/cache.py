"""The folder of what dbt-streamsql keeps for one user, beside warehouses and projects."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """`STREAMSQL_CACHE`, or `dbt-streamsql` in the user's cache folder.

    It holds what was fetched, and what running services say about themselves.
    """
    chosen = os.environ.get("STREAMSQL_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "dbt-streamsql"
