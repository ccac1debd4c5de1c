"""When the summaries of commits can be trusted.

Iceberg requires nothing in a summary but `operation`. Some writers write nothing else, some count
from 0 where the previous commit had no totals, and Iceberg's own library continues from what it
finds. So counts are trusted if they add up from the table's first commit on. If that one is gone,
the totals are compared with the list of files of the snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbt_streamsql.storage.iceberg.metadata import Metadata, Snapshot

_SUMS = {
    "total-records": ("added-records", "deleted-records"),
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}
"""A total, what is added to that of the previous commit, and what is subtracted from it."""

_NO_APPEND = ("deleted-records", "deleted-data-files", "added-delete-files")


def believed(meta: Metadata, old: int, path: Sequence[Snapshot]) -> bool:
    """Whether the counts of the commits after `old`, and the totals of all, are correct."""
    if not all(_adds_up(meta, commit) for commit in path):
        return False
    return _from_the_first(meta, old) or _as_listed(meta, meta.snapshots[old])


def appends(commit: Snapshot) -> bool:
    """Whether a commit only appended; False where its counts say otherwise."""
    return commit.operation == "append" and not any(map(commit.count, _NO_APPEND))


def counts_rows(meta: Metadata, commit: Snapshot) -> bool:
    """Whether an append gives the number of its rows."""
    return commit.told("added-records") is not None or _sums_up(meta, commit, "total-records")


def _adds_up(meta: Metadata, commit: Snapshot) -> bool:
    return all(_sums_up(meta, commit, total) for total in _SUMS)


def _sums_up(meta: Metadata, commit: Snapshot, total: str) -> bool:
    """Whether a total follows from that of the previous commit, as far as that is known."""
    told = commit.told(total)
    if told is None:
        return False
    if commit.parent is None:
        before: int | None = 0
    elif (parent := meta.snapshots.get(commit.parent)) is not None:
        before = parent.told(total)
    else:
        return True
    added, removed = map(commit.count, _SUMS[total])
    return before is not None and told == before + added - removed


def _from_the_first(meta: Metadata, at: int | None) -> bool:
    """Whether the totals add up from the table's first commit, if known, to this one."""
    while at is not None:
        commit = meta.snapshots.get(at)
        if commit is None or not _adds_up(meta, commit):
            return False
        at = commit.parent
    return True


def _as_listed(meta: Metadata, at: Snapshot) -> bool:
    """Whether the totals are given, and those of files are correct."""
    if meta.listed is None or any(at.told(total) is None for total in _SUMS):
        return False
    return meta.listed(at.id) == (at.count("total-data-files"), at.count("total-delete-files"))
