"""TPC-H tables that can be set to the state after any epoch.

The changes are made once, by other writers than the engine. Each state of the tables is a tag,
`epoch_0` (loaded), then `newest_1`, `newest_2` … and so on for each kind of change. To go to a
state is to move `main`, which copies nothing: a view that was made at one state then sees the
change that leads to the next, and every view sees the same changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.tpch import data
from benchmarks.tpch.changes import Refresh

Say = Callable[[str], None]
LOADED = "epoch_0"


@dataclass(frozen=True)
class Timeline:
    """Tables in `lake.<name>`, made on the first use. `refreshes`: the changes of each kind, all
    epochs of one kind before those of the next."""

    spark: SparkSession
    name: str
    refreshes: Mapping[str, Refresh]

    @property
    def schema(self) -> str:
        return f"lake.{self.name}"

    @property
    def kinds(self) -> Collection[str]:
        return self.refreshes

    @property
    def fed(self) -> Collection[str]:
        """None of the tables belongs to the engine."""
        return ()

    def prepare(self, files: Callable[[], Path], say: Say) -> None:
        """Load the tables and make the changes, as far as it was not done."""
        # Tables are made in this order: when the last has the tag, all of them have it.
        known = self._tags(data.TABLES[-1])
        if all(tag in known for tag, _, _ in self._epochs()):
            say("the tables are there already")
            return
        data.register(self.spark, files())
        try:
            if LOADED not in known:
                say("loading the tables")
                self._clear()
                data.load(self.spark, self.schema, self.refreshes.values())
                self._mark(LOADED)
            before = LOADED
            for tag, refresh, number in self._epochs():
                if tag not in known:
                    say(f"making the changes of {tag}")
                    self._go(before)
                    for statement in refresh.statements(self.schema, number):
                        self.spark.sql(statement)
                    self._mark(tag)
                before = tag
        finally:
            data.forget(self.spark)

    def begin(self) -> None:
        """Set all tables to the state before all changes."""
        self._go(LOADED)

    def bring(self, kind: str, number: int) -> None:
        """Set all tables to the state after an epoch of a kind, from 1."""
        self._go(f"{kind}_{number}")

    def _epochs(self) -> Iterator[tuple[str, Refresh, int]]:
        for kind, refresh in self.refreshes.items():
            for number in range(refresh.epochs):
                yield f"{kind}_{number + 1}", refresh, number

    def _go(self, tag: str) -> None:
        for table in data.TABLES:
            self.spark.sql(
                f"CALL lake.system.set_current_snapshot(table => '{self.name}.{table}', "
                f"ref => '{tag}')"
            )

    def _mark(self, tag: str) -> None:
        for table in data.TABLES:
            self.spark.sql(f"ALTER TABLE {self.schema}.{table} CREATE OR REPLACE TAG {tag}")

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
