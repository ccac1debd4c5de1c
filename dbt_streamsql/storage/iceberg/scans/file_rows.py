"""The rows of a small table, read from its files in this process: no statement, no Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dbt_streamsql.storage.arrow_rows import memory_of
from dbt_streamsql.storage.iceberg.arrow_schema import FIELD_ID, arrow_schema
from dbt_streamsql.storage.iceberg.gateway_work import Positions
from dbt_streamsql.storage.iceberg.scans.live_files import live_files
from dbt_streamsql.storage.locations import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_streamsql.quoting import TableName


@dataclass(frozen=True)
class FileRows:
    """The live rows of one data file, and the position of each in the file."""

    path: str
    rows: pa.Table
    positions: pa.Array


def read(
    spark: SparkSession, name: TableName, snapshot: int, columns: Sequence[str], most: int
) -> list[FileRows] | None:
    """The rows of a snapshot, by file; None where Spark has to read them.

    That is where the table has other columns now, takes more than `most` bytes of memory, or has
    files that are not Parquet on this machine, were written with other columns, or have deletes
    other than deletion vectors.
    """
    files = live_files(spark, name, snapshot)
    if files is None:
        return None
    schema = arrow_schema(spark, name)
    if not set(columns) <= set(schema.names):
        return None
    wanted = pa.schema(schema.field(column) for column in columns)
    found = []
    for path, deleted in files.items():
        rows = _rows(path, wanted, most)
        if rows is None:
            return None
        most -= memory_of(rows)
        found.append(_live(path, rows, deleted))
    return found


def numbers(most: int) -> pa.Array:
    """The first `most` numbers, from 0."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), most)
    return pc.subtract(pc.cumulative_sum(ones), 1)


def _rows(path: str, wanted: pa.Schema, most: int) -> pa.Table | None:
    """The columns of a file, found by their ids, with the names and types of `wanted`; None where
    it lacks some, takes more than `most` bytes, or is elsewhere."""
    local = local_path(path)
    if local is None:
        return None
    with pq.ParquetFile(local) as file:
        names = names_of(file, wanted)
        groups = (file.metadata.row_group(index) for index in range(file.num_row_groups))
        if names is None or sum(group.total_byte_size for group in groups) > most:
            return None
        rows = file.read(columns=names, use_threads=False).select(names)
    return rows.rename_columns(wanted.names).cast(wanted)


def names_of(file: pq.ParquetFile, wanted: pa.Schema) -> list[str] | None:
    """The columns of a file that have the ids of `wanted`; None where it lacks some."""
    key = FIELD_ID.encode()
    ids = {field.metadata.get(key): field.name for field in file.schema_arrow if field.metadata}
    numbers = [field.metadata[key] for field in wanted]
    return [ids[number] for number in numbers] if set(numbers) <= ids.keys() else None


def column_file(path: Path, names: Sequence[str]) -> pq.ParquetFile:
    """A file of which single columns are read. Texts that it holds as numbers of a dictionary are
    read so: that takes a third of the time, and only few of them are needed."""
    metadata, numbered = footer(path)
    texts = [name for name in names if name in numbered]
    return pq.ParquetFile(path, metadata=metadata, read_dictionary=texts, memory_map=True)


@lru_cache(maxsize=64)
def footer(path: Path) -> tuple[pq.FileMetaData, frozenset[str]]:
    """What a file says of itself, and its columns of texts that are numbers of a dictionary
    everywhere. A file never changes, and is opened for each of its row groups."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = zip(
        *([group.column(at) for at in range(group.num_columns)] for group in groups), strict=True
    )
    numbered = (
        chunks[0].path_in_schema
        for chunks in columns
        if chunks[0].physical_type == "BYTE_ARRAY"
        and not any("PLAIN" in chunk.encodings for chunk in chunks)
    )
    return metadata, frozenset(numbered)


def taken(
    file: pq.ParquetFile, group: int, name: str, at: Any, kind: pa.DataType
) -> pa.ChunkedArray:
    """The values of a column at some positions of a row group."""
    values = file.read_row_group(group, [name], use_threads=False).column(name)
    return values.take(pa.array(at)).cast(kind)


def _live(path: str, rows: pa.Table, deleted: Positions) -> FileRows:
    positions = numbers(rows.num_rows)
    if len(deleted):
        lives = pc.invert(pc.is_in(positions, pa.array(deleted, pa.int64())))
        rows, positions = rows.filter(lives), positions.filter(lives)
    return FileRows(path, rows, positions)
