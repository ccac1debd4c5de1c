"""Apply records as upserts and deletes: per key the newest one counts, in any order of arrival.

For a key k let r(k) be the record with the greatest sequence among all that were ever read. The
table holds r(k) unless that record is a delete; the sequences of deletes are kept in a side table,
so that an older record that arrives later changes nothing. A record that truncates deletes all
keys with a smaller sequence, and is kept there under a key of NULLs. Both tables together are a
function of the *set* of records, so neither order nor repetition matters.

A stream that is read as a whole at every barrier has no sequences: the table holds what was read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt_streamsql.meta import TableVersion
from dbt_streamsql.meta.model.stored_definition import definition_of
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.ingest.sequenced import (
    CLEARED,
    CLEARS,
    DELETED,
    GONE,
    broadcast,
    extended,
    or_fail,
)
from dbt_streamsql.runtime.ingest.stream_definition import BAD, SEQUENCE, Stream
from dbt_streamsql.runtime.ingest.unsent_values import Carry, Settled, Stored
from dbt_streamsql.runtime.spark.join_conditions import match, same
from dbt_streamsql.runtime.spark.scratch import Scratch, TempRelation
from dbt_streamsql.runtime.spark.shared_relations import DriverRows
from dbt_streamsql.runtime.write import held_rows
from dbt_streamsql.runtime.write.stager import Stager
from dbt_streamsql.runtime.write.writer import Writer
from dbt_streamsql.storage.arrow_rows import is_exact
from dbt_streamsql.storage.iceberg import staging
from dbt_streamsql.storage.iceberg.commits import row_delta
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.scans.file_rows import numbers
from dbt_streamsql.storage.locations import local_path

_NUMBER, _STAYS = (f"{HIDDEN_PREFIX}{name}" for name in ("number", "stays"))
_NOT_HASHED = re.compile(r"\b(map<|variant)", re.IGNORECASE)
"""In the type of a column for which Spark computes no hash."""
_BAD = f"{BAD}a record "
_BAD_KEY = f"{_BAD}has NULL in its key or sequence: "
_CLEARS_ONE = f"{_BAD}truncates but has a key: "
_TWICE = f"{_BAD}has the same key as another record: "


@dataclass(frozen=True)
class Winners:
    """The effect of newer records: `rows` to store, `deleted` keys, and `keys` of all rows to
    remove; each is SQL that may follow FROM. Without `key`, all stored rows are removed. `small`:
    the driver can hold them."""

    rows: str
    deleted: str
    keys: str
    key: tuple[str, ...]
    small: bool


@dataclass
class Upsert:
    """The records of one barrier, as `select` returns them. The driver can hold `most`, and all of
    them where they are known to be `few`."""

    stream: Stream
    plan: CompiledPlan
    local: Scratch
    select: str
    most: int
    few: bool = False
    carry: Carry | None = None
    settled: Settled | None = field(default=None, init=False)
    """The result for records that lack values; known once the newest records are."""

    def rows(self) -> str:
        """A query of the rows of a new table."""
        return f"SELECT {self._stored} FROM {self._first()} WHERE NOT {GONE}"

    def deleted(self) -> str:
        """A query of the keys that are deleted in a new table."""
        if self.carry is not None:
            return f"SELECT {self._graves} FROM {self._first()} WHERE {GONE}"
        # Most first readings delete nothing, or little: only keys with a delete are looked at.
        names = ", ".join(f"q.{quote(name)}" for name in self.stream.key)
        records = f"({extended(self.stream, self.select)})"
        return (
            f"SELECT {self._graves} FROM (SELECT {names}, max(q.{SEQUENCE}) AS {SEQUENCE}, "
            f"max(CASE WHEN NOT {GONE} THEN q.{SEQUENCE} END) AS {_STAYS}, "
            f"bool_or({CLEARS}) AS {CLEARED} FROM {records} q "
            f"LEFT SEMI JOIN (SELECT {names} FROM {records} q WHERE {GONE}) d "
            f"ON {same(self.stream.key, 'q', 'd')} GROUP BY {names}) r "
            f"WHERE coalesce({_STAYS} < {SEQUENCE}, true) "
            f"AND {self._after_clearing('r', f'{records} WHERE {CLEARS}')}"
        )

    def _first(self) -> str:
        """The newest records when nothing is stored: SQL that may follow FROM."""
        if self.carry is None:
            return self._newest()
        if self.settled is None:
            self._settle(self.carry, None)
        assert self.settled is not None
        return self.settled.newest.name

    def _settle(self, carry: Carry, stored: Stored | None) -> TempRelation:
        records = extended(self.stream, self.select)
        newest = carry.newest(
            records,
            self._placed,
            lambda of, clearing: self._after_clearing(of, f"{clearing} WHERE {CLEARS}"),
        )
        clearing = ""
        if self.stream.truncate_when:
            clearing = f"SELECT max({SEQUENCE}) FROM ({records}) WHERE {CLEARS}"
        self.settled = carry.settled(self.local, newest, clearing, stored)
        return self.settled.newest

    def winners(self, stored: Stored, tables: Sequence[Writer]) -> Winners:
        """The records that are newer than those in the table and its side tables; `tables` write
        the table and the one of deleted keys."""
        newest = self._newest_kept(stored)
        won = self._won_here(newest.rows, tables) if newest.rows is not None else None
        if won is None:
            won = self._won(newest, stored)
        small = won.rows is not None
        stays, goes, keys = self._parted(won)
        if self.stream.truncate_when and self._clear(won.name):
            names = ", ".join(quote(name) for name in self.stream.key)
            older = f"WHERE {SEQUENCE} < (SELECT max({SEQUENCE}) FROM {won.name} WHERE {CLEARS})"
            cleared = "".join(
                f" UNION SELECT {names} FROM {of} {older}" for of in (stored.rows, stored.graves)
            )
            keys = f"(SELECT {names} FROM {won.name}{cleared})"
            small = False
        return Winners(stays, goes, keys, self.stream.key, small=small)

    def _newest_kept(self, stored: Stored) -> TempRelation:
        if self.carry is not None:
            newest = self._settle(self.carry, stored)
            self.few = self.settled is not None and self.settled.few
            return newest
        few = 0 if self.few else self.most
        newest = self.local.collect(f"SELECT * FROM {self._newest()}", small=self.few, few=few)
        self.few = self.few or newest.rows is not None
        return newest

    def _won_here(self, newest: DriverRows, tables: Sequence[Writer]) -> TempRelation | None:
        """The newest records that are newer than the stored ones, by the process; None where Spark
        has to find them."""
        kind = newest.schema[SEQUENCE].dataType.simpleString()
        if self.stream.truncate_when or not is_exact(kind):
            return None
        older = [pa.array([], pa.int64())]
        for table in tables:
            near = table.find(self.stream.key, newest.data)
            if near is None:
                return None
            met = held_rows.met(near, newest.data, self.stream.key)
            ours, theirs = newest.data.take(met.asked), near.rows.take(met.stored)
            stored = theirs.column(SEQUENCE)
            newer = pc.greater(ours.column(SEQUENCE).cast(stored.type), stored)
            known = pc.invert(pc.fill_null(newer, fill_value=True))
            older.append(met.asked.filter(known.combine_chunks()))
        wins = pc.invert(pc.is_in(numbers(newest.data.num_rows), pa.concat_arrays(older)))
        return self.local.keep(DriverRows(newest.data.filter(wins), newest.schema))

    def _won(self, newest: TempRelation, stored: Stored) -> TempRelation:
        """The same, by Spark."""
        key, rows, graves = self.stream.key, stored.rows, stored.graves
        names = ", ".join(quote(name) for name in key)
        condition, literals = match(newest, key)
        # Only the stored rows of those keys are joined: a few records do not shuffle the table.
        there = " UNION ALL ".join(
            f"SELECT {broadcast('s', self.few)} {names}, {SEQUENCE} FROM {of} t "
            f"LEFT SEMI JOIN {newest.name} s ON {condition}"
            for of in (rows, graves)
        )
        return self.local.collect(
            f"SELECT {broadcast('o', self.few)} l.* FROM {newest.name} l "
            f"LEFT ANTI JOIN ({there}) o "
            f"ON {same(key, 'l', 'o')} AND NOT l.{SEQUENCE} > o.{SEQUENCE} "
            f"WHERE {self._after_clearing('l', f'{graves} WHERE {quote(key[0])} IS NULL')}",
            small=self.few,
            literals=literals,
        )

    def _parted(self, won: TempRelation) -> tuple[str, str, str]:
        """The rows to be stored, the keys that are deleted, and the keys of both."""
        asked = self._columns, [*self.stream.key, SEQUENCE], [*self.stream.key]
        if won.rows is None:
            wheres = f" WHERE NOT {GONE}", f" WHERE {GONE}", ""
            stays, goes, keys = (
                f"(SELECT {', '.join(map(quote, names))} FROM {won.name}{where})"
                for names, where in zip(asked, wheres, strict=True)
            )
            return stays, goes, keys
        data, types = won.rows.data, {item.name: item for item in won.rows.schema}
        gone = pc.or_(*(pc.fill_null(data.column(of), False) for of in (DELETED, CLEARED)))
        stays, goes, keys = (
            # These rows are here already: no need for Spark.
            self.local.keep(
                DriverRows(rows.select(names), StructType([types[n] for n in names]))
            ).name
            for names, rows in zip(
                asked, (data.filter(pc.invert(gone)), data.filter(gone), data), strict=True
            )
        )
        return stays, goes, keys

    def whole(self) -> Winners:
        """All records: the new content of the table. A second read may find different ones."""
        all_ = self.local.collect(f"SELECT {self._stored} FROM {self._newest()}", small=False)
        return Winners(f"(SELECT * FROM {all_.name})", "", "", (), small=False)

    def _clear(self, records: str) -> bool:
        text = f"SELECT 1 FROM {records} WHERE {CLEARS} LIMIT 1"
        return bool(self.local.spark.sql(text).collect())

    @property
    def _columns(self) -> list[str]:
        return [column.name for column in (*self.plan.columns, *self.plan.hidden)]

    @property
    def _stored(self) -> str:
        return ", ".join(quote(name) for name in self._columns)

    @property
    def _graves(self) -> str:
        return ", ".join(quote(name) for name in (*self.stream.key, SEQUENCE))

    def _newest(self) -> str:
        """The newest record of each key. Of equal sequences: one of them, the same each time."""
        keys = ", ".join(f"q.{quote(name)}" for name in self.stream.key)
        if self.stream.whole:
            number = f"count(*) OVER (PARTITION BY {keys})"
            chosen = _or_fail(f"{_NUMBER} = 1", _TWICE, "r.*")
        else:
            number = (
                f"row_number() OVER (PARTITION BY {keys} ORDER BY "
                f"q.{SEQUENCE} DESC, {GONE}, {self._some_order})"
            )
            since = f"({extended(self.stream, self.select)}) WHERE {CLEARS}"
            chosen = f"{_NUMBER} = 1 AND {self._after_clearing('r', since)}"
        return (
            f"(SELECT * FROM (SELECT q.*, {number} AS {_NUMBER} "
            f"FROM ({extended(self.stream, self.select)}) q WHERE {self._placed}) r "
            f"WHERE {chosen})"
        )

    @property
    def _some_order(self) -> str:
        """An order of records of equal sequences, by what is stored of them. A text of each would
        take longer to make, and to sort, than everything else."""
        columns = ", ".join(f"q.{quote(column.name)}" for column in self.plan.columns)
        if any(_NOT_HASHED.search(column.type) for column in self.plan.columns):
            return f"to_json(struct({columns}))"
        return f"xxhash64({columns})"

    @property
    def _placed(self) -> str:
        """Whether a record has a key and a sequence; it fails if not."""
        key = self.stream.key
        some = " OR ".join(f"q.{quote(name)} IS NULL" for name in key)
        placed = _or_fail(f"q.{SEQUENCE} IS NOT NULL AND ({CLEARS} OR NOT ({some}))", _BAD_KEY)
        if not self.stream.truncate_when:
            return placed
        none = " AND ".join(f"q.{quote(name)} IS NULL" for name in key)
        return f"{placed} AND {_or_fail(f'NOT {CLEARS} OR ({none})', _CLEARS_ONE)}"

    def _after_clearing(self, of: str, clearing: str) -> str:
        """Whether a record of `of` truncates, or is newer than those in `clearing`."""
        if not self.stream.truncate_when:
            return "true"
        newest = f"(SELECT max({SEQUENCE}) FROM {clearing})"
        return f"({CLEARS} OR coalesce({of}.{SEQUENCE} > {newest}, true))"


def _or_fail(condition: str, message: str, record: str = "q.*") -> str:
    """The condition; a record for which it is not true fails."""
    return or_fail(condition, f"concat('{message}', to_json(struct({record})))")


@dataclass(frozen=True)
class Target:
    """A table that records replace rows of; `meta` is that of its last version."""

    stager: Stager
    meta: Metadata
    writer: Writer

    @classmethod
    def of(
        cls, spark: SparkSession, local: Scratch, stager: Stager, meta: Metadata, *, feed: bool
    ) -> Target:
        assert meta.current is not None
        known = definition_of(stager.job)
        types = {column["name"]: column["type"] for column in stager.job.columns}
        hidden = tuple(name for name in known.hidden if name not in types)
        writer = Writer(
            spark,
            local,
            TableName.parse(stager.job.table),
            stager.origin(),
            staging.branch_name(stager.epoch.barrier()),
            meta.current,
            meta.live_rows(meta.current),
            (*types, *hidden),
            tuple(types),
            feed,
            row_delta.supported(spark, meta),
            aged=stager.epoch.ages(stager.job.table),
            tuning=stager.epoch.warehouse.tuning,
            types=types,
            at_hand=local_path(meta.location) is not None,
        )
        return cls(stager, meta, writer)

    def write(self, rows: str, winners: Winners) -> TableVersion | None:
        """Replace the rows under the keys of newer records with `rows`, on a branch; returns its
        record, None when nothing changes."""
        writer = self.writer
        writer.small = winners.small
        kept = writer.local.kept
        if not writer.live and winners.small and not kept(rows, small=True).count:
            return None
        with staging.stamped(writer.spark, writer.origin):
            outcome = writer.replace(rows, winners.keys, winners.key, single=bool(winners.key))
        if not outcome.changed:
            return None
        self.stager.write_feed(writer.spark, outcome, self.meta, writer.visible)
        return self.stager.wrote(writer.spark, writer.branch, outcome, self.meta)
