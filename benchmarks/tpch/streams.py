"""TPC-H tables that streams of changes feed, as change data capture does.

`orders` and `lineitem` are streaming tables with a key over folders of Parquet files: a first file
with the rows that are there, then one for each epoch with the rows that come and those that go
(`gone`). The other tables never change. What was read cannot be undone, so each view goes on where
the one before it ended.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks.tpch import data
from benchmarks.tpch.changes import Refresh
from benchmarks.tpch.timeline import Say
from dbt_streamsql import Engine

EPOCHS = 120
"""Of a folder: enough for 22 queries of five rounds."""
_KEYS = {"orders": ["o_orderkey"], "lineitem": ["l_orderkey", "l_linenumber"]}


@dataclass(frozen=True)
class Streams:
    """Tables in `lake.<name>`, fed from files below `folder` with rows of those in `generated`."""

    engine: Engine
    name: str
    folder: Path
    generated: Path
    refresh: Refresh

    @property
    def schema(self) -> str:
        return f"lake.{self.name}"

    @property
    def kinds(self) -> Collection[str]:
        return ("streams",)

    @property
    def fed(self) -> Collection[str]:
        """The names of the streaming tables."""
        return [f"{self.schema}.{table}" for table in _KEYS]

    def prepare(self, say: Say) -> None:
        """Load the tables, as far as it was not done."""
        spark = self.engine.spark
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.schema}")
        there = {row["tableName"] for row in spark.sql(f"SHOW TABLES IN {self.schema}").collect()}
        others = [table for table in data.TABLES if table not in {*_KEYS, *there}]
        if others:
            data.register(spark, self.generated)
            data.load(spark, self.schema, [self.refresh], others)
            data.forget(spark)
        for table, name in zip(_KEYS, self.fed, strict=True):
            if not self._files(table):
                say(f"writing the first file of {table}")
                rows = data.initial(table, self.refresh)
                self._write(table, f"SELECT *, 0 AS epoch, false AS gone FROM ({rows})")
            if not self.engine.knows(name):
                say(f"loading {table}")
                self._create(table, name)
        self.engine.advance()

    def begin(self) -> None:
        """Views begin with the tables as they are."""

    def bring(self, kind: str, number: int) -> None:  # noqa: ARG002 - as a `Timeline` is asked
        """Let the changes of the next epoch arrive, whatever its number is for the view."""
        files = {table: len(self._files(table)) for table in _KEYS}
        epoch = min(files.values()) - 1
        if epoch >= EPOCHS:
            raise ValueError(f"all {EPOCHS} epochs of {self.folder} are used up")
        # A run that was stopped may have left the file of one table: its orders have lines.
        for table in (table for table, count in files.items() if count - 1 == epoch):
            key = data.ORDER_KEYS[table]
            comes, goes = self.refresh.arriving(key, epoch), self.refresh.leaving(key, epoch)
            self._write(
                table,
                f"SELECT *, {epoch + 1} AS epoch, {goes} AS gone FROM generated_{table} "
                f"WHERE ({comes}) OR ({goes})",
            )

    def _create(self, table: str, name: str) -> None:
        options = {"path": str(self.folder / table)}
        self.engine.create_streaming_table(
            name,
            f"SELECT * EXCEPT (_file, _modified) FROM {self.schema}.changes_of_{table}",
            stream=f"{self.schema}.changes_of_{table}",
            source={"connector": "files", "format": "parquet", "options": options},
            key=_KEYS[table],
            sequence_by="epoch",
            delete_when="gone",
            leave_out=["epoch", "gone"],
        )

    def _files(self, table: str) -> list[Path]:
        return sorted((self.folder / table).glob("[0-9]*.parquet"))

    def _write(self, table: str, rows: str) -> None:
        """The next file, which appears whole."""
        folder = self.folder / table
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{len(self._files(table)):04}.parquet"
        partial = folder / f"_{target.name}"
        with duckdb.connect() as connection:
            connection.execute(
                f"CREATE VIEW generated_{table} AS FROM '{self.generated / table}.parquet'"
            )
            connection.execute(f"COPY ({rows}) TO '{partial}'")
        partial.rename(target)
