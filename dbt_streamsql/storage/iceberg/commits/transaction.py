"""Moves of several tables' refs as one commit, where the catalog has such a thing.

`POST /v1/{prefix}/transactions/commit` of Iceberg's REST protocol: readers of any engine see all
tables as they were, or all of them moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg.commits.refs import RefUpdate
from dbt_streamsql.storage.java import (
    instance_of,
    java_catalog,
    java_class,
    java_identifier,
    java_table,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REST = "org.apache.iceberg.rest.RESTCatalog"


def commit(
    spark: SparkSession,
    moves: Mapping[TableName, RefUpdate],
    with_moves: Callable[[Any, Any, RefUpdate], Any],
) -> bool:
    """Apply all moves of one catalog's tables, or none; False where the catalog has no
    transactions. `with_moves` adds a table's moves to an update of its refs; it also gets those
    that there are."""
    catalog = java_catalog(spark, next(iter(moves)).catalog)
    if not instance_of(spark, catalog, _REST):
        return False
    commits = java_class(spark, "java.util.ArrayList")()
    of = java_class(spark, "org.apache.iceberg.catalog.TableCommit")
    for name, update in moves.items():
        table = java_table(spark, name)
        changed = table.newTransaction()
        with_moves(table.refs(), changed.manageSnapshots(), update).commit()
        states = changed.startMetadata(), changed.currentMetadata()
        commits.add(of.create(java_identifier(spark, name), *states))
    catalog.commitTransaction(commits)
    return True
