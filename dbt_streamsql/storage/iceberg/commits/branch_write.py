"""Rows replaced in one visible change: written on a branch, published by one move.

Iceberg's single statement for this, MERGE, would have to join the whole table.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg import metadata, staging
from dbt_streamsql.storage.iceberg.commits import refs
from dbt_streamsql.storage.iceberg.commits.refs import RefUpdate

_PREFIX = "streamsql_rows_"


def possible(spark: SparkSession, table: TableName) -> bool:
    """Whether the table has branches, as Iceberg tables do."""
    try:
        metadata.load(spark, table)
    except StreamSqlError:
        return False
    return True


@contextmanager
def branch(spark: SparkSession, table: TableName) -> Iterator[str]:
    """The target, as SQL, of statements that become visible together when the block succeeds.

    The branches of earlier writers are removed: that of a dead one is useless, and a living one is
    fenced off. Error: META_CONFLICT when another writer has written in the meantime; then the
    table has nothing of this block.
    """
    found = metadata.load(spark, table)
    if found is None or found.current is None:
        # There is nothing to read yet, and the first rows are one commit.
        yield table.sql
        return
    name = f"{_PREFIX}{uuid.uuid4().hex}"
    left = tuple(ref for ref in found.refs if ref.startswith(_PREFIX))
    refs.update_refs(spark, table, RefUpdate(branches={name: found.current}, drop_branches=left))
    written = False
    try:
        yield staging.branch_sql(table, name)
        written = True
        refs.update_refs(spark, table, RefUpdate(forward=name, drop_branches=(name,)))
    except BaseException as error:
        now = metadata.load(spark, table)
        fenced = now is None or name not in now.refs
        if not fenced:
            refs.update_refs(spark, table, RefUpdate(drop_branches=(name,)))
        if isinstance(error, Exception) and (fenced or written):
            raise StreamSqlError(
                "META_CONFLICT",
                "another run wrote the table at the same time",
                given="no change of this run was written",
                hint="run the model again, with `dbt retry`",
                place=Place(str(table)),
            ) from error
        raise
