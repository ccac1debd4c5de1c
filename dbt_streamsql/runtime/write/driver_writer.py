"""Apply a small change from the driver: one lookup of stored rows, one commit.

Spark finds the stored rows that the change meets, with their files and positions, and computes the
new ones. The driver then knows which rows to remove and which to add, so it writes one data file
and one deletion vector per touched file at once (`storage/iceberg/commits/row_delta.py`): no
second scan, no write job, no separate commits for deletes and inserts.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT
from dbt_streamsql.plan.program.fold_values import fold_values
from dbt_streamsql.plan.program.steps import Fold
from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime.core.stored_rows import (
    COPIES,
    FILE,
    PLACE_IN_NUMBERS,
    POSITION,
    StoredRows,
)
from dbt_streamsql.runtime.spark.join_conditions import match
from dbt_streamsql.runtime.spark.scratch import TempRelation
from dbt_streamsql.runtime.spark.shared_relations import DriverRows
from dbt_streamsql.runtime.write import held_rows
from dbt_streamsql.runtime.write.held_rows import Exchange
from dbt_streamsql.runtime.write.write_result import Mismatch, Outcome
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.commits.row_delta import FilesUnknown, RowDelta
from dbt_streamsql.storage.iceberg.scans.changes import version

if TYPE_CHECKING:
    from dbt_streamsql.runtime.write.writer import Writer

_MAX_FIELDS = "spark.sql.codegen.maxFields"
"""Up to this many columns, Spark generates code for rows (100 by default)."""

_NUMBER = f"{HIDDEN_PREFIX}number"
_ALIVE = f"{HIDDEN_PREFIX}alive"
_OLD = f"{HIDDEN_PREFIX}old_"
_STORED = f"{HIDDEN_PREFIX}stored"
_PLACE = f"_file AS {FILE}, _pos AS {POSITION}"
"""Unqualified, since only the table has them: in a view with a column `t`, `t._file` would be a
field."""


def signed(writer: Writer, change: DriverRows) -> Outcome:
    """Add consolidated signed rows over the visible columns."""
    lost, come = _lost(change), _come_rows(change, writer.visible)
    whole = writer.columns == writer.visible
    held = writer.held(writer.visible, read=bool(lost)) if whole else None
    if held is not None:
        numbers = pa.array(_numbers_of(held, change, lost, writer.visible), pa.int64())
        outcome = _write(writer, come, held.rows.take(numbers), change)
        return _known(outcome, held, numbers, come)
    gone = _places_of(writer, change, lost, writer.visible) if lost else None
    return _write(writer, come, gone, change)


def _known(outcome: Outcome, held: StoredRows, lost: pa.Array, come: pa.Table) -> Outcome:
    """The outcome with the rows that the view has now."""
    if not outcome.changed:
        return outcome
    return replace_fields(outcome, stored=held.after(lost, come, outcome.file))


def _numbers_of(
    held: StoredRows, change: DriverRows, lost: list[int], names: tuple[str, ...]
) -> list[int]:
    """The numbers of as many stored rows as a change removes. Error: `Mismatch` when there are
    fewer."""
    if not lost:
        return []
    met = held_rows.met(held, _take(change.data, lost), names)
    rows, numbers = [lost[at] for at in met.asked.to_pylist()], met.stored.to_pylist()
    return [numbers[index] for index in _chosen(change, lost, rows)]


def _chosen(change: DriverRows, lost: list[int], rows: Sequence[int]) -> list[int]:
    """Of stored rows like these `rows` of a change, by index, as many as it removes. Error:
    `Mismatch` when there are fewer."""
    weights = change.data.column(WEIGHT).to_pylist()
    wanted = {row: -weights[row] for row in lost}
    chosen = []
    for index, row in enumerate(rows):
        if wanted[row]:
            wanted[row] -= 1
            chosen.append(index)
    if any(wanted.values()):
        raise Mismatch
    return chosen


def different(writer: Writer, change: DriverRows) -> Outcome:
    """Write signed rows over all stored columns.

    Each row also has `COPIES` and the largest of each number of its place.
    Error: `Mismatch` when there are more than the driver writes.
    """
    _few_enough(writer, change)
    lost, gone = _lost(change), None
    if lost:
        gone = _take(change.data, lost)
        if pc.max(gone.column(COPIES)).as_py() > 1:
            gone = _places_of(writer, change, lost, writer.columns)
    return _write(writer, _come_rows(change, writer.columns), gone, _visible(writer, change))


def exchanged(writer: Writer, change: DriverRows, gone: pa.Table) -> tuple[Outcome, pa.Table]:
    """The same, when the stored rows to remove are known; also returns the new rows, in order.

    `change` has only the types of the columns.
    """
    _few_enough(writer, change)
    typed = DriverRows(change.data, StructType([*change.schema, StructField(WEIGHT, LongType())]))
    come = _come_rows(change, writer.columns)
    return _write(writer, come, gone, _visible(writer, typed)), come


def _few_enough(writer: Writer, change: DriverRows) -> None:
    if change.data.num_rows > writer.tuning.driver_rows:
        raise Mismatch(f"a comparison found {change.data.num_rows:,} different rows")


def _visible(writer: Writer, change: DriverRows) -> DriverRows | None:
    """What readers of the view see of signed rows over all its columns."""
    if not writer.feed:
        return None
    names = (*writer.visible, WEIGHT)
    fields = {item.name: item for item in change.schema}
    return DriverRows(change.data.select(names), StructType([fields[name] for name in names]))


def _come_rows(change: DriverRows, names: Sequence[str]) -> pa.Table:
    """Each gained row of a change, as many times as it is gained."""
    weights = change.data.column(WEIGHT).to_pylist()
    come = [row for row, weight in enumerate(weights) for _ in range(weight)]
    return _take(change.data.select(names), come)


def _lost(change: DriverRows) -> list[int]:
    """The numbers of the rows that a change removes."""
    weights = change.data.column(WEIGHT).to_pylist()
    return [row for row, weight in enumerate(weights) if weight < 0]


def _places_of(
    writer: Writer, change: DriverRows, lost: list[int], names: tuple[str, ...]
) -> pa.Table:
    """As many stored rows as a change removes. Error: `Mismatch` when there are fewer."""
    near = writer.near(names, _take(change.data, lost))
    if near is not None:
        return near.rows.take(pa.array(_numbers_of(near, change, lost, names), pa.int64()))
    asked = _numbered(writer, change, lost)
    condition, literals = match(asked, names)
    found = writer.local.fetch(
        f"SELECT /*+ BROADCAST(s) */ s.{_NUMBER}, {_PLACE} "
        f"FROM {stored(writer)} t JOIN {asked.name} s ON {condition}",
        literals,
    ).data
    return _take(found, _chosen(change, lost, found.column(_NUMBER).to_pylist()))


def replace(writer: Writer, new: DriverRows, keys: str, key: tuple[str, ...]) -> Outcome:
    """Replace the rows under `keys` with `new` (all stored columns) where they differ."""
    names = list(writer.columns)
    held = None if key else writer.held(writer.columns)
    if held is not None:
        old = DriverRows(held.rows, new.schema)
    else:
        old = _under(writer, writer.local.kept(keys, small=True) if key else None, key, new.schema)
    came, went = _difference(_tuples(new.data.select(names)), _tuples(old.data.select(names)))
    come, gone = _take(new.data.select(names), came), _take(old.data, went)
    outcome = _write(writer, come, gone, _feed(writer, old.schema, come, gone))
    return _known(outcome, held, pa.array(went, pa.int64()), come) if held else outcome


def _under(
    writer: Writer, asked: TempRelation | None, key: tuple[str, ...], types: StructType
) -> DriverRows:
    """The stored rows under some keys (None: all rows), with their places."""
    if asked is not None and asked.rows is not None:
        near = writer.near(key, asked.rows.data)
        if near is not None:
            met = held_rows.met(near, asked.rows.data, key)
            return DriverRows(near.rows.take(pc.unique(met.stored)), types)
    items = ", ".join(f"t.{quote(column)}" for column in writer.columns)
    sql = f"SELECT /*+ BROADCAST(s) */ {items}, {_PLACE} FROM {stored(writer)} t"
    literals: dict[str, Any] = {}
    if asked is not None:
        condition, literals = match(asked, key)
        sql += f" LEFT SEMI JOIN {asked.name} s ON {condition}"
    return _look_up(writer, sql, literals)


def fold(writer: Writer, source: DriverRows, spec: Fold) -> Outcome:
    """Combine the changes of groups with the stored groups."""
    held = writer.held(spec.key)
    near = held
    if near is None and not spec.ttl and held_rows.agree(writer.columns, writer.types):
        near = writer.near(spec.key, source.data)
    if near is not None:
        found = held_rows.fold(near, source.data, spec, writer.columns, writer.types)
        if found is not None:
            outcome, come = _exchanged(writer, source, near, found)
            return _known(outcome, held, found.lost, come) if held is not None else outcome
    names = list(writer.columns)
    beside = _beside(writer, source, near, spec) if near is not None else ""
    literals: dict[str, Any] = {}
    if beside:
        from_, place = beside, f"{FILE}, {POSITION}, {_STORED}"
    else:
        asked = _numbered(writer, source, range(source.data.num_rows))
        condition, literals = match(asked, spec.key)
        from_, place = f"{stored(writer)} t JOIN {asked.name} s ON {condition}", _PLACE
    values = fold_values(spec, "t", "s")
    # With many branches, most change nothing: their columns are read once.
    made = [name for name in names if values[name] != f"t.{quote(name)}"]
    new = ", ".join(f"{values[name]} AS {quote(name)}" for name in made)
    old = ", ".join(f"t.{quote(column)} AS {quote(_OLD + column)}" for column in names)
    alive = f"{values[spec.alive]} > 0" if spec.alive else "true"
    met = _look_up(
        writer,
        f"SELECT /*+ BROADCAST(s) */ s.{_NUMBER}, {alive} AS {_ALIVE}, {new}, {old}, {place} "
        f"FROM {from_}",
        literals,
    )
    equal = held_rows.equal(met.data.select(made), met.data.select([_OLD + name for name in made]))
    living = met.data.column(_ALIVE)
    went = met.data.filter(pc.invert(pc.and_(equal, living)))
    updated = met.data.filter(pc.and_(pc.invert(equal), living))
    updated = updated.select([name if name in made else _OLD + name for name in names])
    updated = updated.rename_columns(names)
    missing = set(range(source.data.num_rows)) - set(met.data.column(_NUMBER).to_pylist())
    come = [updated]
    if missing:
        come.append(_born(writer, source, sorted(missing), spec))
    rows = pa.concat_tables([part.cast(updated.schema) for part in come])
    gone = went.select([_OLD + name for name in names] + [FILE, POSITION])
    gone = gone.rename_columns([*names, FILE, POSITION])
    types = {item.name: item for item in met.schema}
    schema = StructType([StructField(name, types[_OLD + name].dataType) for name in names])
    outcome = _write(writer, rows, gone, _feed(writer, schema, rows, gone))
    if not beside or held is None:
        return outcome
    added = rows.cast(held.rows.select(names).schema)
    return _known(outcome, held, went.column(_STORED).combine_chunks(), added)


def _beside(writer: Writer, source: DriverRows, held: StoredRows, spec: Fold) -> str:
    """A relation with the rows of a change as `s` and the stored rows that they meet as `t`, where
    the process has these: Spark computes with them, and reads no table; '' where it has to."""
    if spec.ttl or not held_rows.agree(writer.columns, writer.types):
        return ""
    met = held_rows.met(held, source.data, spec.key)
    if len(met.asked) + len(met.missing) != source.data.num_rows:
        return ""
    theirs, ours = held.rows.take(met.stored), source.data.take(met.asked)
    stored_as = from_arrow_schema(theirs.select(writer.columns).schema, prefer_timestamp_ntz=True)
    sides = (("t", theirs, stored_as), ("s", ours, source.schema))
    parts: dict[str, list[str]] = {"t": [], "s": [_NUMBER]}
    places = {FILE: theirs.column(FILE), POSITION: theirs.column(POSITION)}
    columns = {**places, _STORED: met.stored, _NUMBER: met.asked}
    fields = [StructField(name, LongType()) for name in columns]
    for alias, rows, schema in sides:
        for item in schema:
            label = f"{alias}_{item.name}"
            columns[label] = rows.column(item.name)
            fields.append(StructField(label, item.dataType))
            parts[alias].append(f"{quote(label)} AS {quote(item.name)}")
    name = writer.local.rows(DriverRows(pa.table(columns), StructType(fields)))
    structs = ", ".join(f"struct({', '.join(of)}) AS {alias}" for alias, of in parts.items())
    return f"(SELECT {structs}, {FILE}, {POSITION}, {_STORED} FROM {name})"


def _exchanged(
    writer: Writer, source: DriverRows, held: StoredRows, found: Exchange
) -> tuple[Outcome, pa.Table]:
    gone = held.rows.take(found.lost)
    come = found.come.cast(gone.select(list(writer.columns)).schema)
    types = {item.name: item for item in source.schema}
    schema = StructType([types[name] for name in writer.columns])
    return _write(writer, come, gone, _feed(writer, schema, come, gone)), come


def _born(writer: Writer, source: DriverRows, numbers: Sequence[int], spec: Fold) -> pa.Table:
    """The rows of groups that did not exist."""
    groups = writer.local.rows(DriverRows(_take(source.data, numbers), source.schema))
    values = fold_values(spec, "", "s")
    items = ", ".join(f"{values[column]} AS {quote(column)}" for column in writer.columns)
    alive = f" WHERE {values[spec.alive]} > 0" if spec.alive else ""
    return writer.local.fetch(f"SELECT {items} FROM {groups} s{alive}").data


def _take(rows: pa.Table, numbers: Sequence[int]) -> pa.Table:
    return rows.take(pa.array(numbers, pa.int64()))


def _look_up(writer: Writer, sql: str, literals: dict[str, Any]) -> DriverRows:
    """The rows of a query that picks few rows of a big table."""
    # Otherwise Spark builds a row from every line of a wide table before it checks the key.
    writer.spark.conf.set(_MAX_FIELDS, 10_000)
    try:
        return writer.local.fetch(sql, literals)
    finally:
        writer.spark.conf.unset(_MAX_FIELDS)


def stored(writer: Writer) -> str:
    """The rows of the view as SQL that may follow FROM."""
    return version(writer.table, writer.base)


def all_stored(writer: Writer) -> StoredRows:
    """All rows of the view, with their places: from its files, if this process can read them."""
    if writer.at_hand:
        files = tables_of(writer.spark).file_rows(
            writer.table, writer.base, writer.columns, writer.local.most
        )
        if files:
            return StoredRows.of_files(files)
    names = ", ".join(quote(name) for name in writer.columns)
    place = ", ".join(f"{value} AS {name}" for name, value in PLACE_IN_NUMBERS.items())
    return StoredRows(writer.local.fetch(f"SELECT {names}, {place} FROM {stored(writer)}").data)


def _numbered(writer: Writer, rows: DriverRows, numbers: Sequence[int]) -> TempRelation:
    """Some of the rows, each with its number, as a relation."""
    data = _take(rows.data, numbers).append_column(_NUMBER, pa.array(numbers, pa.int64()))
    schema = StructType([*rows.schema, StructField(_NUMBER, LongType())])
    return writer.local.keep(DriverRows(data, schema))


def _write(
    writer: Writer, come: pa.Table, gone: pa.Table | None, feed: DriverRows | None
) -> Outcome:
    lost = gone.num_rows if gone is not None else 0
    if not come.num_rows and not lost:
        return Outcome()
    places: dict[Any, list[int]] = defaultdict(list)
    if gone is not None:
        files, positions = gone.column(FILE).to_pylist(), gone.column(POSITION).to_pylist()
        for file, position in zip(files, positions, strict=True):
            places[file].append(position)
    try:
        file = writer.commit(RowDelta(come, places))
    except FilesUnknown as error:
        raise Mismatch from error
    kept = writer.local.keep(feed) if writer.feed and feed is not None else None
    return Outcome(come.num_rows, lost, kept, file)


def _feed(writer: Writer, schema: StructType, come: pa.Table, gone: pa.Table) -> DriverRows | None:
    """The change as signed visible rows."""
    if not writer.feed:
        return None
    names = list(writer.visible)
    types = {item.name: item for item in schema}
    old = gone.select(names)
    parts = []
    for rows, weight in ((come.select(names).cast(old.schema), 1), (old, -1)):
        weights = pa.array([weight] * rows.num_rows, pa.int64())
        parts.append(rows.append_column(WEIGHT, weights))
    # A sum may become NULL where none of its changes was.
    fields = [StructField(name, types[name].dataType) for name in names]
    return DriverRows(
        pa.concat_tables(parts), StructType([*fields, StructField(WEIGHT, LongType())])
    )


def _tuples(rows: pa.Table) -> list[tuple[Hashable, ...]]:
    columns = [_values(column) for column in rows.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows


def _values(column: pa.ChunkedArray) -> list[Hashable]:
    """The values of a column; those that Spark treats as equal are equal here."""
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        # Days and microseconds: Python supports only some dates and times.
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    values: list[Hashable] = column.to_pylist()
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        # No NaN equals another, but the same object counts as equal to itself.
        return [math.nan if value != value else value for value in values]  # noqa: PLR0124
    return values


def _difference(
    new: Sequence[tuple[Hashable, ...]], old: Sequence[tuple[Hashable, ...]]
) -> tuple[list[int], list[int]]:
    """Row numbers of the new rows that are not among the old ones, and vice versa."""
    left = Counter(old)
    came = []
    for number, row in enumerate(new):
        if left[row] > 0:
            left[row] -= 1
        else:
            came.append(number)
    went = []
    for number, row in enumerate(old):
        if left[row] > 0:
            left[row] -= 1
            went.append(number)
    return came, went
