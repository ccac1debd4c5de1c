"""The rows of a big table that have one of some keys, read from its files in this process.

Spark plans a statement, sends the keys to every task and decodes all columns of all row groups
that its ranges leave. Here the row groups are chosen by each single key, the column of the keys is
decoded first, and the others only where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dbt_streamsql.storage.iceberg.arrow_schema import arrow_schema
from dbt_streamsql.storage.iceberg.gateway_work import Positions
from dbt_streamsql.storage.iceberg.scans.file_rows import (
    FileRows,
    column_file,
    footer,
    names_of,
    taken,
)
from dbt_streamsql.storage.iceberg.scans.live_files import live_files
from dbt_streamsql.storage.locations import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_streamsql.quoting import TableName

_THREADS = 2
"""Row groups that are decoded side by side."""
_SPARSE = 16
"""Numbers between the ends of a column for each of its values, up to which there is a table of
them."""


@dataclass(frozen=True)
class Limit:
    """What the process reads at most: `bytes` to decode, not compressed, and `rows` found."""

    bytes: int
    rows: int


@dataclass(frozen=True)
class Asked:
    """The rows whose column `key` is one of `keys`, with some columns.

    `keys`: integers, dates or texts, without NULL.
    """

    columns: Sequence[str]
    key: str
    keys: pa.Array
    limit: Limit


@dataclass(frozen=True)
class _Group:
    """A row group that may have one of the keys. `start`: the position of its first row in the
    file; `deleted`: positions in the group; `bytes`: those of the columns, not compressed."""

    path: str
    local: Path
    number: int
    start: int
    rows: int
    names: list[str]
    deleted: Any
    bytes: int


def read(
    spark: SparkSession, name: TableName, snapshot: int, asked: Asked
) -> list[FileRows] | None:
    """The rows of a snapshot that are asked for; at least one part, which may have no rows.

    None where Spark has to read them: where files are not Parquet on this machine, have deletes
    other than deletion vectors, lack a column, or have more than the limit, and where the column
    is of another kind than the keys.
    """
    schema = arrow_schema(spark, name)
    names = dict.fromkeys((asked.key, *asked.columns))
    if not names.keys() <= set(schema.names):
        return None
    wanted = pa.schema(schema.field(column) for column in names)
    keys = _sorted_keys(asked.keys, wanted.field(asked.key).type)
    files = live_files(spark, name, snapshot) if keys is not None else None
    if files is None:
        return None
    try:
        parts = _keyed(files, wanted, keys, asked.limit)
    except (OSError, pa.ArrowException):
        # Spark reads it, or says what is wrong.
        return None
    if parts is None:
        return None
    none = FileRows("", wanted.empty_table(), pa.array([], pa.int64()))
    columns = list(asked.columns)
    return [
        FileRows(part.path, part.rows.select(columns), part.positions) for part in parts or [none]
    ]


def _sorted_keys(keys: pa.Array, kind: pa.DataType) -> Any:
    """The keys as sorted numbers, or the sorted bytes of texts, as files order both; None where
    they are of another kind than the column."""
    if pa.types.is_string(kind) and pa.types.is_string(keys.type):
        return np.array(sorted(set(keys.cast(pa.binary()).to_pylist())), object)
    dates = pa.types.is_date32(kind)
    if dates != pa.types.is_date32(keys.type):
        return None
    if not dates and not (pa.types.is_integer(kind) and pa.types.is_integer(keys.type)):
        return None
    numbers = keys.cast(pa.int32()) if dates else keys
    found = np.unique(numbers.cast(pa.int64()).to_numpy(zero_copy_only=False))
    ends = np.iinfo("int32" if dates else kind.to_pandas_dtype())
    return found[(found >= ends.min) & (found <= ends.max)]


def _keyed(
    files: Mapping[str, Positions], wanted: pa.Schema, asked: Any, limit: Limit
) -> list[FileRows] | None:
    """The rows of some files with all `wanted` columns; None over the limit."""
    groups: list[_Group] = []
    most = limit.bytes
    for path, deleted in files.items():
        local = local_path(path)
        found = None if local is None else _groups_with(path, local, wanted, asked, deleted)
        if found is None:
            return None
        groups += found
        most -= sum(group.bytes for group in found)
        if most < 0:
            return None
    if not groups:
        return []
    # A column with few values has too many rows of each: one row group shows it.
    first = _positions(groups[0], asked)
    share = len(first) / max(1, groups[0].rows)
    if share * sum(group.rows for group in groups) > limit.rows:
        return None
    with ThreadPoolExecutor(_THREADS) as threads:
        others = threads.map(lambda group: _positions(group, asked), groups[1:])
        places = [first, *others]
        if sum(len(at) for at in places) > limit.rows:
            return None
        having = [(group, at) for group, at in zip(groups, places, strict=True) if len(at)]
        return list(threads.map(lambda each: _taken(each[0], each[1], wanted), having))


def _groups_with(
    path: str, local: Path, wanted: pa.Schema, asked: Any, deleted: Positions
) -> list[_Group] | None:
    """The row groups of a file that may have one of the keys."""
    metadata, _ = footer(local)
    with pq.ParquetFile(local, metadata=metadata) as file:
        names = names_of(file, wanted)
    if names is None:
        return None
    gone = np.sort(deleted)
    at = _columns(metadata, names)
    found, start = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if _may_have_key(group.column(at[0]).statistics, asked):
            first, last = np.searchsorted(gone, (start, start + group.num_rows))
            size = sum(group.column(each).total_uncompressed_size for each in at)
            inside = gone[first:last] - start
            found.append(_Group(path, local, number, start, group.num_rows, names, inside, size))
        start += group.num_rows
    return found


def _columns(metadata: pq.FileMetaData, names: Sequence[str]) -> list[int]:
    """The numbers of columns, which are the same in all row groups; the first one's first."""
    if not metadata.num_row_groups:
        return []
    group = metadata.row_group(0)
    paths = [group.column(each).path_in_schema for each in range(group.num_columns)]
    return [paths.index(name) for name in names]


def _may_have_key(statistics: Any, asked: Any) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    # As stored, a date is the days since 1970; Python's own dates end at the year 9999.
    at = np.searchsorted(asked, statistics.min_raw)
    return bool(at < len(asked) and asked[at] <= statistics.max_raw)


def _positions(group: _Group, asked: Any) -> Any:
    """Those of the rows that have one of the keys and are not deleted, in the row group."""
    metadata, _ = footer(group.local)
    with pq.ParquetFile(group.local, metadata=metadata, memory_map=True) as file:
        keys = file.read_row_group(group.number, [group.names[0]], use_threads=False).column(0)
    at = _places(keys, asked)
    return at[~np.isin(at, group.deleted)] if len(group.deleted) else at


def _places(keys: pa.ChunkedArray, asked: Any) -> Any:
    """Those of the keys that are among `asked`."""
    is_date = pa.types.is_date32(keys.type)
    if asked.dtype != object and not keys.null_count and len(keys):
        # A table of the values between the ends is several times as fast as Arrow's hashes.
        values = (keys.cast(pa.int32()) if is_date else keys).to_numpy()
        least, most = int(values.min()), int(values.max())
        if most - least < _SPARSE * len(values):
            found = np.zeros(most - least + 1, bool)
            found[asked[(asked >= least) & (asked <= most)] - least] = True
            return np.flatnonzero(found[values - least])
    if is_date:
        among = pa.array(asked).cast(pa.int32()).cast(keys.type)
    else:
        among = pa.array(asked, pa.binary() if asked.dtype == object else None).cast(keys.type)
    return np.flatnonzero(pc.is_in(keys, value_set=among).to_numpy())


def _taken(group: _Group, at: Any, wanted: pa.Schema) -> FileRows:
    # One column after the other: all of them decoded can take a gigabyte.
    with column_file(group.local, group.names) as file:
        columns = [
            taken(file, group.number, name, at, field.type)
            for name, field in zip(group.names, wanted, strict=True)
        ]
    rows = pa.table(columns, schema=wanted)
    return FileRows(group.path, rows, pa.array(at + group.start))
