"""The branch of a table on which an epoch writes: no reader looks there before the barrier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.storage.iceberg import staging
from dbt_streamsql.storage.iceberg.commits.refs import RefUpdate, update_refs
from dbt_streamsql.storage.iceberg.provenance import Provenance


def create(spark: SparkSession, table: TableName, branch: str, base: int) -> None:
    """Create a branch that starts at the snapshot `base`."""
    with failpoint("branch.create"):
        update_refs(spark, table, RefUpdate(branches={branch: base}))


@contextmanager
def written(
    spark: SparkSession, table: TableName, base: int, origin: Provenance
) -> Iterator[tuple[str, str]]:
    """A new branch of the origin's barrier for one statement: its name, and the target in SQL.

    The snapshot that the statement commits records `origin`.
    """
    branch = staging.branch_name(origin.barrier)
    create(spark, table, branch, base)
    with failpoint("branch.write"), staging.stamped(spark, origin):
        yield branch, staging.branch_sql(table, branch)
