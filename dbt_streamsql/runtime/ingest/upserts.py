"""Apply records as upserts and deletes: per key the newest one counts, in any order of arrival.

For a key k let r(k) be the record with the greatest sequence among all that were ever read. The
table holds r(k) unless that record is a delete; the sequences of deletes are kept in a side table,
so that an older record that arrives later changes nothing. A record that truncates deletes all
keys with a smaller sequence, and is kept there under a key of NULLs. Both tables together are a
function of the *set* of records, so neither order nor repetition matters.

A stream that is read as a whole at every barrier has no sequences: the table holds what was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
from dbt_streamsql.runtime.write.stager import Stager
from dbt_streamsql.runtime.write.writer import Writer
from dbt_streamsql.storage.iceberg import staging
from dbt_streamsql.storage.iceberg.commits import row_delta
from dbt_streamsql.storage.iceberg.metadata import Metadata

_NUMBER = f"{HIDDEN_PREFIX}number"
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
    """The records of one barrier, as `select` returns them; `few`: the driver can hold them."""

    stream: Stream
    plan: CompiledPlan
    local: Scratch
    select: str
    few: bool = False
    carry: Carry | None = None
    settled: Settled | None = field(default=None, init=False)
    """The result for records that lack values; known once the newest records are."""

    def rows(self) -> str:
        """A query of the rows of a new table."""
        return f"SELECT {self._stored} FROM {self._first()} WHERE NOT {GONE}"

    def deleted(self) -> str:
        """A query of the keys that are deleted in a new table."""
        return f"SELECT {self._graves} FROM {self._first()} WHERE {GONE}"

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

    def winners(self, stored: Stored) -> Winners:
        """The records that are newer than those in the table and its side tables."""
        key, rows, graves = self.stream.key, stored.rows, stored.graves
        names = ", ".join(quote(name) for name in key)
        if self.carry is None:
            newest = self.local.collect(f"SELECT * FROM {self._newest()}", small=self.few)
        else:
            newest = self._settle(self.carry, stored)
            self.few = self.settled is not None and self.settled.few
        condition, literals = match(newest, key)
        # Only the stored rows of those keys are joined: a few records do not shuffle the table.
        there = " UNION ALL ".join(
            f"SELECT {broadcast('s', self.few)} {names}, {SEQUENCE} FROM {of} t "
            f"LEFT SEMI JOIN {newest.name} s ON {condition}"
            for of in (rows, graves)
        )
        won = self.local.collect(
            f"SELECT {broadcast('o', self.few)} l.* FROM {newest.name} l "
            f"LEFT ANTI JOIN ({there}) o "
            f"ON {same(key, 'l', 'o')} AND NOT l.{SEQUENCE} > o.{SEQUENCE} "
            f"WHERE {self._after_clearing('l', f'{graves} WHERE {quote(key[0])} IS NULL')}",
            small=self.few,
            literals=literals,
        )
        small = won.rows is not None
        stays, goes, keys = self._parted(won)
        if self.stream.truncate_when and self._clear(won.name):
            older = f"WHERE {SEQUENCE} < (SELECT max({SEQUENCE}) FROM {won.name} WHERE {CLEARS})"
            cleared = "".join(f" UNION SELECT {names} FROM {of} {older}" for of in (rows, graves))
            keys = f"(SELECT {names} FROM {won.name}{cleared})"
            small = False
        return Winners(stays, goes, keys, key, small=small)

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
                f"q.{SEQUENCE} DESC, {GONE}, to_json(struct(q.*)))"
            )
            since = f"({extended(self.stream, self.select)}) WHERE {CLEARS}"
            chosen = f"{_NUMBER} = 1 AND {self._after_clearing('r', since)}"
        return (
            f"(SELECT * FROM (SELECT q.*, {number} AS {_NUMBER} "
            f"FROM ({extended(self.stream, self.select)}) q WHERE {self._placed}) r "
            f"WHERE {chosen})"
        )

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


def write(
    spark: SparkSession,
    local: Scratch,
    stager: Stager,
    meta: Metadata,
    rows: str,
    winners: Winners,
    *,
    feed: bool,
) -> TableVersion | None:
    """Replace the rows under the keys of newer records with `rows`, on a branch; returns its
    record, None when nothing changes."""
    assert meta.current is not None
    live = meta.live_rows(meta.current)
    if not live and winners.small and not local.kept(rows, small=True).count:
        return None
    name, barrier, origin = (
        TableName.parse(stager.job.table),
        stager.epoch.barrier(),
        stager.origin(),
    )
    branch = staging.branch_name(barrier)
    visible = tuple(column["name"] for column in stager.job.columns)
    hidden = tuple(name for name in definition_of(stager.job).hidden if name not in visible)
    writer = Writer(
        spark,
        local,
        name,
        origin,
        branch,
        meta.current,
        live,
        (*visible, *hidden),
        visible,
        feed,
        row_delta.supported(spark, meta),
        winners.small,
        stager.epoch.ages(stager.job.table),
        stager.epoch.warehouse.tuning,
        {column["name"]: column["type"] for column in stager.job.columns},
    )
    with staging.stamped(spark, origin):
        outcome = writer.replace(rows, winners.keys, winners.key, single=bool(winners.key))
    if not outcome.changed:
        return None
    stager.write_feed(spark, outcome, meta, visible)
    return stager.branched(
        spark,
        branch,
        mode="incremental" if outcome.deleted else "append",
        rows_inserted=outcome.inserted,
        rows_deleted=outcome.deleted,
    )
