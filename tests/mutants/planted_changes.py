"""Planted bugs of the reading of changes.

id -> symbol, old, new, what is wrong, tests.
"""

from __future__ import annotations

from tests.mutants.planting import Planted, Text

CHANGES: dict[str, Planted] = {
    # -- what changed ----------------------------------------------------------------------------
    "overwrite-for-append": (
        ("classify", "GONE"),
        "all(summaries.appends(snapshot) for snapshot in path)",
        "any(summaries.appends(snapshot) for snapshot in path)",
        "commits are taken for appends when one of them is",
        "changelog",
    ),
    "deletes-for-changelog": (
        "_copy_on_write",
        'snapshot.count("total-delete-files") == 0',
        'snapshot.count("total-delete-files") >= 0',
        "merge-on-read commits are taken for copy-on-write",
        "difference",
    ),
    "changelog-sign": (
        ("read", "GONE"),
        Text("IF(_change_type = 'INSERT', 1L, -1L)"),
        "IF(_change_type = 'DELETE', 1L, -1L)",
        "the changelog's inserts and deletes are exchanged",
        "changelog",
    ),
    "lineage-applied-twice": (
        "_newer",
        Text("FROM {new} WHERE {_STAMP} > {sequence(meta, change)}"),
        "FROM {new} WHERE {_STAMP} >= {sequence(meta, change)}",
        "rows that the last epoch has seen already come again",
        "foreign_writers",
    ),
    "lineage-update": (
        "_by_lineage",
        Text("FROM {new} WHERE {_STAMP} <= {sequence(meta, change)}) n "),
        "FROM {new}) n ",
        "the old version of an updated row is not taken back",
        "everything",
    ),
    "difference-sign": (
        ("difference", "GONE"),
        "((1, new), (-1, old))",
        "((1, old), (-1, new))",
        "the difference of two snapshots is taken the wrong way round",
        "difference",
    ),
    "decoded-sign": (
        "_part",
        "1 if file.added else -1",
        "1",
        "rows that the process reads as deleted count as inserted",
        "of_every_type",
    ),
    "decoded-fresh-deletes": (
        "_part",
        "np.delete(np.arange(rows), inside) if file.added else inside",
        "np.arange(rows) if file.added else inside",
        "rows that were inserted and deleted meanwhile are read as inserted",
        "foreign_table",
    ),
    "decoded-first-row": (
        "_part",
        "deleted >= start",
        "deleted > start",
        "the first row of a row group is never deleted",
        "of_every_type",
    ),
    "decoded-row-groups": (
        ("_groups", "_part"),
        "start += group.num_rows",
        "start += group.num_rows - 1",
        "positions are counted from one row too early in each row group",
        "of_every_type",
    ),
    "decoded-weight-zero": (
        "net_rows",
        "summed.filter(pc.not_equal(summed.column(WEIGHT), 0))",
        "summed",
        "rows that were only rewritten stay in the change",
        "foreign_table",
    ),
    "decoded-floats": (
        ("read", "_part"),
        "pa.types.is_floating(field.type)",
        "pa.types.is_null(field.type)",
        "numbers that Spark takes for equal are different for Arrow",
        "left_to_it",
    ),
    "keyed-ignores-deletes": (
        ("_positions", "_taken"),
        "at[~np.isin(at, group.deleted)] if len(group.deleted) else at",
        "at",
        "rows with a key are found although they were deleted",
        "places_are_those",
    ),
    "keyed-least-key-lost": (
        ("_places", "_positions"),
        "(asked >= least) & (asked <= most)",
        "(asked > least) & (asked <= most)",
        "the least key of a row group is not found",
        "places_are_those",
    ),
    "keyed-first-of-file": (
        "_taken",
        "pa.array(at + group.start)",
        "pa.array(at)",
        "the place of a found row counts from its row group",
        "places_are_those",
    ),
    "keyed-skips-ends": (
        "_may_have_key",
        "asked[at] <= statistics.max_raw",
        "asked[at] < statistics.max_raw",
        "a row group whose greatest value is the key is left out",
        "places_are_those",
    ),
    "found-only-new": (
        "FoundRows",
        "rows, keys = [before.rows, *rows], pa.concat_arrays([before.keys, keys])",
        "keys = pa.concat_arrays([before.keys, keys])",
        "a row that one term asked for is missing for the next one",
        "views_equal_their_queries",
    ),
    "found-skips-known": (
        "SparkRelations",
        "parts = [self.local.known(matches.own)]",
        "parts = []",
        "customers of changed orders are not found, only those of the others",
        "once_to_look",
    ),
    "near-drops-nulls": (
        "Writer",
        "keys.null_count or self.types[name] not in _FOUND",
        "self.types[name] not in _FOUND",
        "groups without a key are not found among the stored ones",
        "views_equal_their_queries",
    ),
}
