"""Apply a change to a view's table on its staging branch, by the cheapest exact way.

The driver writes a change that it can hold (`driver_writer`). Otherwise, and over Spark Connect:
only new rows, one INSERT; a small table or most of a big one, overwrite the branch; else look up
the rows to remove, delete them by row id and insert the new ones, or, for folds without readers of
their change, one MERGE (`merge_writer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt_streamsql.plan.algebra import likeness
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT, Column
from dbt_streamsql.plan.program.fold_values import folded_rows
from dbt_streamsql.plan.program.steps import Fold
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.core.stored_rows import KnownRows, StoredRows
from dbt_streamsql.runtime.spark.join_conditions import same
from dbt_streamsql.runtime.spark.scratch import Scratch, TempRelation
from dbt_streamsql.runtime.spark.shared_relations import DriverRows, rows_of, travels
from dbt_streamsql.runtime.write import driver_writer, held_rows, merge_writer, staging_branch
from dbt_streamsql.runtime.write.write_result import Mismatch, Outcome, TooManyRowsError
from dbt_streamsql.storage.arrow_rows import TooManyBytesError
from dbt_streamsql.storage.iceberg import metadata, staging
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.commits.row_delta import RowDelta
from dbt_streamsql.storage.iceberg.provenance import Provenance
from dbt_streamsql.storage.iceberg.scans.changes import version
from dbt_streamsql.storage.iceberg.scans.keyed_rows import Asked, Limit
from dbt_streamsql.tuning import Tuning

_ROW_ID = f"{HIDDEN_PREFIX}row_id"
_FOUND = ("tinyint", "smallint", "int", "bigint", "date", "string")
"""Types of keys by which rows are found in files."""

_FEW = 50_000
"""Rows of a view that are read as fast as a few of them are found."""
_MET = f"{HIDDEN_PREFIX}met"
"""The number of rows of a change that are equal to this one."""


@dataclass
class Writer:
    """Writes to the branch of one view in one session.

    `origin` is the provenance that its snapshots record; `columns` are all stored columns,
    `visible` those of the query; `base` is the snapshot that the `branch` starts from, `live` its
    number of rows; `feed` asks for the view's own change; `small` says that the change fits the
    driver, `driver` that the driver can write the table, `aged` that unchanged rows must not be
    rewritten, since a view derives their age from their commits; `types` are the column types by
    name; `most` are the signed rows above which rewriting all rows is cheaper (0: it never is).
    `known` are the rows of views that the process has, read by the schema `schema_id`; `at_hand`
    says that it can read the table's files. `found` are the stored rows that `find` has found.
    """

    spark: SparkSession
    local: Scratch
    table: TableName
    origin: Provenance
    branch: str
    base: int
    live: int
    columns: tuple[str, ...]
    visible: tuple[str, ...]
    feed: bool
    driver: bool
    small: bool = True
    aged: bool = False
    tuning: Tuning = field(default_factory=Tuning)
    types: Mapping[str, str] = field(default_factory=dict)
    most: int = 0
    known: KnownRows | None = None
    schema_id: int = 0
    at_hand: bool = False
    found: StoredRows | None = field(default=None, init=False)
    _open: bool = field(default=False, init=False)

    def _typed(self, names: Iterable[str]) -> list[Column]:
        """Columns with their types."""
        return likeness.typed(names, self.types)

    def signed(self, change: str) -> Outcome:
        """Add signed rows over the visible columns to a view without a key.

        Error: `Mismatch` when there are too many.
        """
        diff, gained, lost = self._consolidated(change, self.visible, self.most)
        if not gained and not lost:
            return Outcome()
        written = self._from_driver(diff, partial(driver_writer.signed, self))
        if written is not None:
            return written
        ids = self._rows_like(diff.name, lost) if lost else ""
        self._write(ids, lost, self._positive(diff.name) if gained else "")
        return Outcome(gained, lost, diff if self.feed else None)

    def replace(self, new: str, keys: str, key: tuple[str, ...], *, single: bool) -> Outcome:
        """Replace the rows under `keys` with `new` (all stored columns); one row per key if
        `single`."""
        if self.driver and self.small:
            rows = self.local.kept(new, small=True)
            written = self._from_driver(
                rows, partial(driver_writer.replace, self, keys=keys, key=key)
            )
            if written is not None:
                return written
            new = rows.name
        return self._exchange(self._stored(keys, key).name, new, key if single else self.columns)

    def fold(self, groups: str, spec: Fold) -> Outcome:
        """Combine the change of groups with the stored groups."""
        if self.driver and self.small:
            rows = self.local.kept(groups, small=True)
            written = self._from_driver(rows, partial(driver_writer.fold, self, spec=spec))
            if written is not None:
                return written
        # Spark allows nothing in a MERGE that can raise an error.
        checked = any(part.kind == "claims" for part in spec.components)
        if self.live > self.tuning.small_table and not self.feed and spec.key and not checked:
            inserted, deleted = merge_writer.fold(self, groups, spec)
            return Outcome(inserted, deleted)
        old = self._stored(groups, spec.key).name
        return self._exchange(old, f"({folded_rows(spec, self.columns, groups, old)})", spec.key)

    def held(self, names: Sequence[str], *, read: bool = True) -> StoredRows | None:
        """All rows of the view, to be looked up by these columns; None where Spark has to.

        `read`: whether they are worth a statement where the process does not know them.
        """
        if self.known is None or not held_rows.agree(names, self.types):
            return None
        few = self.live <= min(_FEW, self.tuning.held_rows)
        return self.rows() if read and few else self._known_rows()

    @property
    def findable(self) -> Limit:
        """How much is read to find rows by their keys."""
        return Limit(self.tuning.decoded_bytes, self.tuning.broadcast_rows)

    def find(self, names: Sequence[str], asked: pa.Table) -> StoredRows | None:
        """The rows `near` to these, of which some will be replaced: they are not read again."""
        self.found = self.near(names, asked)
        return self.found

    def near(self, names: Sequence[str], asked: pa.Table) -> StoredRows | None:
        """At least the stored rows that equal a row of `asked` in these columns, from the files
        that have them; None where Spark has to find them."""
        if self.found is not None:
            return self.found
        if not self.at_hand or not held_rows.agree(names, self.types):
            return None
        for name in names:
            keys = asked.column(name).combine_chunks()
            if keys.null_count or self.types[name] not in _FOUND:
                continue
            known = Asked(self.columns, name, keys, self.findable)
            found = tables_of(self.spark).keyed_rows(self.table, self.base, known)
            if found is not None:
                return StoredRows.of_files(found)
        return None

    def rows(self) -> StoredRows:
        """All rows of the view, which the process knows from now on."""
        found = self._known_rows()
        if found is None:
            found = driver_writer.all_stored(self)
            if self.known is not None:
                self.known.put(str(self.table), (self.base, self.schema_id), found)
        return found

    def _known_rows(self) -> StoredRows | None:
        if self.known is None:
            return None
        return self.known.get(str(self.table), (self.base, self.schema_id))

    def then(self, before: Outcome, write: Callable[[], Outcome]) -> Outcome:
        """Write on top of `before`; returns the combined outcome."""
        if before.changed:
            meta = metadata.load(self.spark, self.table)
            assert meta is not None
            self.base = meta.refs[self.branch]
            # Of the version in between nothing is known, and reading all of it would not pay.
            self.known = None
            self.live = meta.live_rows(self.base)
        after = write()
        if not before.changed or not after.changed:
            return after if after.changed else before
        feed = None
        if before.feed is not None and after.feed is not None:
            names = ", ".join(quote(column) for column in (*self.visible, WEIGHT))
            sides = (f"SELECT {names} FROM {each.name}" for each in (before.feed, after.feed))
            feed = self.local.collect(" UNION ALL ".join(sides), small=self.small)
        inserted, deleted = before.inserted + after.inserted, before.deleted + after.deleted
        return Outcome(inserted, deleted, feed)

    def _from_driver(
        self, kept: TempRelation, write: Callable[[DriverRows], Outcome]
    ) -> Outcome | None:
        """Write these rows from the driver; None where Spark has to."""
        if not self.driver or kept.rows is None or kept.count > self.tuning.driver_rows:
            return None
        # The stored rows that they meet may be long, although they are not.
        with suppress(TooManyBytesError):
            return write(kept.rows)
        return None

    def commit(self, delta: RowDelta) -> str:
        """Commit a change to the branch from the driver, which also creates the branch; returns
        the path of the file with the new rows ('': there are none)."""
        with failpoint("branch.write"):
            tables = tables_of(self.spark)
            return tables.commit(self.table, self.branch, self.base, self.origin, delta)

    @contextmanager
    def writing(self) -> Iterator[str]:
        """The branch as the target of a write, opened when it is first needed."""
        if not self._open:
            staging_branch.create(self.spark, self.table, self.branch, self.base)
            self._open = True
        with failpoint("branch.write"):
            yield staging.branch_sql(self.table, self.branch)

    # -- the ways of writing -----------------------------------------------------------------

    def _write(self, ids: str, lost: int, new: str) -> None:
        """Remove the rows whose ids are in `ids` and add the rows `new` ('' = none)."""
        names = ", ".join(quote(column) for column in self.columns)
        if not ids:
            with self.writing() as target:
                self.spark.sql(f"INSERT INTO {target} ({names}) SELECT {names} FROM {new}")
            return
        if not self.aged and (self.live <= self.tuning.small_table or lost * 2 > self.live):
            kept = (
                f"SELECT /*+ BROADCAST(g) */ {names} FROM {self._with_ids} t "
                f"LEFT ANTI JOIN {ids} g ON t.{_ROW_ID} = g.{_ROW_ID}"
            )
            added = f" UNION ALL SELECT {names} FROM {new}" if new else ""
            with self.writing() as target:
                self.spark.sql(f"INSERT OVERWRITE {target} ({names}) {kept}{added}")
            return
        with self.writing() as target:
            self.spark.sql(f"DELETE FROM {target} WHERE _row_id IN (SELECT {_ROW_ID} FROM {ids})")
        if new:
            self._write("", 0, new)

    def _exchange(self, old: str, new: str, apart: tuple[str, ...]) -> Outcome:
        """Write the difference between the rows of some keys; equal rows are left alone.

        Rows that agree in the columns `apart` are copies of one another.
        """
        names = ", ".join(quote(column) for column in self.columns)
        both = (
            f"(SELECT {names}, 1L AS {WEIGHT} FROM {new} "
            f"UNION ALL SELECT {names}, -1L AS {WEIGHT} FROM {old})"
        )
        diff, gained, lost = self._consolidated(both, self.columns)
        if not gained and not lost:
            return Outcome()
        ids = ""
        if lost:
            on = likeness.same(self._typed(apart), "o", "d") or "true"
            copies = self._apart(apart, "o") or "1"
            ids = (
                f"(SELECT {_ROW_ID} FROM (SELECT o.{_ROW_ID}, d.{WEIGHT}, row_number() OVER "
                f"(PARTITION BY {copies} ORDER BY o.{_ROW_ID}) AS n FROM {old} o "
                f"JOIN {diff.name} d ON {on} WHERE d.{WEIGHT} < 0) WHERE n <= -{WEIGHT})"
            )
        self._write(ids, lost, self._positive(diff.name) if gained else "")
        return Outcome(gained, lost, diff if self.feed else None)

    # -- reading the stored rows -------------------------------------------------------------

    @property
    def _with_ids(self) -> str:
        return f"(SELECT *, _row_id AS {_ROW_ID} FROM {version(self.table, self.base)})"

    def _stored(self, keys: str, key: tuple[str, ...]) -> TempRelation:
        """The stored rows of some keys, with their row ids."""
        names = ", ".join(f"t.{quote(column)}" for column in self.columns)
        sql = f"SELECT /*+ BROADCAST(k) */ {names}, t.{_ROW_ID} FROM {self._with_ids} t"
        if key:
            sql += f" LEFT SEMI JOIN {keys} k ON {same(key, 't', 'k')}"
        return self.local.collect(sql, small=self.small)

    def _apart(self, columns: Sequence[str], alias: str) -> str:
        """The columns of a relation as expressions that distinguish its rows."""
        values = (
            likeness.stand_in(column.type, f"{alias}.{quote(column.name)}")
            for column in self._typed(columns)
        )
        return ", ".join(values)

    def _rows_like(self, diff: str, lost: int) -> str:
        """For each negative row, the ids of as many copies as it removes."""
        names = self._apart(self.visible, "t")
        alike = likeness.same(self._typed(self.visible), "t", "d")
        found = self.local.collect(
            f"SELECT {_ROW_ID} FROM (SELECT /*+ BROADCAST(d) */ t.{_ROW_ID}, d.{WEIGHT}, "
            f"row_number() OVER (PARTITION BY {names} ORDER BY t.{_ROW_ID}) AS n "
            f"FROM {self._with_ids} t "
            f"JOIN {diff} d ON {alike} AND d.{WEIGHT} < 0) "
            f"WHERE n <= -{WEIGHT}",
            small=self.small,
        )
        if found.count != lost:
            raise Mismatch
        return found.name

    # -- signed rows -------------------------------------------------------------------------

    def _consolidated(
        self, change: str, columns: tuple[str, ...], most: int = 0
    ) -> tuple[TempRelation, int, int]:
        """The change without rows that cancel out, rows gained, rows lost.

        `most`: the signed rows that it may have (0: any). Error: `Mismatch` when it has more.
        """
        names, keys = likeness.grouped(self._typed(columns))
        small, kept = self.small, None
        if most and small:
            try:
                kept = self._within(change, names, keys, most)
            except TooManyBytesError:
                small = False
        kept = kept or self.local.collect(
            f"SELECT {names}, sum({WEIGHT}) AS {WEIGHT} FROM {change} "
            f"GROUP BY {keys} HAVING sum({WEIGHT}) <> 0",
            small=small,
            # Of the rows of a rewritten file, nearly all may cancel out.
            few=self.tuning.driver_rows if self.driver else 0,
        )
        if kept.rows is not None:
            weights = kept.rows.data.column(WEIGHT).to_pylist()
        else:
            weights = self.spark.sql(
                f"SELECT sum(greatest({WEIGHT}, 0)), sum(least({WEIGHT}, 0)) FROM {kept.name}"
            ).collect()[0]
        gained = sum(weight for weight in weights if weight and weight > 0)
        lost = -sum(weight for weight in weights if weight and weight < 0)
        return kept, gained, lost

    def _within(self, change: str, names: str, keys: str, most: int) -> TempRelation | None:
        """The same, computed only as far as needed to show that it has too many rows; None where
        its rows cannot come to the driver."""
        frame = self.spark.sql(
            f"SELECT {names}, sum({WEIGHT}) AS {WEIGHT}, count(*) AS {_MET} "
            f"FROM (SELECT * FROM {change} LIMIT {most + 1}) GROUP BY {keys}"
        )
        if not travels(frame):
            return None
        rows = rows_of(frame, self.local.most)
        if (pc.sum(rows.data.column(_MET)).as_py() or 0) > most:
            raise TooManyRowsError(most)
        left = rows.data.filter(pc.not_equal(rows.data.column(WEIGHT), 0)).drop_columns([_MET])
        return self.local.keep(DriverRows(left, StructType(rows.schema.fields[:-1])))

    def _positive(self, diff: str) -> str:
        """Each gained row as many times as it is gained."""
        return (
            f"(SELECT *, explode(sequence(1, CAST({WEIGHT} AS INT))) AS _copy "
            f"FROM {diff} WHERE {WEIGHT} > 0)"
        )
