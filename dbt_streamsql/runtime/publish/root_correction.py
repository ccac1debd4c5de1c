"""Correct an outside table where no reader looks, then publish by one pointer change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.storage.iceberg import metadata, staging
from dbt_streamsql.storage.iceberg.commits import refs
from dbt_streamsql.storage.iceberg.commits.refs import RefUpdate
from dbt_streamsql.storage.inputs import inputs

PREFIX = "streamsql_revision_"
"""Prefix of the branch on which a store corrects a table; the store's id follows."""


def place(name: TableName, store: str) -> str:
    """The branch of a table on which its correction is written, as SQL."""
    return staging.branch_sql(name, PREFIX + store)


def correct(
    spark: SparkSession, name: TableName, store: str, back_to: int | None, texts: Sequence[str]
) -> None:
    """Roll a table back to a snapshot (None: the newest one), then run statements that are written
    for `place`.

    Errors: REVISION_IMPOSSIBLE, META_CONFLICT when another writer commits to the table meanwhile;
    the table is unchanged then.
    """
    found = metadata.load(spark, name)
    if found is None or found.current is None:
        raise StreamSqlError("REVISION_IMPOSSIBLE", f"{name} has no rows to revise")
    head, branch = back_to or found.current, PREFIX + store
    if texts:
        with failpoint("revise.write"):
            refs.update_refs(spark, name, RefUpdate(branches={branch: head}))
            try:
                for text in texts:
                    spark.sql(text)
            except PySparkException:
                drop(spark, name, store)
                raise
    with failpoint("revise.publish"):
        now = metadata.load(spark, name)
        if now is None or now.current != found.current:
            drop(spark, name, store)
            raise StreamSqlError(
                "META_CONFLICT",
                f"{name} was modified by another writer during the correction",
                hint="nothing was changed; run the revision again",
            )
        head = now.refs.get(branch, head)
        if head != found.current:
            refs.set_current(spark, name, head)
    drop(spark, name, store)


def sweep(spark: SparkSession, names: Iterable[TableName], store: str) -> int:
    """Remove what dead processes left of corrections; returns the number of branches."""
    return sum(drop(spark, name, store) for name in names)


def drop(spark: SparkSession, name: TableName, store: str) -> int:
    """Remove what a correction left; returns the number of branches."""
    found = inputs.find(spark, name)
    if found is None or PREFIX + store not in found.refs:
        return 0
    with failpoint("sweep.branch"):
        refs.update_refs(spark, name, RefUpdate(drop_branches=(PREFIX + store,)))
    return 1
