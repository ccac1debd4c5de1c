"""The signed rows between two snapshots of an Iceberg table, however they were written.

Commits are classified, never assumed. From cheap to expensive: nothing (only compaction), appended
files, Iceberg's own changelog (copy-on-write commits), positions of deleted rows (merge-on-read
commits), row lineage (format v3), and last the difference of the two snapshots. Only the last one
works without the counts of the commits' summaries, if these cannot be trusted (`summaries.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql import SparkSession

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra import likeness
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT, Column
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.iceberg.metadata import Metadata, Snapshot, shape
from dbt_streamsql.storage.iceberg.scans import summaries

_STAMP = "_last_updated_sequence_number"
LINEAGE = ("_row_id", _STAMP)
"""Format v3 columns that track a row: its id, and the number of the commit that wrote it."""
GONE, FRESH = f"{HIDDEN_PREFIX}gone", f"{HIDDEN_PREFIX}fresh"
"""Flags of `changes_and_matches`: the row was deleted since the old snapshot, or inserted."""

UNCOUNTED = 1 << 62
"""The rows of a change without a count."""

FEW_DELETES = 500_000
"""Positions that may be sent to every task."""

FEW_BYTES = 8 << 20
"""Of files that one task reads as fast as several do."""

_BIG = 512 << 20
"""Bytes at which Iceberg begins another file, unless a table says otherwise."""

ChangeKind = Literal[
    "none", "append", "changelog", "positions", "lineage", "added", "difference", "lost"
]

_IN_FILES = ("positions", "lineage", "added")


@dataclass(frozen=True)
class Change:
    """How to get from one snapshot to another.

    `kind` is none, append, changelog, positions (no file removed, rows deleted by position),
    lineage, added (appended rows, found by lineage), difference or lost (the old snapshot is
    gone); `rows` bounds the number of signed rows from the snapshots' summaries (`UNCOUNTED`: not
    given there). `appended`: all new files were appended, nothing was rewritten. `marked`: the
    share of the old rows that are in files from which some were deleted.
    """

    kind: ChangeKind
    old: int | None
    new: int | None
    rows: int = 0
    appended: bool = False
    marked: float = 1.0

    @property
    def counted(self) -> bool:
        return self.rows < UNCOUNTED

    @property
    def insert_only(self) -> bool:
        return self.kind in ("append", "added")


@dataclass(frozen=True)
class ChangedFiles:
    """The files of the new snapshot in which a change is, as relations.

    In addition to the columns they have `_file`, `_pos` and `_deleted`, and `LINEAGE`.

    `fresh`: files that were added since the old snapshot; `marked`: others from which rows were
    deleted since ('': there are none). `bytes`: of both together.
    """

    fresh: str
    marked: str
    bytes: int


def classify(meta: Metadata, old: int | None, new: int | None) -> Change:
    """Look at the commits between two snapshots and choose the cheapest exact way."""
    if old == new:
        return Change("none", old, new)
    if new is None or (old is not None and old not in meta.snapshots):
        return Change("lost", old, new)
    path = meta.lineage(new, old)
    if path is None:
        return Change("difference", old, new, meta.live_rows(old) + meta.live_rows(new))
    every, compacted = path, any(snapshot.operation == "replace" for snapshot in path)
    path = [snapshot for snapshot in path if snapshot.operation != "replace"]
    rows = sum(_signed_rows(snapshot) for snapshot in path)
    if not path:
        return Change("none", old, new)
    if all(summaries.appends(snapshot) for snapshot in path):
        counted = all(summaries.counts_rows(meta, snapshot) for snapshot in path)
        return Change("append", old, new, rows if counted else UNCOUNTED)
    if old is None:
        there = meta.told_rows(new)
        return Change("append", None, new, UNCOUNTED if there is None else there)
    if not summaries.believed(meta, old, every):
        # A writer with wrong counts may also number rows wrong, or bring back deleted ones.
        return Change("difference", old, new, UNCOUNTED)
    if _copy_on_write(meta, path, old):
        return Change("changelog", old, new, rows)
    by_lineage = all(meta.snapshots[at].has_lineage for at in (old, new))
    appended = all(not s.count("added-records") or s.operation == "append" for s in path)
    if not compacted and _by_position(meta, path, old):
        return Change("positions", old, new, rows, appended, _marked(meta, path, old))
    return Change("lineage" if by_lineage else "difference", old, new, rows)


def among_others(meta: Metadata, change: Change) -> Change:
    """The same change, read in a way that may be used with other changes of the same table.

    Spark 4.1 gives all reads of one table in one statement the options of the first one, and
    Iceberg's own ways get their two snapshots from options.
    """
    if change.old is None or change.kind not in ("append", "changelog", "positions"):
        return change
    if change.kind == "positions" and not change.appended:
        return change
    if not _has_lineage(meta, change):
        return replace(change, kind="difference")
    # Metadata that was read by SQL may lack the number: with 0, all rows are newer.
    known = meta.snapshots[change.old].sequence > 0
    return replace(change, kind="added" if change.insert_only and known else "lineage")


def _marked(meta: Metadata, path: Sequence[Snapshot], old: int) -> float:
    """The share of the rows that are in files from which commits delete some: a file has one
    deletion vector. Files may be small beside a few big ones."""
    vectors = [
        snapshot.told("added-dvs") for snapshot in path if snapshot.count("added-position-deletes")
    ]
    files = meta.snapshots[old].told("total-data-files")
    if not files or None in vectors:
        return 1.0
    big = max(1.0, meta.live_bytes(old) / _BIG)
    return min(1.0, sum(found or 0 for found in vectors) / min(files, big))


def _signed_rows(snapshot: Snapshot) -> int:
    # A growing deletion vector is removed and added as a whole.
    deletes = snapshot.count("added-position-deletes") - snapshot.count("removed-position-deletes")
    return max(0, snapshot.count("added-records") + snapshot.count("deleted-records") + deletes)


def _by_position(meta: Metadata, path: list[Snapshot], old: int) -> bool:
    """Whether rows were deleted by position only: no data file was removed or rewritten.

    No rows were deleted by value either, also before: those are marked and have no position.
    """
    return not any(snapshot.count("deleted-data-files") for snapshot in path) and all(
        snapshot.count("total-equality-deletes") == 0 for snapshot in [meta.snapshots[old], *path]
    )


def _copy_on_write(meta: Metadata, path: list[Snapshot], old: int) -> bool:
    return all(
        snapshot.count("total-delete-files") == 0 for snapshot in [meta.snapshots[old], *path]
    )


def version(name: TableName, snapshot: int | None) -> str:
    """The SQL of a table at a snapshot (None: before its first)."""
    if snapshot is None:
        return f"(SELECT * FROM {name.sql} WHERE false)"
    return f"{name.sql} VERSION AS OF {int(snapshot)}"


def as_now(spark: SparkSession, name: TableName, meta: Metadata, snapshot: int | None) -> str:
    """The SQL of a table at a snapshot, with its current columns.

    Fields of all levels are matched by their ids. Error: SQL_UNSUPPORTED where one was added
    with a default.
    """
    if snapshot is None or not meta.lags(snapshot):
        return version(name, snapshot)
    written = meta.snapshots[snapshot].schema_id
    assert written is not None
    types = {f.name: type_text(f.dataType) for f in spark.table(name.sql).schema}
    now = meta.schemas[meta.schema_id]
    values = _fields(now, meta.schemas[written], quote, name)
    parts = [
        f"CAST({value} AS {types[field['name']]}) AS {quote(field['name'])}"
        for field, value in zip(now, values, strict=True)
    ]
    return f"(SELECT {', '.join(parts)} FROM {version(name, snapshot)})"


def _fields(
    now: Sequence[Mapping[str, Any]],
    before: Sequence[Mapping[str, Any]],
    read: Callable[[str], str],
    table: TableName,
) -> list[str]:
    """The values of the written fields; `read` gives the SQL of a field by its name."""
    known = {field["id"]: field for field in before}
    values = []
    for field in now:
        old = known.get(field["id"])
        if old is not None:
            values.append(_value(field["type"], old["type"], read(old["name"]), table))
            continue
        if "initial-default" in field:
            raise StreamSqlError(
                "SQL_UNSUPPORTED",
                f"{field['name']} of {table} has a default, and no rows were written since then",
                allowed="columns that were added without a default, renamed, dropped or widened",
                hint="write to the table, then run again",
                place=Place(str(table)),
            )
        values.append("NULL")
    return values


def _value(now: Any, before: Any, sql: str, table: TableName) -> str:
    """A value converted to a type with the same ids, but other names or wider fields."""
    if not isinstance(now, Mapping) or shape(now) == shape(before):
        return sql
    # Each level reads only its own x.
    if now["type"] == "list":
        return f"transform({sql}, x -> {_value(now['element'], before['element'], 'x', table)})"
    if now["type"] == "map":
        value = _value(now["value"], before["value"], "x", table)
        return f"transform_values({sql}, (k, x) -> {value})"
    fields = _fields(now["fields"], before["fields"], lambda field: f"{sql}.{quote(field)}", table)
    return f"IF({sql} IS NULL, NULL, struct({', '.join(fields)}))"


def read(
    name: TableName,
    meta: Metadata,
    change: Change,
    columns: tuple[str, ...],
    files: ChangedFiles | None = None,
) -> str | None:
    """The change as consolidated signed rows, `columns` and the weight: SQL that may follow FROM.

    None when there is no change. With `files`, a change whose kind `is_in_files` reads no others.
    """
    names = ", ".join(quote(column) for column in columns)
    if change.kind == "none":
        return None
    if change.kind == "append":
        new = version(name, change.new) if change.old is None else _between(name, change)
        return f"(SELECT {names}, 1L AS {WEIGHT} FROM {new})"
    if change.kind == "added":
        return f"({_newer(name, meta, change, names, files)})"
    if change.kind == "changelog":
        log = _between(name, change, "changes")
        signed = f"SELECT {names}, IF(_change_type = 'INSERT', 1L, -1L) AS {WEIGHT} FROM {log}"
    elif change.kind == "positions" and files is not None:
        signed = _in_files(name, meta, change, names, files)
        if files.bytes <= FEW_BYTES:
            # One task groups its rows without a shuffle.
            signed = f"SELECT /*+ COALESCE(1) */ * FROM ({signed})"
    elif change.kind == "positions" and (change.appended or _has_lineage(meta, change)):
        signed = _by_positions(name, meta, change, names)
    elif change.kind == "lineage":
        signed = _by_lineage(name, meta, change, names, files)
    else:
        signed = difference(version(name, change.new), version(name, change.old), names)
    return consolidated(signed, meta.typed(columns))


def is_in_files(meta: Metadata, change: Change) -> bool:
    """Whether some of the files of the new snapshot suffice to read a change.

    No row is newer than its file, and rows are deleted by the files that are attached to it.
    """
    if meta.format != "iceberg" or change.old is None or change.new is None:
        return False
    if change.kind not in _IN_FILES:
        return False
    # Files are read with the table's current columns. Metadata that was read by SQL may lack the
    # number.
    return meta.snapshots[change.old].sequence > 0 and not meta.lags(change.new)


def changes_with_expiry(
    name: TableName,
    meta: Metadata,
    change: Change,
    columns: tuple[str, ...],
    expired: int,
    written: Callable[[int, int], str],
    appended: str | None = None,
) -> str | None:
    """The change as signed rows, `columns` and the weight, where old rows expire: SQL or None.

    Deleted rows that were last written in a commit up to the sequence number `expired` are left
    out. Nothing is consolidated: a rewritten row is a delete and an insert. `written` gives the
    rows of a snapshot that were written after a number, with `LINEAGE`; `appended` are the rows of
    an append-only change, if they are to be read from another relation.
    """
    names = ", ".join(quote(column) for column in columns)
    if change.kind == "none":
        return None
    if appended is not None:
        return f"(SELECT {names}, 1L AS {WEIGHT} FROM {appended})"
    if change.insert_only or change.old is None:
        return read(name, meta, change, columns)
    assert change.new is not None
    before = sequence(meta, change)
    of_old = ", ".join(f"o.{quote(column)}" for column in columns)
    # An unchanged row keeps its number, so only such rows need to be checked.
    return (
        f"(SELECT {names}, 1L AS {WEIGHT} FROM {written(change.new, before)} UNION ALL "
        f"SELECT {of_old}, -1L AS {WEIGHT} FROM {written(change.old, expired)} o LEFT ANTI JOIN "
        f"(SELECT _row_id FROM {written(change.new, expired)} WHERE {_STAMP} <= {before}) n "
        "ON o._row_id = n._row_id)"
    )


def drop_lineage_columns(written: str) -> str:
    """The visible columns of a relation with `LINEAGE`: SQL."""
    return f"(SELECT * EXCEPT ({', '.join(LINEAGE)}) FROM {written})"


def written_after(rows: str, number: int) -> str:
    """The rows of a relation with `LINEAGE` written after a sequence number (0: all), as SQL."""
    found = f" WHERE {_STAMP} > {int(number)}" if number > 0 else ""
    return f"(SELECT * FROM {rows}{found})"


def with_lineage(name: TableName, snapshot: int) -> str:
    """The rows of a version and their `LINEAGE`: SQL."""
    return f"(SELECT *, {', '.join(LINEAGE)} FROM {version(name, snapshot)})"


def difference(new: str, old: str, names: str) -> str:
    """A query of `names` and the weight: all rows of one version minus those of another."""
    return " UNION ALL ".join(
        f"SELECT {names}, {sign}L AS {WEIGHT} FROM {rows}" for sign, rows in ((1, new), (-1, old))
    )


def consolidated(signed: str, columns: Sequence[Column]) -> str:
    """Signed rows with one weight per row and none of weight 0: SQL that may follow FROM."""
    shown, keys = likeness.grouped(columns)
    return (
        f"(SELECT {shown}, sum({WEIGHT}) AS {WEIGHT} FROM ({signed}) "
        f"GROUP BY {keys} HAVING sum({WEIGHT}) <> 0)"
    )


def _between(name: TableName, change: Change, part: str = "") -> str:
    """The files (or the changelog) between the two snapshots, the older one excluded."""
    table = name.child(part) if part else name.sql
    return (
        f"{table} WITH (`start-snapshot-id` = '{change.old}', `end-snapshot-id` = '{change.new}')"
    )


def _by_positions(name: TableName, meta: Metadata, change: Change, names: str) -> str:
    """All rows of new files, minus the rows that have been marked as deleted since.

    Rows inserted and deleted between the two snapshots cancel. Marked rows are found by a flag of
    the reader, which requires no other column.
    """
    gone = f"(SELECT *, _file, _pos FROM {version(name, change.new)} WHERE _deleted"
    if change.appended:
        came = f"SELECT {names}, 1L AS {WEIGHT} FROM {_between(name, change)}"
    else:
        came = _newer(name, meta, change, names)
        gone += f" AND {_STAMP} <= {sequence(meta, change)}"
    return f"{came} UNION ALL {_gone(name, meta, change, names, gone + ')')}"


def _in_files(
    name: TableName, meta: Metadata, change: Change, names: str, files: ChangedFiles
) -> str:
    """The same from the files alone: no number of an epoch is in the text, since Spark would
    generate other code for it, and Java compile that."""
    parts = []
    if files.fresh:
        parts.append(f"SELECT {names}, 1L AS {WEIGHT} FROM {files.fresh}")
    if files.marked:
        marked = f"(SELECT * FROM {files.marked} WHERE _deleted)"
        parts.append(_gone(name, meta, change, names, marked))
    nothing = f"SELECT {names}, 1L AS {WEIGHT} FROM {version(name, None)}"
    return " UNION ALL ".join(parts) or nothing


def _gone(name: TableName, meta: Metadata, change: Change, names: str, deleted: str) -> str:
    """Those of the deleted rows that were not deleted in the old snapshot yet: a query."""
    assert change.old is not None
    known = meta.snapshots[change.old].count("total-position-deletes")
    hint = "/*+ BROADCAST(p) */ " if 0 < known <= FEW_DELETES else ""
    deleted += " r"
    if known:
        before = f"{name.child('position_deletes')} VERSION AS OF {int(change.old)}"
        deleted += f" LEFT ANTI JOIN {before} p ON r._pos = p.pos AND r._file = p.file_path"
    read = ", ".join(f"r.{column}" for column in names.split(", "))
    return f"SELECT {hint}{read}, -1L AS {WEIGHT} FROM {deleted}"


def is_flagged(meta: Metadata, change: Change) -> bool:
    """Whether flags in the new snapshot show each inserted or deleted row."""
    return change.kind == "positions" and _has_lineage(meta, change)


def _has_lineage(meta: Metadata, change: Change) -> bool:
    return all(meta.snapshots[at].has_lineage for at in (change.old, change.new) if at)


def changes_and_matches(
    name: TableName,
    meta: Metadata,
    change: Change,
    columns: tuple[str, ...],
    keys: Mapping[str, str],
) -> str:
    """The rows of an `is_flagged` change, and the rows with some key, from one read: a query.

    `keys`: column -> a relation of one column, without NULLs, each value once. In addition to the
    columns there are `GONE` and `FRESH`; a row with neither existed before and still does.
    """
    assert change.old is not None
    names = ", ".join(f"r.{quote(column)}" for column in columns)
    joins = [
        f"LEFT JOIN {keys[column]} k{at}(k) ON r.{quote(column)} = k{at}.k"
        for at, column in enumerate(keys)
    ]
    wanted = " OR ".join([GONE, FRESH, *(f"k{at}.k IS NOT NULL" for at in range(len(keys)))])
    hints = ", ".join(f"BROADCAST(k{at})" for at in range(len(keys)))
    fresh = f"{_STAMP} > {sequence(meta, change)} AS {FRESH}"
    found = (
        f"SELECT /*+ {hints} */ {names}, {GONE}, {FRESH}, r._file, r._pos FROM ("
        f"SELECT *, _file, _pos, _deleted AS {GONE}, {fresh} "
        f"FROM {version(name, change.new)}) r {' '.join(joins)} "
        f"WHERE NOT ({GONE} AND {FRESH}) AND ({wanted})"
    )
    before = f"{name.child('position_deletes')} VERSION AS OF {int(change.old)}"
    return (
        f"SELECT {names}, {GONE}, {FRESH} FROM ({found}) r LEFT ANTI JOIN {before} p "
        f"ON {GONE} AND r._pos = p.pos AND r._file = p.file_path"
    )


def changes_from_matches(rows: str, meta: Metadata, columns: tuple[str, ...]) -> str:
    """Only the change, as from `read`, of the relation `rows` of a `changes_and_matches`."""
    names = ", ".join(quote(column) for column in columns)
    return consolidated(
        f"SELECT {names}, IF({GONE}, -1L, 1L) AS {WEIGHT} FROM {rows} WHERE {GONE} OR {FRESH}",
        meta.typed(columns),
    )


def _by_lineage(
    name: TableName, meta: Metadata, change: Change, names: str, files: ChangedFiles | None
) -> str:
    """Rows newer than the old snapshot, minus the old rows that are deleted or rewritten.

    Compaction keeps a row's id and sequence number, so it has no effect.
    """
    new, old = version(name, change.new), version(name, change.old)
    of_old = ", ".join(f"o.{column}" for column in names.split(", "))
    return (
        f"{_newer(name, meta, change, names, files)} UNION ALL "
        f"SELECT {of_old}, -1L AS {WEIGHT} FROM (SELECT *, _row_id AS _id FROM {old}) o LEFT ANTI "
        f"JOIN (SELECT _row_id AS _id FROM {new} WHERE {_STAMP} <= {sequence(meta, change)}) n "
        "ON o._id = n._id"
    )


def _newer(
    name: TableName,
    meta: Metadata,
    change: Change,
    names: str,
    files: ChangedFiles | None = None,
) -> str:
    """Rows that were added or rewritten after the old snapshot."""
    if files is not None and not files.fresh:
        return f"SELECT {names}, 1L AS {WEIGHT} FROM {version(name, None)}"
    new = files.fresh if files is not None else version(name, change.new)
    return f"SELECT {names}, 1L AS {WEIGHT} FROM {new} WHERE {_STAMP} > {sequence(meta, change)}"


def sequence(meta: Metadata, change: Change) -> int:
    """The sequence number up to which rows existed before a change."""
    return meta.snapshots[change.old].sequence if change.old is not None else 0
