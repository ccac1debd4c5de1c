"""The relations of an epoch on Spark: SQL over Iceberg's snapshots and commits, and the write."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.plan.program import steps
from dbt_streamsql.plan.program.steps import Fold, Lookup, Meeting, asked
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.core.row_expiry import Expiry
from dbt_streamsql.runtime.refresh.found_rows import FoundRows
from dbt_streamsql.runtime.refresh.key_matches import KeyMatches, changed_keys, updated_keys
from dbt_streamsql.runtime.refresh.program_runner import Frame, Known
from dbt_streamsql.runtime.spark import join_conditions
from dbt_streamsql.runtime.spark.scratch import TempRelation
from dbt_streamsql.runtime.spark.shared_relations import DriverRows, Shared, picked
from dbt_streamsql.runtime.write.change_feed import Feed
from dbt_streamsql.runtime.write.write_result import Outcome
from dbt_streamsql.runtime.write.writer import Writer
from dbt_streamsql.storage.conf import over_few_rows
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.scans import changes
from dbt_streamsql.storage.iceberg.scans.changes import Change
from dbt_streamsql.storage.iceberg.scans.keyed_rows import Asked
from dbt_streamsql.storage.iceberg.scans.sequence_scan import Recent
from dbt_streamsql.storage.inputs import inputs
from dbt_streamsql.tuning import Tuning

_REWRITES = ("changelog", "lineage", "difference")
"""Kinds of changes that may name unchanged rows: whole files were written again."""

_HINT = re.compile(r"/\*\+ BROADCAST\(\S+\) \*/ ")


@dataclass(frozen=True)
class InputChange:
    """An input of a job: where it is read and what changed.

    The change may be in the feed of another view, or be shared by the epoch.
    """

    name: TableName
    meta: Metadata
    change: Change
    feed: Feed | None = None
    shared: Shared | None = None

    @property
    def bytes(self) -> int:
        """About the size of its signed rows in files, from the mean row of the table."""
        ends = (self.change.old, self.change.new)
        rows = sum(self.meta.live_rows(end) for end in ends)
        return self.change.rows * sum(self.meta.live_bytes(end) for end in ends) // max(1, rows)

    def is_big(self, tuning: Tuning) -> bool:
        """Whether so much is stored that an epoch reads no more of it than it has to."""
        return self.meta.live_rows(self.change.new) >= tuning.big_rows

    def decoded(
        self, spark: SparkSession, columns: tuple[str, ...], tuning: Tuning
    ) -> DriverRows | None:
        """The consolidated signed rows of a small change of a big table, read by the process; None
        where Spark has to read them."""
        if self.feed is not None or not self.is_big(tuning):
            return None
        rows = tables_of(spark).changed_rows(
            self.name, self.meta, self.change, columns, tuning.decoded_bytes
        )
        if rows is None:
            return None
        return DriverRows(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


@dataclass
class SparkRelations:
    """The relations of one program in the session of its writer; `outcome` is what was written.

    `ages` are the rows of its inputs that have expired.
    """

    reads: Mapping[str, InputChange]
    writer: Writer
    ages: Expiry
    outcome: Outcome = field(default_factory=Outcome, init=False)

    def __post_init__(self) -> None:
        self.spark, self.local = self.writer.spark, self.writer.local
        self._open = ExitStack()
        self._net: dict[str, TempRelation] = {}
        self._weigh()
        self.recent = Recent(self.spark, self.local.view)
        self._rows_met: dict[str, str] = {}
        self._lookups: Sequence[Lookup] = ()
        self._columns: dict[str, tuple[str, ...]] = {}
        self._changed: dict[str, Frame] = {}
        self._missing: dict[tuple[str, str, str], TempRelation] = {}
        self._found = FoundRows(self.spark, self.local)
        self._whole: dict[str, str] = {}

    # -- inputs ------------------------------------------------------------------------------

    def expect(self, changes: Sequence[steps.Changes], lookups: Sequence[Lookup]) -> None:
        """Which tables are read by options in their SQL: see `Recent.fixed`. In big tables only
        the rows are looked up that are needed."""
        self.recent.fixed = frozenset(step.table for step in changes if not step.ttl)
        self._columns = {step.table: step.columns for step in changes if not step.ttl}
        self._lookups = [each for each in lookups if self._is_big(each.table)]
        if self._lookups and not self._hinted:
            self._net = {table: kept for table in self._columns if (kept := self._netted(table))}
            if self._net:
                self._weigh()

    def _weigh(self) -> None:
        """Decide whether the changes are so small that they are hinted to Spark."""
        tuning = self.writer.tuning
        rows, size = self._most()
        self._hinted = rows <= tuning.broadcast_rows and size <= tuning.driver_bytes
        self.writer.small = self._hinted
        # The hints already say what is small.
        self._open.enter_context(over_few_rows(self.spark, self._hinted))

    def _most(self, without: str = "") -> tuple[int, int]:
        """The rows of all changes, and about their bytes, as far as they are known."""
        rows = size = 0
        for table, read in self.reads.items():
            if table == without:
                continue
            net = self._net.get(table)
            rows += read.change.rows if net is None else net.count
            size += read.bytes if net is None else read.bytes * net.count // read.change.rows
        return rows, size

    def _netted(self, table: str) -> TempRelation | None:
        """What is left of a change that rewrote whole files, computed once: it may be little, and
        then other tables need not be read whole for it. None where that is not tried."""
        read, most = self.reads.get(table), self.writer.tuning.broadcast_rows
        if read is None or read.feed is not None or isinstance(read.shared, DriverRows):
            return None
        others, _ = self._most(without=table)
        if read.change.kind not in _REWRITES or read.change.rows <= most or others > most:
            return None
        change = self._changes(read, self._columns[table])
        return self.local.collect(f"SELECT * FROM {change}", small=False, few=most)

    def size(self, table: str) -> int:
        """The rows that its snapshot counts."""
        read = self.reads[table]
        return read.meta.live_rows(read.change.new)

    def _is_big(self, table: str) -> bool:
        return table in self.reads and self.reads[table].is_big(self.writer.tuning)

    def changes(
        self, table: str, columns: Sequence[str], meets: Sequence[Meeting], known: Known
    ) -> Frame:
        """The consolidated signed rows of what a table gained and lost."""
        kept = self._net.get(table) or self._decoded(table, tuple(columns))
        if kept is not None:
            found = kept.name if kept.count else None
        else:
            found = self._around(table, tuple(columns), meets, known)
            found = found or self._changes(self.reads[table], tuple(columns))
            if self._hinted and self._lookups:
                found = self._collected(found)
        self._changed[table] = found
        return found

    def _decoded(self, table: str, columns: tuple[str, ...]) -> TempRelation | None:
        """A change that the process has, or a small one of a big table that it can read."""
        read = self.reads[table]
        rows = None
        if isinstance(read.shared, DriverRows):
            rows = picked(read.shared, columns, consolidate=not read.change.insert_only)
        elif self._hinted and read.shared is None:
            rows = read.decoded(self.spark, columns, self.writer.tuning)
        return self.local.keep(rows) if rows is not None else None

    def _changes(self, read: InputChange, columns: tuple[str, ...]) -> Frame:
        if read.change.kind == "none":
            return None
        if isinstance(read.shared, DriverRows):
            known = self.local.rows(read.shared)
        elif read.shared is not None:
            known = read.shared.name
        elif read.feed is not None:
            known = self.local.view(read.feed.read(self.spark))
        else:
            return self._read(read, columns)
        names = ", ".join(quote(column) for column in columns)
        rows = f"SELECT {self._single(read)}{names}, {WEIGHT} FROM {known}"
        return (
            f"({rows})"
            if read.change.insert_only
            else changes.consolidated(rows, read.meta.typed(columns))
        )

    def _around(
        self, table: str, columns: tuple[str, ...], meets: Sequence[Meeting], known: Known
    ) -> Frame:
        """The change of a big table, read together with the rows that other changes meet.

        None where the two are not one read, or where the other changes are not known yet.
        """
        read = self.reads[table]
        moved = {name for name, other in self.reads.items() if other.change.kind != "none"}
        ways = asked(table, meets, moved)
        if not ways or not self._hinted or read.shared or read.feed:
            return None
        if not self._is_big(table) or not changes.is_flagged(read.meta, read.change):
            return None
        others = {way.other for way in ways}
        if not {(other, 0) for other in others} <= set(known):
            return None
        known |= {(other, 0): self._collected(known[other, 0]) for other in others}
        if all(self._is_in_changes(table, way, known[way.other, 0]) for way in ways):
            return None
        keys: dict[str, list[str]] = {}
        for way in ways:
            if (change := known[way.other, 0]) is not None:
                value = quote(way.other_column)
                asking = f"SELECT DISTINCT {value} AS k FROM {change} WHERE {value} IS NOT NULL"
                keys.setdefault(way.column, []).append(asking)
        unique = {column: f"({' UNION '.join(asking)})" for column, asking in keys.items()}
        sql = changes.changes_and_matches(read.name, read.meta, read.change, columns, unique)
        rows = self.local.collect(sql, small=False).name
        self._rows_met[table] = rows
        return changes.changes_from_matches(rows, read.meta, columns)

    def _is_in_changes(self, table: str, way: Meeting, other: Frame) -> bool:
        """Whether keys say that no row of a table has to be looked up for that change."""
        by = {
            each.by: each
            for each in self._lookups
            if (each.table, each.column) == (table, way.column)
        }
        if other is None or not by.keys().isdisjoint({"key", "unique"}):
            return True
        if "references" not in by or by["references"].parent != way.other:
            return False
        known = self.local.known(other)
        if known is not None and known.rows is not None:
            return not len(updated_keys(known.rows, way.other_column))
        keys = changed_keys(other, way.other_column)
        return not self.local.collect(f"SELECT k FROM ({keys}) WHERE updated", small=True).count

    def _collected(self, frame: Frame) -> Frame:
        if frame is None:
            return None
        kept, count = self.keep(frame)
        return kept if count else None

    def _read(self, read: InputChange, columns: tuple[str, ...]) -> Frame:
        files = self.recent.changed(read.name, read.meta, read.change)
        found = inputs.read(read.name, read.meta, read.change, columns, files)
        hint = self._single(read)
        if read.change.kind != "append" or not hint:
            return found
        return f"(SELECT {hint}* FROM {found})"

    def _single(self, read: InputChange) -> str:
        """A hint that puts a small change into one task: grouping it then needs no shuffle."""
        single = read.change.rows <= self.writer.tuning.single_rows
        return "/*+ COALESCE(1) */ " if single else ""

    def lapsing(self, table: str, columns: Sequence[str], ttl: int) -> Frame:
        """The signed rows of a table whose commits show what has expired."""
        read = self.reads[table]
        return changes.changes_with_expiry(
            read.name,
            read.meta,
            read.change,
            tuple(columns),
            self.ages.expired(table, ttl),
            partial(self.recent.rows, read.name, read.meta),
            self.recent.appended(read.name, read.change),
        )

    def before(self, table: str, *, met: bool, ttl: int) -> str:
        """The rows of the snapshot that the view last saw."""
        if met and table in self._rows_met:
            return f"(SELECT * FROM {self._rows_met[table]} WHERE NOT {changes.FRESH})"
        read = self.reads[table]
        if ttl:
            return self._live(read, read.change.old, self.ages.expired(table, ttl))
        return inputs.version(read.name, read.change.old, read.meta)

    def after(self, table: str, *, met: bool, ttl: int) -> str:
        """The rows of the snapshot that this epoch reads."""
        if met and table in self._rows_met:
            return f"(SELECT * FROM {self._rows_met[table]} WHERE NOT {changes.GONE})"
        read = self.reads[table]
        if ttl:
            # Rows that arrived in this epoch are live in it, however long ago they were written.
            expired = min(self.ages.expired(table, ttl), changes.sequence(read.meta, read.change))
            return self._live(read, read.change.new, expired)
        return inputs.version(read.name, read.change.new, read.meta)

    def _live(self, read: InputChange, snapshot: int | None, expired: int) -> str:
        if snapshot is None or expired <= 0:
            return inputs.version(read.name, snapshot, read.meta)
        return changes.drop_lineage_columns(
            self.recent.rows(read.name, read.meta, snapshot, expired)
        )

    # -- queries and the view ----------------------------------------------------------------

    def stored(self) -> str:
        """The rows of the snapshot that the write starts from."""
        return inputs.version(self.writer.table, self.writer.base)

    def looked_up(self, lookup: Lookup, rows: str, asking: str) -> str:
        """From the changes alone where declared keys allow it, else in the ranges of the values
        that are looked up; rows of a small table as they are."""
        if lookup not in self._lookups or lookup.table in self._rows_met:
            return rows
        matches = self._matches(lookup, asking)
        if matches is None:
            return self._within(rows, lookup, asking, lookup.key, nulls=lookup.nulls)
        at = (matches.own, matches.asking, lookup.column)
        if at not in self._missing:
            known = matches.missing_rows(self._found.known)
            self._missing[at] = (
                self.local.keep(known)
                if known is not None
                else self.local.collect(matches.missing, small=True)
            )
        missing = self._missing[at]
        parts = [self.local.known(matches.own)]
        if missing.count:
            looked_up = self._within(rows, lookup, missing.name, "k")
            found = matches.rows(looked_up, missing.name)
            parts.append(self._found.known(looked_up))
        else:
            found = matches.rows(rows, "")
        self._found.note(found, parts, matches.columns)
        return found

    def _matches(self, lookup: Lookup, asking: str) -> KeyMatches | None:
        """How keys answer a lookup; None if they do not."""
        kept, parent = self._found.known(asking), lookup.parent or lookup.table
        own, other = self._changed.get(lookup.table), self._changed.get(parent)
        if not lookup.by or own is None or other is None or kept is None:
            return None
        to = next((c for c in self._columns[parent] if c.lower() == lookup.to.lower()), "")
        if lookup.by == "references" and not to:
            return None
        if lookup.nulls and (kept.rows is None or kept.rows.data.column(lookup.key).null_count):
            return None
        at = replace(lookup, to=to)
        return KeyMatches(at, own, other, asking, self._columns[lookup.table])

    def _within(
        self, rows: str, lookup: Lookup, keys: str, key: str, *, nulls: bool = False
    ) -> str:
        """The rows with some keys, or those in the ranges of the keys, if the driver has them."""
        kept = self._found.known(keys)
        if kept is None or kept.rows is None:
            return rows
        values = kept.rows.data.column(key)
        if nulls and values.null_count:
            return rows
        if found := self._with_keys(rows, lookup, values):
            return found
        ranges = join_conditions.ranges(quote(lookup.column), kept, key)
        if not ranges:
            return rows
        within = f"(SELECT * FROM {rows} WHERE {ranges})"
        self._whole[within] = self._whole.get(rows, rows)
        return within

    def _with_keys(self, rows: str, lookup: Lookup, keys: pa.ChunkedArray) -> str:
        """The rows of a version of a table that have one of the keys, read by the process; ''
        where Spark has to read them."""
        read, columns = self.reads[lookup.table], self._columns.get(lookup.table)
        snapshot = read.change.old if lookup.moment == "before" else read.change.new
        plain = inputs.version(read.name, snapshot, read.meta)
        # What another column of the same lookup has left out may come again.
        if self._whole.get(rows, rows) != plain or read.meta.format != "iceberg":
            return ""
        if snapshot is None or columns is None or not self._hinted:
            return ""
        values = keys.combine_chunks().drop_null()
        asked = Asked(columns, lookup.column, values, self.writer.findable)
        return self._found.with_keys(read.name, snapshot, asked)

    def suited(self, text: str) -> str:
        """Without broadcast hints where the change is big."""
        return text if self._hinted else _HINT.sub("", text)

    def relation(self, sql: str) -> str:
        """The text of the query: Spark plans the whole query that contains it."""
        return f"({sql})"

    def keep(self, relation: str) -> tuple[str, int]:
        """In the driver when the change is small, else in Spark's cache."""
        kept = self.local.kept(relation, small=self._hinted)
        return kept.name, kept.count

    def of_groups(self, ttl: int) -> tuple[int, int]:
        """By the barrier's time: see `Ages`."""
        return self.ages.of_groups(ttl)

    def apply(self, change: str) -> None:
        """Add signed rows to the view."""
        self.outcome = self.writer.signed(change)

    def replace(self, rows: str, keys: str, key: tuple[str, ...], *, single: bool) -> None:
        """The rows of the view under `keys` become `rows`."""
        self.outcome = self.writer.replace(rows, keys, key, single=single)

    def fold(self, groups: str, spec: Fold) -> None:
        """Combine the changes of groups with the stored groups, on top of what was written."""
        self.outcome = self.writer.then(self.outcome, partial(self.writer.fold, groups, spec))

    def close(self) -> None:
        """Release what was kept."""
        self.recent.close()
        self.local.close()
        self._open.close()
