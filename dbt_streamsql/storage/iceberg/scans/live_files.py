"""The files of snapshots, kept in the process: a snapshot never changes.

A program looks into one snapshot for each of its terms. Where many rows are deleted by position,
reading their positions takes longer than finding the rows: 2 s for a million and a half.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dbt_streamsql.storage.iceberg import gateway_work
from dbt_streamsql.storage.iceberg.gateway_work import Positions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt_streamsql.quoting import TableName

_MOST = 16 << 20
"""Files and deleted rows of all snapshots that are kept: 128 MB."""

_known: OrderedDict[tuple[TableName, int], Mapping[str, Positions]] = OrderedDict()
_lock = threading.Lock()


def live_files(
    spark: SparkSession, name: TableName, snapshot: int
) -> Mapping[str, Positions] | None:
    """As `gateway_work.live_files` returns them, which is asked once for a snapshot."""
    with _lock:
        known = _known.get((name, snapshot))
        if known is not None:
            _known.move_to_end((name, snapshot))
            return known
    found = gateway_work.live_files(spark, name, snapshot)
    if found is not None:
        with _lock:
            _known[name, snapshot] = found
            while len(_known) > 1 and sum(map(_size, _known.values())) > _MOST:
                _known.popitem(last=False)
    return found


def _size(files: Mapping[str, Positions]) -> int:
    return len(files) + sum(map(len, files.values()))
