"""TPC-H tables that can be set to the state after any epoch.

The changes are made once. Each state of a table is a tag, `epoch_0` (loaded), `epoch_1` …; to go
to a state is to move `main`, which copies nothing: a view that was made at one state then sees the
change that leads to the next, and every view sees the same changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.tpch import data
from benchmarks.tpch.changes import Refresh

Say = Callable[[str], None]


@dataclass(frozen=True)
class Timeline:
    """Tables in `lake.<name>`, made from `files` on the first use."""

    spark: SparkSession
    name: str
    refresh: Refresh

    @property
    def schema(self) -> str:
        return f"lake.{self.name}"

    def prepare(self, files: Callable[[], Path], rounds: int, say: Say) -> None:
        """Load the tables and make the changes of `rounds` epochs, as far as it was not done."""
        # Tables are made in this order: when the last has the tag, all of them have it.
        known = self._tags(data.TABLES[-1])
        if all(f"epoch_{number}" in known for number in range(rounds + 1)):
            say("the tables are there already")
            return
        data.register(self.spark, files())
        try:
            if "epoch_0" not in known:
                say("loading the tables")
                self._clear()
                data.load(self.spark, self.schema, self.refresh)
                self._mark(0)
            for number in range(1, rounds + 1):
                if f"epoch_{number}" not in known:
                    say(f"making the changes of epoch {number}")
                    self.go(number - 1)
                    for statement in self.refresh.statements(self.schema, number - 1):
                        self.spark.sql(statement)
                    self._mark(number)
        finally:
            data.forget(self.spark)

    def go(self, number: int) -> None:
        """Set all tables to their state after an epoch."""
        for table in data.TABLES:
            self.spark.sql(
                f"CALL lake.system.set_current_snapshot(table => '{self.name}.{table}', "
                f"ref => 'epoch_{number}')"
            )

    def _mark(self, number: int) -> None:
        for table in data.TABLES:
            self.spark.sql(
                f"ALTER TABLE {self.schema}.{table} CREATE OR REPLACE TAG epoch_{number}"
            )

    def _tags(self, table: str) -> set[str]:
        if not self._tables(table):
            return set()
        rows: list[Any] = self.spark.sql(
            f"SELECT name FROM {self.schema}.{table}.refs WHERE type = 'TAG'"
        ).collect()
        return {row[0] for row in rows}

    def _tables(self, pattern: str) -> list[str]:
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.schema}")
        found = self.spark.sql(f"SHOW TABLES IN {self.schema} LIKE '{pattern}'").collect()
        return [row["tableName"] for row in found if not row["isTemporary"]]

    def _clear(self) -> None:
        """What an interrupted load has left."""
        for table in self._tables("*"):
            self.spark.sql(f"DROP TABLE {self.schema}.{table} PURGE")
