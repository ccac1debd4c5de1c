"""The change of a big table, read from its files in this process: no statement, no Spark job.

Spark decodes every row of a file to find the few that were deleted from it. Here their positions
are known first, each column is decoded by itself, and only its row groups with such a position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.storage.arrow_rows import net_rows
from dbt_streamsql.storage.iceberg import gateway_work
from dbt_streamsql.storage.iceberg.arrow_schema import arrow_schema
from dbt_streamsql.storage.iceberg.gateway_work import ChangedFile
from dbt_streamsql.storage.iceberg.scans.changes import Change, is_in_files, sequence
from dbt_streamsql.storage.iceberg.scans.file_rows import column_file, names_of, taken
from dbt_streamsql.storage.locations import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_streamsql.quoting import TableName
    from dbt_streamsql.storage.iceberg.metadata import Metadata

_THREADS = 2
"""Columns that are decoded side by side: each of a file takes some tens of megabytes."""


def read(
    spark: SparkSession,
    name: TableName,
    meta: Metadata,
    change: Change,
    columns: Sequence[str],
    most: int,
) -> pa.Table | None:
    """The consolidated signed rows of a change of kind positions: `columns` and the weight.

    None where Spark has to read them: where files are not Parquet on this machine, have deletes
    other than deletion vectors, lack a column, or have more than `most` bytes to decode; and where
    a column has a type whose equal values Arrow does not know.
    """
    if change.kind != "positions" or not is_in_files(meta, change) or not columns:
        return None
    assert change.old is not None
    assert change.new is not None
    schema = arrow_schema(spark, name)
    if not set(columns) <= set(schema.names):
        return None
    wanted = pa.schema(schema.field(column) for column in columns)
    if any(pa.types.is_floating(field.type) for field in wanted):
        return None
    number = sequence(meta, change)
    files = gateway_work.changed_files(spark, name, change.old, change.new, number)
    try:
        return None if files is None else _decoded(files, wanted, most)
    except (OSError, pa.ArrowException):
        # Spark reads it, or says what is wrong.
        return None


def _decoded(files: Sequence[ChangedFile], wanted: pa.Schema, most: int) -> pa.Table | None:
    parts = []
    for file in files:
        part = _part(file, wanted)
        if part is None:
            return None
        most -= part.bytes
        if most < 0:
            return None
        parts.append(part)
    with ThreadPoolExecutor(_THREADS) as threads:
        found = [part.rows(wanted, threads) for part in parts]
    return net_rows(pa.concat_tables([_none(wanted), *found]), wanted.names)


@dataclass(frozen=True)
class _Part:
    """Rows of one file. `names`: the columns in it; `groups`: its row groups with such rows, each
    with their positions there; `weight`: 1 or -1; `bytes`: those to decode."""

    path: Path
    names: list[str]
    groups: list[tuple[int, Any]]
    weight: int
    bytes: int

    def rows(self, wanted: pa.Schema, threads: ThreadPoolExecutor) -> pa.Table:
        columns = list(threads.map(self._column, self.names, wanted.types))
        count = sum(len(positions) for _, positions in self.groups)
        weights = pa.repeat(pa.scalar(self.weight, pa.int64()), count)
        return pa.table([*columns, weights], names=[*wanted.names, WEIGHT])

    def _column(self, name: str, kind: pa.DataType) -> pa.ChunkedArray:
        with column_file(self.path, [name]) as file:
            pieces = [taken(file, group, name, at, kind) for group, at in self.groups]
        return pa.chunked_array(chain.from_iterable(each.chunks for each in pieces), kind)


def _part(file: ChangedFile, wanted: pa.Schema) -> _Part | None:
    local = local_path(file.path)
    if local is None:
        return None
    deleted = file.deleted
    with pq.ParquetFile(local) as opened:
        names = names_of(opened, wanted)
        if names is None:
            return None
        found, size = [], 0
        for group, start, rows, decoded in _groups(opened, names):
            inside = deleted[(deleted >= start) & (deleted < start + rows)] - start
            positions = np.delete(np.arange(rows), inside) if file.added else inside
            if len(positions):
                found.append((group, positions))
                size += decoded
    return _Part(local, names, found, 1 if file.added else -1, size)


def _groups(file: pq.ParquetFile, names: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """The row groups: number, position of the first row, rows, and bytes of some columns."""
    start = 0
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        chunks = (group.column(at) for at in range(group.num_columns))
        decoded = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema in names)
        yield number, start, group.num_rows, decoded
        start += group.num_rows


def _none(wanted: pa.Schema) -> pa.Table:
    columns = [(field.name, field.type) for field in wanted]
    return pa.schema([*columns, (WEIGHT, pa.int64())]).empty_table()
