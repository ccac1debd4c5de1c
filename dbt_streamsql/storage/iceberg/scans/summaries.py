"""Where the summaries of commits can be believed.

Iceberg asks nothing of a summary but `operation`. Some writers write nothing else, some count from
0 where the commit before told no totals, and Iceberg's own library goes on from what it finds. So
counts are believed where they add up from the table's first commit on. Where that one is gone, the
totals are compared with the list of the files that the snapshot has.
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
"""A total, and what is added to that of the commit before, and taken from it."""

_NO_APPEND = ("deleted-records", "deleted-data-files", "added-delete-files")


def believed(meta: Metadata, old: int, path: Sequence[Snapshot]) -> bool:
    """Whether the counts of the commits after `old`, and the totals of all, are what they say."""
    if not all(_adds_up(meta, commit) for commit in path):
        return False
    return _from_the_first(meta, old) or _as_listed(meta, meta.snapshots[old])


def appends(commit: Snapshot) -> bool:
    """Whether a commit only appended; not where its counts say otherwise."""
    return commit.operation == "append" and not any(map(commit.count, _NO_APPEND))


def counts_rows(meta: Metadata, commit: Snapshot) -> bool:
    """Whether an append tells how many rows came by it."""
    return commit.told("added-records") is not None or _sums_up(meta, commit, "total-records")


def _adds_up(meta: Metadata, commit: Snapshot) -> bool:
    return all(_sums_up(meta, commit, total) for total in _SUMS)


def _sums_up(meta: Metadata, commit: Snapshot, total: str) -> bool:
    """Whether a total follows from that of the commit before, as far as that one is known."""
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
    """Whether the totals add up from the table's first commit, which is known, to this one."""
    while at is not None:
        commit = meta.snapshots.get(at)
        if commit is None or not _adds_up(meta, commit):
            return False
        at = commit.parent
    return True


def _as_listed(meta: Metadata, at: Snapshot) -> bool:
    """Whether the totals are told, and those of files are right."""
    if meta.listed is None or any(at.told(total) is None for total in _SUMS):
        return False
    return meta.listed(at.id) == (at.count("total-data-files"), at.count("total-delete-files"))
