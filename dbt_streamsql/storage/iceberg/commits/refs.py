"""Branches and tags of a table, moved together in one commit.

Over Spark Connect each move is its own statement, in an order that is safe to stop in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from dbt_streamsql.quoting import TableName, literal, quote
from dbt_streamsql.storage.iceberg.access import tables_of


@dataclass(frozen=True)
class RefUpdate:
    """Changes to the refs of one table.

    `branches` and `tags` to make, by name, at a snapshot; `forward`: the branch whose head becomes
    the head of main; then the branches and tags to drop.
    """

    branches: Mapping[str, int] = field(default_factory=dict)
    tags: Mapping[str, int] = field(default_factory=dict)
    forward: str = ""
    drop_branches: tuple[str, ...] = ()
    drop_tags: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        parts = (self.branches, self.tags, self.forward, self.drop_branches, self.drop_tags)
        return any(parts)


def update_refs(spark: SparkSession, name: TableName, moves: RefUpdate) -> None:
    """Apply the moves; fails as a whole when main is not an ancestor of `forward`."""
    if not moves:
        return
    tables_of(spark).move(name, moves)


def update_together(spark: SparkSession, moves: Mapping[TableName, RefUpdate]) -> bool:
    """Apply the moves of several tables of one catalog in one commit, or none of them.

    Returns False where the catalog cannot. Errors are those of the catalog.
    """
    return tables_of(spark).move_together(moves)


def set_current(spark: SparkSession, name: TableName, snapshot: int) -> None:
    """Make a snapshot the current one of main, whether or not it is in main's history."""
    spark.sql(
        f"CALL {quote(name.catalog)}.system.set_current_snapshot("
        f"table => {literal(_path(name))}, snapshot_id => {int(snapshot)}L)"
    )


def _path(name: TableName) -> str:
    return f"{quote(name.schema)}.{quote(name.table)}"
