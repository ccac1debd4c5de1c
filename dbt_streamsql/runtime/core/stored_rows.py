"""The rows of small views as they are stored, kept in the process from one epoch to the next.

A comparison of a view with its query needs them each time, and knows them afterwards: what it
wrote itself is the only difference. A snapshot identifies them, so that other writes to a table do
no harm: its rows are read again.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT
from dbt_streamsql.storage.arrow_rows import memory_of
from dbt_streamsql.storage.iceberg.scans.file_rows import FileRows, numbers

FILE, POSITION = f"{HIDDEN_PREFIX}file", f"{HIDDEN_PREFIX}position"
"""Where a row is stored: its file, and its number in it."""
PLACE_IN_NUMBERS = {FILE: "crc32(CAST(_file AS BINARY))", POSITION: "_pos"}
"""The same in Spark SQL, which finds the largest number by hashing, but would sort rows for
texts."""
COPIES = f"{HIDDEN_PREFIX}copies"
"""The number of stored rows that are equal to this one."""
_ROW = f"{HIDDEN_PREFIX}row"


@dataclass(frozen=True)
class Difference:
    """How a view is to change: signed rows over its columns, and the rows to remove, by number."""

    change: pa.Table
    lost: pa.Array


@dataclass(frozen=True)
class StoredRows:
    """Rows with the columns of a view, and with `FILE` (the CRC-32 of its path) and `POSITION`."""

    rows: pa.Table

    @classmethod
    def of_files(cls, files: Sequence[FileRows]) -> StoredRows:
        """The rows of some files, at least one."""
        return cls(pa.concat_tables([_placed(each) for each in files]).combine_chunks())

    @property
    def size(self) -> int:
        """Bytes."""
        return memory_of(self.rows)

    def difference(self, wanted: pa.Table) -> Difference:
        """What `wanted` has more often than these rows, and less often; it has their columns."""
        names = self.rows.column_names[:-2]
        wanted = _plain(wanted.cast(self.rows.select(names).schema))
        every = numbers(self.rows.num_rows)
        here = _plain(self.rows.select(names))
        both = pa.concat_tables(
            [
                _with(wanted, 1, pa.nulls(wanted.num_rows, pa.int64())),
                _with(here, -1, every),
            ]
        )
        sums = [(WEIGHT, "sum"), (_ROW, "count"), (_ROW, "max")]
        # One thread: other views are computed in parallel.
        found = both.group_by(names, use_threads=False).aggregate(sums)
        found = found.filter(pc.not_equal(found.column(f"{WEIGHT}_sum"), 0))
        weights = found.column(f"{WEIGHT}_sum")
        goes = found.filter(pc.less(weights, 0))
        lost = goes.column(f"{_ROW}_max").combine_chunks()
        if (pc.max(goes.column(f"{_ROW}_count")).as_py() or 0) > 1:
            lost = _several(both, names)
        return Difference(found.select(names).append_column(WEIGHT, weights), lost)

    def after(self, lost: pa.Array, come: pa.Table, path: str) -> StoredRows:
        """The rows without those numbered `lost`, and with `come` in a file of its own, in that
        order."""
        left = self.rows
        if len(lost):
            left = left.filter(pc.invert(pc.is_in(numbers(left.num_rows), lost)))
        if come.num_rows:
            rows = _placed(FileRows(path, come, numbers(come.num_rows)))
            left = pa.concat_tables([left, rows.cast(left.schema)])
        return StoredRows(left.combine_chunks())


def _placed(found: FileRows) -> pa.Table:
    """The rows of a file with their places."""
    file = pa.repeat(pa.scalar(zlib.crc32(found.path.encode()), pa.int64()), found.rows.num_rows)
    return found.rows.append_column(FILE, file).append_column(POSITION, found.positions)


def _plain(rows: pa.Table) -> pa.Table:
    """The rows with only one zero and one NaN value."""
    for at, column in enumerate(rows.columns):
        if pa.types.is_floating(column.type):
            one = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
            zero = pa.scalar(0.0, column.type)
            rows = rows.set_column(at, rows.schema.field(at), pc.add(one, zero))
    return rows


def _with(rows: pa.Table, weight: int, numbers: pa.Array) -> pa.Table:
    weights = pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows)
    return rows.append_column(WEIGHT, weights).append_column(_ROW, numbers)


def _several(both: pa.Table, names: list[str]) -> pa.Array:
    """The numbers of the rows to remove, where some of them are copies of others."""
    found = both.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum"), (_ROW, "list")])
    found = found.filter(pc.less(found.column(f"{WEIGHT}_sum"), 0))
    lost: list[int] = []
    weights = found.column(f"{WEIGHT}_sum").to_pylist()
    rows = found.column(f"{_ROW}_list").to_pylist()
    for weight, copies in zip(weights, rows, strict=True):
        lost += [number for number in copies if number is not None][:-weight]
    return pa.array(lost, pa.int64())


At = tuple[int, int]
"""A snapshot of a table and the schema that it is read by: columns may be renamed."""


@dataclass
class KnownRows:
    """The newest rows of views, in `most` bytes in all; the most recently used ones stay.

    Threads share it.
    """

    most: int
    _known: OrderedDict[str, tuple[At, StoredRows]] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, table: str, at: At) -> StoredRows | None:
        with self._lock:
            found = self._known.get(table)
            if found is None or found[0] != at:
                return None
            self._known.move_to_end(table)
            return found[1]

    def put(self, table: str, at: At, rows: StoredRows) -> None:
        """Replace what is known of the table."""
        with self._lock:
            self._drop(table)
            if rows.size > self.most // 4:
                return
            self._known[table] = (at, rows)
            self._bytes += rows.size
            while self._bytes > self.most:
                self._drop(next(iter(self._known)))

    def _drop(self, table: str) -> None:
        found = self._known.pop(table, None)
        if found is not None:
            self._bytes -= found[1].size
