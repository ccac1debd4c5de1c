"""Records as upserts and deletes: of each key the newest one counts, in whatever order they come.

For a key k let r(k) be the record with the greatest sequence among all that were ever read. The
table holds r(k) unless that record is a delete; the sequences of deletes are kept beside, so that
an older record that comes later changes nothing. Both together are a function of the *set* of
records, so neither order nor repetition matters.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from dbt_streamsql.meta import TableVersion
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.schema import HIDDEN_PREFIX
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.local import Local
from dbt_streamsql.runtime.matching import same
from dbt_streamsql.runtime.stager import Stager
from dbt_streamsql.runtime.streams import SEQUENCE, Stream
from dbt_streamsql.runtime.write import Writer
from dbt_streamsql.storage.iceberg import delta, staging
from dbt_streamsql.storage.iceberg.metadata import Metadata

DELETED = f"{HIDDEN_PREFIX}deleted"
_GONE = f"coalesce({DELETED}, false)"
_NUMBER = f"{HIDDEN_PREFIX}number"
_BAD_KEY = "STREAMSQL_BAD_RECORD a record has NULL in its key or sequence: "


@dataclass(frozen=True)
class Winners:
    """What newer records say: stored `rows`, keys that are `deleted`, and `keys` of both; each is
    SQL that may follow FROM. `small`: the driver can hold them."""

    rows: str
    deleted: str
    keys: str
    key: tuple[str, ...]
    small: bool


@dataclass
class Upsert:
    """The records of one barrier, as `select` gives them; `few`: the driver can hold them."""

    stream: Stream
    plan: CompiledPlan
    local: Local
    select: str
    few: bool = False

    def rows(self) -> str:
        """A query of the rows of a new table."""
        return f"SELECT {self._stored} FROM {self._newest()} WHERE NOT {_GONE}"

    def deleted(self) -> str:
        """A query of the keys that are deleted in a new table."""
        return f"SELECT {self._graves} FROM {self._newest()} WHERE {_GONE}"

    def winners(self, rows: str, graves: str) -> Winners:
        """Those records that are newer than what is stored in the table and beside it."""
        key = self.stream.key
        won = self.local.collect(
            f"SELECT l.* FROM {self._newest()} l "
            f"LEFT JOIN {rows} s ON {same(key, 'l', 's')} "
            f"LEFT JOIN {graves} g ON {same(key, 'l', 'g')} "
            f"WHERE coalesce(l.{SEQUENCE} > s.{SEQUENCE}, true) "
            f"AND coalesce(l.{SEQUENCE} > g.{SEQUENCE}, true)",
            small=self.few,
        )
        keys = ", ".join(quote(name) for name in key)
        return Winners(
            f"(SELECT {self._stored} FROM {won.name} WHERE NOT {_GONE})",
            f"(SELECT {self._graves} FROM {won.name} WHERE {_GONE})",
            f"(SELECT {keys} FROM {won.name})",
            key,
            small=won.rows is not None,
        )

    @property
    def _stored(self) -> str:
        columns = (*self.plan.columns, *self.plan.hidden)
        return ", ".join(quote(column.name) for column in columns)

    @property
    def _graves(self) -> str:
        return ", ".join(quote(name) for name in (*self.stream.key, SEQUENCE))

    def _newest(self) -> str:
        """The newest record of each key. Equal sequences: one of them, the same each time."""
        keys = ", ".join(f"q.{quote(name)}" for name in self.stream.key)
        absent = " OR ".join(f"q.{quote(name)} IS NULL" for name in (*self.stream.key, SEQUENCE))
        told = f"concat('{_BAD_KEY}', to_json(struct(q.*)))"
        return (
            f"(SELECT * FROM (SELECT q.*, row_number() OVER (PARTITION BY {keys} ORDER BY "
            f"q.{SEQUENCE} DESC, {_GONE}, to_json(struct(q.*))) AS {_NUMBER} "
            f"FROM ({extended(self.stream, self.select)}) q "
            f"WHERE coalesce(NOT ({absent}) OR raise_error({told}), true)) "
            f"WHERE {_NUMBER} = 1)"
        )


def extended(stream: Stream, select: str) -> str:
    """The model's query with each record's sequence and whether it is a delete."""
    deleted = stream.delete_when or "false"
    return f"SELECT *, {stream.sequence_by} AS {SEQUENCE}, {deleted} AS {DELETED} FROM ({select})"


def write(
    spark: SparkSession,
    local: Local,
    stager: Stager,
    meta: Metadata,
    rows: str,
    winners: Winners,
    *,
    feed: bool,
) -> TableVersion | None:
    """Exchange the rows under the keys of newer records for `rows`, on a branch; its record, None
    when nothing changes."""
    assert meta.current is not None
    name, barrier, origin = (
        TableName.parse(stager.job.table),
        stager.epoch.barrier(),
        stager.origin(),
    )
    branch = staging.branch_name(barrier)
    visible = tuple(column["name"] for column in stager.job.columns)
    hidden = tuple(name for name in stager.job.config["hidden"] if name not in visible)
    writer = Writer(
        spark,
        local,
        name,
        origin,
        branch,
        meta.current,
        meta.live_rows(meta.current),
        (*visible, *hidden),
        visible,
        feed,
        delta.supported(spark, meta),
        winners.small,
    )
    with staging.stamped(spark, origin):
        outcome = writer.replace(rows, winners.keys, winners.key, single=True)
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
