"""The access to the simulated storage: what `IcebergTables` asks, of a simulated session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from dbt_streamsql.quoting import TableName
from tests.oracle.zset import ZSet
from tests.simulator.sim_spark import JavaTable, SimulatedSpark, commit_together
from tests.support.product import Metadata, Provenance, RefUpdate, SqlTables, symbol

move = symbol("move", beside="JvmTables")
with_moves = symbol("with_moves", beside="JvmTables")


class SimulatedTables:
    """`IcebergTables` over the simulated storage.

    Branches and tags move by the product's own two ways: all moves of a table in one commit of
    Iceberg's, or by a statement each. Snapshots expire by a statement.
    """

    def __init__(self, spark: SimulatedSpark) -> None:
        self.spark = spark
        self.sql = SqlTables(cast("Any", spark))
        self.writes_files = spark.process.simulation.driver

    @property
    def folders(self) -> SimulatedTables:
        return self

    def load(self, name: TableName) -> Metadata | None:
        return self.spark.lake.load(name)

    def knows_schema(self, _: str, __: str) -> bool:
        return True

    def move(self, name: TableName, moves: RefUpdate) -> None:
        if self.spark.process.simulation.connect:
            self.sql.move(name, moves)
        else:
            move(JavaTable(self.spark, name), moves)

    def reaches(self, _: str) -> bool:
        return True

    def move_together(self, moves: Mapping[TableName, RefUpdate]) -> bool:
        tables = [(JavaTable(self.spark, name), update) for name, update in moves.items()]
        changes = [
            with_moves(table.refs(), table.manageSnapshots(), update) for table, update in tables
        ]
        commit_together(self.spark, changes)
        return True

    def expire(self, name: TableName, snapshots: Sequence[int]) -> None:
        self.sql.expire(name, snapshots)

    def commit(
        self, name: TableName, branch: str, base: int, origin: Provenance, change: ZSet
    ) -> None:
        """`change`: all rows that the branch then has."""
        commit = self.spark.lake.commit
        self.spark.do(
            f"commit {name} on {branch}",
            lambda: commit(name, branch, base, change, "delta", origin.properties()),
        )

    def delete(self, folder: str) -> bool:
        if folder in self.spark.lake.files:
            self.spark.do(f"delete {folder}", lambda: self.spark.lake.delete_file(folder))
        return True
