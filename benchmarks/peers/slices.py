"""Nexmark's events as files that arrive: a history, and one slice of equal size every ten seconds.

A slice is a set of parquet files, some for each table. All systems read the same files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.nexmark import data, events

TABLES = ("person", "auction", "bid")
PARTS = 2
"""Files of a table in a slice: as many as there are readers on two cores."""


@dataclass(frozen=True)
class Feed:
    """`history` events that are there at first, then `slices` slices of `size` events each.

    The files stay in `folder` for the next run.
    """

    folder: Path
    history: int
    size: int
    slices: int
    seed: int

    @property
    def home(self) -> Path:
        return self.folder / f"events_{self.history}_{self.size}_{self.slices}_{self.seed}"

    def files(self, table: str, number: int) -> list[Path]:
        """Of a table in a slice; 0 is the history."""
        return sorted((self.home / table).glob(f"{number:03}-*.parquet"))

    def until(self, table: str, last: int) -> list[Path]:
        """Of a table in the history and the slices 1 to `last`."""
        return [file for number in range(last + 1) for file in self.files(table, number)]

    def rows(self, table: str, number: int) -> int:
        """Of a table in a slice."""
        return sum(pq.read_metadata(file).num_rows for file in self.files(table, number))

    def make(self) -> None:
        """Write the files, unless they are there."""
        done = self.home / "done"
        if done.is_file():
            return
        shutil.rmtree(self.home, ignore_errors=True)
        made = events.generate(self.history, self.slices, self.size, self.seed)
        for table in TABLES:
            (self.home / table).mkdir(parents=True)
            self._write(table, getattr(made, table))
        done.touch()

    def _write(self, table: str, rows: pa.Table) -> None:
        for number in range(self.slices + 1):
            chosen = _in_utc(rows.filter(pc.equal(rows["batch"], number)).drop_columns(["batch"]))
            step = max(1, -(-chosen.num_rows // PARTS))
            for part in range(PARTS):
                name = f"{number:03}-{part}.parquet"
                pq.write_table(chosen.slice(part * step, step), self.home / table / name)


def columns(table: str) -> str:
    """Names and types of a table in Spark's SQL."""
    return data.COLUMNS[table]


def put(files: Iterable[Path], inbox: Path) -> None:
    """Copy files into a folder that somebody reads; a reader sees all of a file or nothing."""
    inbox.mkdir(parents=True, exist_ok=True)
    for file in files:
        # Readers of folders leave names alone that begin with a point.
        hidden = inbox / f".{file.name}"
        shutil.copyfile(file, hidden)
        hidden.rename(inbox / file.name)


def _in_utc(rows: pa.Table) -> pa.Table:
    """Times with a zone, which Spark reads as TIMESTAMP and Flink as it is told."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            column = rows[field.name].cast(pa.timestamp("us", "UTC"))
            rows = rows.set_column(position, field.name, column)
    return rows
