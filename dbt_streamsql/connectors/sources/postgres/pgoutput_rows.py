"""Rows and changes of a PostgreSQL table as the records of a stream."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbt_streamsql.connectors.sources.postgres.pgoutput import (
    SINCE_2000,
    UNCHANGED,
    Change,
    Relation,
    Transaction,
    Values,
    lsn_of,
    lsn_text,
)
from dbt_streamsql.connectors.sources.postgres.server_tables import UNBOUNDED, PgTable
from dbt_streamsql.connectors.sources.rows import Columns, records
from dbt_streamsql.connectors.sources.source import AT, UNSENT, Position
from dbt_streamsql.errors import Place
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.quoting import quote
from dbt_streamsql.storage.arrow_rows import arrow_frame

if TYPE_CHECKING:
    from psycopg import Cursor
    from pyspark.sql import DataFrame, SparkSession

OWN = (("_op", "string"), ("_lsn", "bigint"), ("_seq", "decimal(38,0)"), ("_ts", "timestamp"))
"""`_lsn` is the log position after the transaction, `_ts` its commit time; `_seq` is greater for
each later change, also within a transaction."""

_BROKEN, _NUMBER, _WHY = (f"{HIDDEN_PREFIX}{name}" for name in ("broken", "number", "why"))
_MOST_IN_ONE = 10**10
"""The number of changes per transaction that `_seq` has room for."""

_IN_A_BATCH = 20_000
_MODULUS = 1 << 32


@dataclass(frozen=True)
class Snapshot:
    """Which transactions a snapshot saw; none that end after `until`."""

    lowest: int = 0
    next: int = 0
    running: frozenset[int] = frozenset()
    until: int = 0

    @classmethod
    def parse(cls, text: str, until: int = 0) -> Snapshot:
        """Parse the result of `pg_current_snapshot()`: `lowest:next:running,running`."""
        lowest, following, running = text.split(":")
        ids = frozenset(map(int, running.split(","))) if running else frozenset()
        return cls(int(lowest), int(following), ids, until)

    @classmethod
    def of(cls, position: Position) -> Snapshot:
        if "snapshot" not in position:
            return cls()
        return cls.parse(position["snapshot"], lsn_of(position["until"]))

    def has(self, xid: int, end: int) -> bool:
        """Whether it saw a transaction's changes. `xid` is as in changes, without the epoch."""
        if end > self.until:
            return False
        # Of the ids with this remainder, the one nearest to the snapshot's.
        half = _MODULUS // 2
        whole = self.next + (xid - self.next + half) % _MODULUS - half
        return whole < self.lowest or (whole < self.next and whole not in self.running)


class Rows:
    """Rows of a table as they arrive, kept in Arrow; all values are PostgreSQL's text."""

    def __init__(self, table: PgTable) -> None:
        self._table = table
        self._names = [name for name, _ in table.columns]
        self._batches: list[pa.RecordBatch] = []
        self._places: tuple[Relation, list[int | None]] | None = None
        self._key = [self._names.index(name) for name in table.key]
        self._clear()

    def add(self, found: Transaction, refuse: Callable[[str], Any]) -> None:
        """All changes of a transaction. `refuse` is called with columns that are unknown."""
        before = len(self._own)
        for change in found.changes:
            for op, values in self._rows_of(change, refuse):
                self._add(op, values, found.end, len(self._own) - before, found.time)
        if len(self._own) >= _IN_A_BATCH:
            self._flush()

    def add_initial(self, fetched: Cursor[Any], lsn: int, at: float) -> int:
        """Add rows that were read from the table; return their number."""
        result = fetched.pgresult
        assert result is not None
        wide = range(result.nfields)
        for row in range(result.ntuples):
            raw = [result.get_value(row, column) for column in wide]
            values = [None if value is None else bytes(value).decode() for value in raw]
            self._add("r", values, lsn, self._number, int(at * 1_000_000))
            self._number += 1
        self._flush()
        return result.ntuples

    def frame(self, spark: SparkSession, columns: Columns, place: Place) -> DataFrame:
        from pyspark.sql import functions as F

        self._flush()
        table = pa.Table.from_batches(self._batches, schema=self._schema())
        kinds = {name.lower(): kind for name, kind in columns}
        binary = {
            name: F.unhex(F.substr(F.col(quote(name)), F.lit(3)))
            for name, kind in self._table.columns
            if kind == kinds[name.lower()] == "binary"
        }
        rounded = {
            name: F.col(quote(name)).try_cast(kind)
            for name, kind in self._table.columns
            if kind == kinds[name.lower()] == UNBOUNDED
        }
        base = F.col("_lsn").cast("decimal(20,0)") * F.lit(_MOST_IN_ONE).cast("decimal(11,0)")
        order = (base + F.col(_NUMBER)).cast("decimal(38,0)")
        return records(
            arrow_frame(spark, table).withColumn("_seq", order),
            columns,
            F.col(AT),
            place,
            broken=F.col(_BROKEN),
            inexact=binary | rounded,
            unsent=(F.col(UNSENT), F.col(_WHY)),
        )

    def _rows_of(self, change: Change, refuse: Callable[[str], Any]) -> list[tuple[str, Any]]:
        """One row; an update of the key is two: the old key deleted, and the new row."""
        relation = change.relation
        if self._places is None or self._places[0] is not relation:
            self._places = (relation, self._placed(relation, refuse))
        old, new = self._ordered(change.old), self._ordered(change.new)
        if change.op == "t":
            return [("t", [None] * len(self._names))]
        if new is None:
            return [("d", old)]
        if old is None:
            return [(change.op, new)]
        if change.is_old_whole:
            new = [o if n is UNCHANGED else n for n, o in zip(new, old, strict=True)]
            if self._key and all(old[at] == new[at] for at in self._key):
                return [("u", new)]
        return [("d", old), ("c", new)]

    def _placed(self, relation: Relation, refuse: Callable[[str], Any]) -> list[int | None]:
        there = {name: at for at, name in enumerate(relation.columns)}
        gone = [name for name in there if name not in self._names]
        came = [name for name in self._names if name not in there]
        if gone and came:
            refuse(f"{', '.join(gone)} when rows changed, {', '.join(came)} now")
        return [there.get(name) for name in self._names]

    def _ordered(self, values: Values | None) -> list[Any] | None:
        assert self._places is not None
        if values is None:
            return None
        return [None if at is None else values[at] for at in self._places[1]]

    def _add(self, op: str, values: list[Any], lsn: int, seq: int, at: int) -> None:
        unsent = [
            name for name, value in zip(self._names, values, strict=True) if value is UNCHANGED
        ]
        why = None
        if unsent:
            values = [None if value is UNCHANGED else value for value in values]
            why = (
                f"column {', '.join(unsent)}: PostgreSQL does not send a long value that an "
                "update did not change, unless ALTER TABLE … REPLICA IDENTITY FULL is set"
            )
        # A new key has no previous row that may supply the value.
        told = (None, unsent, why) if unsent and op == "u" else (why, None, None)
        for column, value in zip(self._values, values, strict=True):
            column.append(value)
        self._own.append((op, lsn, seq, at, f"{lsn_text(lsn)}:{seq}", *told))

    def _schema(self) -> pa.Schema:
        texts = [(name, pa.string()) for name in self._names]
        stamp = pa.timestamp("us", tz="UTC")
        own = [("_op", pa.string()), ("_lsn", pa.int64()), (_NUMBER, pa.int64()), ("_ts", stamp)]
        left = [(UNSENT, pa.list_(pa.string())), (_WHY, pa.string())]
        return pa.schema([*texts, *own, (AT, pa.string()), (_BROKEN, pa.string()), *left])

    def _flush(self) -> None:
        if self._own:
            arrays = [*self._values, *map(list, zip(*self._own, strict=True))]
            schema = self._schema()
            typed = [pa.array(v, f.type) for v, f in zip(arrays, schema, strict=True)]
            self._batches.append(pa.RecordBatch.from_arrays(typed, schema=schema))
            self._clear()

    def _clear(self) -> None:
        self._values: list[list[Any]] = [[] for _ in self._names]
        self._own: list[tuple[Any, ...]] = []

    _number = 0


def time_of(commit: bytes) -> float:
    """When a transaction was committed, in seconds since 1970, from its message."""
    (stamp,) = struct.unpack_from(">q", commit, 18)
    return float(stamp + SINCE_2000) / 1_000_000
