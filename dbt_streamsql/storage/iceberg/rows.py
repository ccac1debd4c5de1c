"""Rows replaced by others in one visible change: written on a branch, published by one move.

Iceberg's one statement for it, MERGE, would have to join the whole table.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import metadata, refs, staging
from dbt_streamsql.storage.iceberg.refs import Moves

_PREFIX = "streamsql_rows_"


def possible(spark: SparkSession, table: TableName) -> bool:
    """Whether the table has branches, as Iceberg's have."""
    try:
        metadata.load(spark, table)
    except StreamSqlError:
        return False
    return True


@contextmanager
def branch(spark: SparkSession, table: TableName) -> Iterator[str]:
    """The target, as SQL, of statements that become visible together when the block ends well.

    Somebody else's commit in the meantime makes it fail and changes nothing. The branches of
    earlier writers are removed: a dead one's is of no use, a living one is fenced off by it.
    """
    found = metadata.load(spark, table)
    if found is None or found.current is None:
        # Nothing can be read yet, and the first rows are one commit.
        yield table.sql
        return
    name = f"{_PREFIX}{uuid.uuid4().hex}"
    left = tuple(ref for ref in found.refs if ref.startswith(_PREFIX))
    refs.move(spark, table, Moves(branches={name: found.current}, drop_branches=left))
    try:
        yield staging.branch_sql(table, name)
        refs.move(spark, table, Moves(forward=name, drop_branches=(name,)))
    except BaseException:
        now = metadata.load(spark, table)
        if now is not None and name in now.refs:
            refs.move(spark, table, Moves(drop_branches=(name,)))
        raise
