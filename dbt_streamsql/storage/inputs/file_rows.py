"""Upper bounds for the row counts of files, read by the driver: for choosing strategies.

Parquet has the count in its last bytes. Small text and ORC files are read. For all others, and for
many at once, it is unknown: they are processed by the strategies for many rows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.storage.iceberg.files import read_at
from dbt_streamsql.storage.inputs.file_listing import File

_FILES = 32
_SMALL = 1 << 20
"""Bytes of the files of one change that are read for this."""

_TAIL = 1 << 16
_END = 8
"""Bytes after the footer of a Parquet file: its length, and four letters."""

_TEXTS = frozenset({"csv", "json", "text"})
_PACKED = (".gz", ".bz2", ".lz4", ".snappy", ".deflate", ".zst", ".zstd", ".xz")
_OTHER_LINES = ("lineSep", "multiLine")
"""Options that change what ends a row."""


@dataclass(frozen=True)
class RowCount:
    """Counts rows of files of one table; `options` are those of its format."""

    spark: SparkSession
    kind: str
    options: str
    known: dict[tuple[File, ...], int | None] = field(default_factory=dict)

    def __call__(self, files: Sequence[File]) -> int | None:
        """A bound of the rows; None when it is unknown."""
        key = tuple(files)
        if key not in self.known:
            self.known[key] = self._counted(key)
        return self.known[key]

    def _counted(self, files: Sequence[File]) -> int | None:
        if len(files) > _FILES:
            return None
        try:
            if self.kind == "parquet":
                return sum(map(self._of_parquet, files))
            if sum(file.size for file in files) > _SMALL:
                return None
            if self.kind == "orc":
                return sum(map(self._of_orc, files))
            if self.kind in _TEXTS and not any(map(self._is_unread, files)):
                return sum(map(self._of_text, files))
        except (Py4JError, PySparkException, pa.ArrowException, ValueError, struct.error):
            # It may be gone, or not be such a file: the query will show it.
            return None
        return None

    def _of_parquet(self, file: File) -> int:
        tail = self._read(file, _TAIL)
        (length,) = struct.unpack("<I", tail[-_END:-4])
        if length + _END > len(tail):
            if length > _SMALL:
                raise ValueError(length)
            tail = self._read(file, length + _END)
        return int(pq.read_metadata(pa.BufferReader(tail)).num_rows)

    def _of_orc(self, file: File) -> int:
        from pyarrow import orc

        return int(orc.ORCFile(pa.BufferReader(self._read(file, file.size))).nrows)

    def _of_text(self, file: File) -> int:
        text = self._read(file, file.size)
        rows = text.count(b"\n") + text.count(b"\r") + (text[-1:] not in (b"\n", b"\r", b""))
        # A line may contain a list of objects.
        return max(rows, text.count(b"{")) if self.kind == "json" else rows

    def _is_unread(self, file: File) -> bool:
        packed = file.path.lower().endswith(_PACKED)
        return packed or any(option.lower() in self.options.lower() for option in _OTHER_LINES)

    def _read(self, file: File, length: int) -> bytes:
        """The last bytes of a file."""
        return read_at(self.spark, file.path, max(0, file.size - length))
