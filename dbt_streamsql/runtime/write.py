"""Apply a change to a view's table on its staging branch, by the cheapest exact way.

Only new rows: one INSERT. A small table, or most of a big one: overwrite the branch. Otherwise the
rows to go are looked up, deleted by row id and the new ones inserted; or, for folds without
readers of their change, one MERGE (`write_merge`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.expression import fill
from dbt_streamsql.plan.schema import HIDDEN_PREFIX, WEIGHT
from dbt_streamsql.plan.steps import Component, Fold
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.durable import durable
from dbt_streamsql.storage.iceberg import staging
from dbt_streamsql.storage.iceberg.changes import version

SMALL_TABLE = 100_000
"""Rows up to which a table is rewritten whole: one job instead of several."""

_ROW_ID = f"{HIDDEN_PREFIX}row_id"
_HERE = f"{HIDDEN_PREFIX}here"
_numbers = itertools.count()


class Mismatch(Exception):
    """The stored view does not hold a row that the change takes away: refresh it in full."""


@dataclass(frozen=True)
class Outcome:
    """Rows that the view gained and lost; `feed` is that change as signed visible rows."""

    inserted: int = 0
    deleted: int = 0
    feed: DataFrame | None = None

    @property
    def changed(self) -> bool:
        return bool(self.inserted or self.deleted)


@dataclass
class Writer:
    """Writes to the branch of one view in one session.

    `columns` are all stored columns, `visible` those of the query; `base` is the snapshot that
    the branch starts from, `live` its number of rows; `feed` asks for the view's own change.
    """

    spark: SparkSession
    table: TableName
    branch: str
    base: int
    live: int
    columns: tuple[str, ...]
    visible: tuple[str, ...]
    feed: bool
    _kept: list[DataFrame] = field(default_factory=list)
    _views: list[str] = field(default_factory=list)
    _open: bool = False

    def signed(self, change: DataFrame) -> Outcome:
        """Add signed rows over the visible columns to a view without a key."""
        diff = self._consolidated(change, self.visible)
        gained, lost = self._count(diff)
        if not gained and not lost:
            return Outcome()
        ids = self._rows_like(diff, lost) if lost else None
        self._write(ids, lost, self._positive(diff) if gained else None)
        return Outcome(gained, lost, diff if self.feed else None)

    def replace(self, new: DataFrame, keys: DataFrame, key: tuple[str, ...]) -> Outcome:
        """Exchange the rows under `keys` for `new` (all stored columns)."""
        return self._exchange(self._stored(keys, key), new, key)

    def fold(self, groups: DataFrame, exact: DataFrame | None, spec: Fold) -> Outcome:
        """Combine the change of groups with the stored groups."""
        from dbt_streamsql.runtime import write_merge

        source = self._fold_source(groups, exact, spec)
        if self.live > SMALL_TABLE and not self.feed and spec.key:
            return write_merge.fold(self, source, spec)
        old = self._stored(groups, spec.key)
        return self._exchange(old, self._folded(source, old, spec), spec.key)

    def close(self) -> None:
        for frame in self._kept:
            frame.unpersist()
        for view in self._views:
            self.spark.catalog.dropTempView(view)

    # -- shared with write_merge -------------------------------------------------------------

    def view(self, frame: DataFrame) -> str:
        """The frame under a temporary name."""
        name = f"streamsql_write_{next(_numbers)}"
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        return name

    def keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    @contextmanager
    def writing(self) -> Iterator[str]:
        """The branch as the target of a write, opened when it is first needed."""
        if not self._open:
            with durable("branch.create"):
                staging.create_branch(self.spark, self.table, self.branch, self.base)
            self._open = True
        with durable("branch.write"):
            yield staging.branch_sql(self.table, self.branch)

    @property
    def stored_sql(self) -> str:
        return version(self.table, self.base)

    # -- the ways of writing -----------------------------------------------------------------

    def _write(self, ids: DataFrame | None, lost: int, new: DataFrame | None) -> None:
        """Take away the rows `ids` (a column of row ids) and add the rows `new`."""
        names = ", ".join(quote(column) for column in self.columns)
        if ids is None:
            assert new is not None
            with self.writing() as target:
                self.spark.sql(
                    f"INSERT INTO {target} ({names}) SELECT {names} FROM {self.view(new)}"
                )
            return
        gone = self.view(ids)
        if self.live <= SMALL_TABLE or lost * 2 > self.live:
            kept = (
                f"SELECT /*+ BROADCAST(g) */ {names} FROM (SELECT *, _row_id AS {_ROW_ID} "
                f"FROM {self.stored_sql}) t LEFT ANTI JOIN {gone} g ON t.{_ROW_ID} = g.{_ROW_ID}"
            )
            added = f" UNION ALL SELECT {names} FROM {self.view(new)}" if new is not None else ""
            with self.writing() as target:
                self.spark.sql(f"INSERT OVERWRITE {target} ({names}) {kept}{added}")
            return
        with self.writing() as target:
            self.spark.sql(
                f"DELETE FROM {target} WHERE _row_id IN (SELECT {_ROW_ID} FROM {gone})"
            )
        if new is not None:
            self._write(None, 0, new)

    def _exchange(self, old: DataFrame, new: DataFrame, key: tuple[str, ...]) -> Outcome:
        """Write the difference of the rows of some keys; equal rows are left alone."""
        names = [quote(column) for column in self.columns]
        both = new.selectExpr(*names, f"1L AS {WEIGHT}").unionAll(
            old.selectExpr(*names, f"-1L AS {WEIGHT}")
        )
        diff = self._consolidated(both, self.columns)
        gained, lost = self._count(diff)
        if not gained and not lost:
            return Outcome()
        ids = None
        if lost:
            on = _same(key, "o", "d") or "true"
            ids = self.spark.sql(
                f"SELECT o.{_ROW_ID} FROM {self.view(old)} o JOIN {self.view(diff)} d "
                f"ON {on} WHERE d.{WEIGHT} < 0"
            )
        self._write(ids, lost, self._positive(diff) if gained else None)
        return Outcome(gained, lost, self._visible(diff) if self.feed else None)

    def _fold_source(self, groups: DataFrame, exact: DataFrame | None, spec: Fold) -> DataFrame:
        """The change of groups with the recomputed extrema beside it."""
        extrema = [part for part in spec.components if part.kind != "add"]
        if not extrema:
            return groups
        lost = f"{HIDDEN_PREFIX}lost"
        if exact is None:
            return groups.selectExpr(
                "*", *[f"NULL AS {_exact(part, spec)}" for part in extrema]
            )
        items = ", ".join(f"e.{quote(p.column)} AS {_exact(p, spec)}" for p in extrema)
        on = _same(spec.key, "g", "e") or "true"
        return self.spark.sql(
            f"SELECT g.*, {items} FROM {self.view(groups)} g "
            f"LEFT JOIN {self.view(exact)} e ON g.{lost} AND {on}"
        )

    def _folded(self, source: DataFrame, old: DataFrame, spec: Fold) -> DataFrame:
        """The new rows of the changed groups."""
        values = fold_values(spec, "t", "s")
        items = ", ".join(f"{values[column]} AS {quote(column)}" for column in self.columns)
        alive = f"WHERE {values[spec.alive]} > 0" if spec.alive else ""
        on = _same(spec.key, "s", "t") or "true"
        return self.spark.sql(
            f"SELECT {items} FROM {self.view(source)} s "
            f"LEFT JOIN {self.view(old)} t ON {on} {alive}"
        )

    # -- reading the stored rows -------------------------------------------------------------

    def _stored(self, keys: DataFrame, key: tuple[str, ...]) -> DataFrame:
        """The stored rows of some keys, with their row ids."""
        names = ", ".join(f"t.{quote(column)}" for column in self.columns)
        table = f"(SELECT *, _row_id AS {_ROW_ID} FROM {self.stored_sql}) t"
        if not key:
            return self.keep(self.spark.sql(f"SELECT {names}, t.{_ROW_ID} FROM {table}"))
        return self.keep(
            self.spark.sql(
                f"SELECT /*+ BROADCAST(k) */ {names}, t.{_ROW_ID} FROM {table} "
                f"LEFT SEMI JOIN {self.view(keys)} k ON {_same(key, 't', 'k')}"
            )
        )

    def _rows_like(self, diff: DataFrame, lost: int) -> DataFrame:
        """Row ids of as many copies of each negative row as it takes away."""
        change = self.view(diff)
        names = ", ".join(f"t.{quote(column)}" for column in self.visible)
        found = self.keep(
            self.spark.sql(
                f"SELECT {_ROW_ID} FROM (SELECT /*+ BROADCAST(d) */ t.{_ROW_ID}, d.{WEIGHT}, "
                f"row_number() OVER (PARTITION BY {names} ORDER BY t.{_ROW_ID}) AS n "
                f"FROM (SELECT *, _row_id AS {_ROW_ID} FROM {self.stored_sql}) t "
                f"JOIN {change} d ON {_same(self.visible, 't', 'd')} AND d.{WEIGHT} < 0) "
                f"WHERE n <= -{WEIGHT}"
            )
        )
        if found.count() != lost:
            raise Mismatch
        return found

    # -- signed rows -------------------------------------------------------------------------

    def _consolidated(self, frame: DataFrame, columns: tuple[str, ...]) -> DataFrame:
        names = ", ".join(quote(column) for column in columns)
        return self.keep(
            self.spark.sql(
                f"SELECT {names}, sum({WEIGHT}) AS {WEIGHT} FROM {self.view(frame)} "
                f"GROUP BY {names} HAVING sum({WEIGHT}) <> 0"
            )
        )

    def _count(self, diff: DataFrame) -> tuple[int, int]:
        row = diff.agg(
            F.expr(f"coalesce(sum(greatest({WEIGHT}, 0)), 0)"),
            F.expr(f"coalesce(-sum(least({WEIGHT}, 0)), 0)"),
        ).collect()[0]
        return int(row[0]), int(row[1])

    def _positive(self, diff: DataFrame) -> DataFrame:
        names = ", ".join(quote(column) for column in diff.columns if column != WEIGHT)
        return self.spark.sql(
            f"SELECT {names} FROM (SELECT *, explode(sequence(1, CAST({WEIGHT} AS INT))) AS _copy "
            f"FROM {self.view(diff)} WHERE {WEIGHT} > 0)"
        )

    def _visible(self, diff: DataFrame) -> DataFrame:
        return diff.selectExpr(*[quote(column) for column in self.visible], WEIGHT)


def fold_values(spec: Fold, old: str, new: str) -> dict[str, str]:
    """The new value of every stored column, as SQL over the aliases of old row and change.

    With `old` = '' there is no old row: the value of a new group.
    """
    values = {column: f"{new}.{quote(column)}" for column in spec.key}
    parts = {part.column: part for part in spec.components}

    def value(column: str) -> str:
        part = parts[column]
        change = f"{new}.{quote(column)}"
        stored = f"{old}.{quote(column)}" if old else "NULL"
        if part.kind != "add":
            both = f"{part.kind}({stored}, {change})" if old else change
            exact = f"{new}.{_exact(part, spec)}"
            chosen = f"IF({new}.{HIDDEN_PREFIX}lost, {exact}, {both})"
            return f"CAST({chosen} AS {part.type})"
        total = f"CAST(coalesce({stored}, 0) + {change} AS {part.type})" if old else change
        if part.null_when_zero:
            return f"CASE WHEN {value(part.null_when_zero)} = 0 THEN NULL ELSE {total} END"
        return total

    values |= {column: value(column) for column in parts}
    bare = dict(values)
    for derived in spec.derived:
        values[derived.column] = fill(derived.sql, lambda column: f"({bare[column]})")
    return values


def _exact(part: Component, spec: Fold) -> str:
    return f"{HIDDEN_PREFIX}exact_{spec.components.index(part)}"


def _same(columns: tuple[str, ...], left: str, right: str) -> str:
    """Null-safe equality of all columns."""
    return " AND ".join(f"{left}.{quote(c)} <=> {right}.{quote(c)}" for c in columns)


def internal(message: str) -> StreamSqlError:
    return StreamSqlError("INTERNAL", message)
