"""How worn a table is by the epochs that wrote it: small files, and rows that are deleted."""

from __future__ import annotations

from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.tuning import Tuning

DELETED_SHARE = 0.3
"""Of the rows in the files, the share at which a table is worn."""

FULL_FILE = 64 << 20
"""Bytes of a file that is not merged."""


def wear(meta: Metadata, tuning: Tuning) -> float:
    """How worn a table is; from 1 on it pays to compact it.

    A small table is not: an epoch that finds it in many files rewrites it, unless its rows must
    keep their ages.
    """
    current = meta.snapshots.get(meta.current) if meta.current is not None else None
    if current is None or meta.live_rows(meta.current) <= tuning.compacted_above:
        return 0.0
    warranted = -(-current.count("total-files-size") // FULL_FILE)
    small = current.count("total-data-files") - warranted
    deleted = current.count("total-position-deletes") / current.count("total-records")
    return max(small / tuning.small_files, deleted / DELETED_SHARE)


def scattered(meta: Metadata, tuning: Tuning) -> bool:
    """Whether a small table has so many files that it is better rewritten."""
    current = meta.snapshots.get(meta.current) if meta.current is not None else None
    files = current.count("total-data-files") if current is not None else 0
    small = meta.live_rows(meta.current) <= tuning.compacted_above
    return small and files > tuning.many_files
