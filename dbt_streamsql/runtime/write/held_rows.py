"""Find and combine the stored rows that a small change meets, where the process has them all.

The same as the look-ups of `driver_writer.py`, without Spark: for views of few rows a statement
takes longer than everything else. It is done only where Arrow and Spark agree on every value:
exact types, and sums and counts of integers and decimals. Elsewhere, and where a sum overflows,
the functions return None, and Spark finds out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.program.steps import Component, Fold
from dbt_streamsql.runtime.core.stored_rows import StoredRows
from dbt_streamsql.storage.arrow_rows import is_exact
from dbt_streamsql.storage.iceberg.scans.file_rows import numbers

_WIDE = 40
"""Digits that the sum of two decimals of Spark, which have 38 at most, never fills."""
_HERE, _THERE = "__streamsql_here", "__streamsql_there"


@dataclass(frozen=True)
class Met:
    """Stored rows that a change meets: the numbers of its rows, and of theirs; `missing` are the
    rows of the change that meet none."""

    asked: pa.Array
    stored: pa.Array
    missing: pa.Array


@dataclass(frozen=True)
class Exchange:
    """The new rows of changed groups, and the numbers of the stored rows that they replace."""

    come: pa.Table
    lost: pa.Array


def agree(names: Sequence[str], types: Mapping[str, str]) -> bool:
    """Whether Arrow and Spark agree on which values of these columns are equal."""
    return all(is_exact(types.get(name, "")) for name in names)


def met(held: StoredRows, asked: pa.Table, names: Sequence[str]) -> Met:
    """The stored rows that equal a row of `asked` in these columns; NULLs are equal. Without
    columns, the one stored row, if there is one, equals every row."""
    if not names:
        every = numbers(asked.num_rows)
        none = every.slice(0, 0)
        if not held.rows.num_rows:
            return Met(none, none, every)
        return Met(every, pa.repeat(pa.scalar(0, pa.int64()), asked.num_rows), none)
    rows = held.rows.select(names)
    ours = _keys(asked.select(names).cast(rows.schema), _HERE)
    theirs = _keys(rows, _THERE)
    keys = [name for name in ours.column_names if name != _HERE]
    found = ours.join(theirs, keys, join_type="left outer", use_threads=False)
    there, here = found.column(_THERE), found.column(_HERE)
    known = pc.is_valid(there)
    return Met(
        here.filter(known).combine_chunks(),
        there.filter(known).combine_chunks(),
        here.filter(pc.invert(known)).combine_chunks(),
    )


def fold(
    held: StoredRows,
    groups: pa.Table,
    spec: Fold,
    columns: Sequence[str],
    types: Mapping[str, str],
) -> Exchange | None:
    """Combine the changes of groups with the stored groups, as `fold_values` does; None where
    Spark has to."""
    if not _is_plain(spec, columns, types):
        return None
    there = met(held, groups, spec.key)
    if len(there.asked) + len(there.missing) != groups.num_rows:
        return None
    old, change = held.rows.take(there.stored), groups.take(there.asked)
    try:
        new = _combined(spec, old, change)
        born = _combined(spec, None, groups.take(there.missing)).cast(new.schema)
    except pa.ArrowInvalid:
        return None
    alive, is_born = (_size_of(spec, rows) for rows in (new, born))
    if alive.null_count or is_born.null_count:
        return None
    living = pc.greater(alive, 0)
    names = [part.column for part in spec.components]
    same = pc.and_(equal(new.select(names), old.select(names)), living)
    updated = new.filter(pc.and_(pc.invert(same), living))
    come = pa.concat_tables([updated, born.filter(pc.greater(is_born, 0))]).select(columns)
    return Exchange(come, pc.filter(there.stored, pc.invert(same).combine_chunks()))


def _is_plain(spec: Fold, columns: Sequence[str], types: Mapping[str, str]) -> bool:
    parts = {part.column for part in spec.components}
    return (
        (not spec.alive or spec.alive in parts)
        and not (spec.ttl or spec.lacking or spec.derived)
        and set(columns) == parts | set(spec.key)
        and agree(spec.key, types)
        and all(part.kind == "add" and Column("", part.type).is_exact for part in spec.components)
    )


def _keys(rows: pa.Table, number: str) -> pa.Table:
    """The columns, with columns that say which values are NULL, and each row's number."""
    found = {}
    for at, column in enumerate(rows.columns):
        found[f"null{at}"] = pc.is_null(column)
        found[f"value{at}"] = _filled(column)
    return pa.table({**found, number: numbers(rows.num_rows)})


def _filled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """With some value for NULL, which a join would not find: the same one on both sides."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.fill_null(column, "")
    if pa.types.is_decimal(kind):
        return pc.fill_null(column, pa.scalar(Decimal(0), kind))
    number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    return pc.fill_null(column, pa.scalar(0, number).cast(kind))


def _combined(spec: Fold, old: pa.Table | None, change: pa.Table) -> pa.Table:
    """The new rows of groups: their keys and components. Error: ArrowInvalid on overflow."""
    parts = {part.column: part for part in spec.components}
    bare = {name: _sum(part, old, change) for name, part in parts.items()}
    values = {name: change.column(name) for name in spec.key}
    for name, part in parts.items():
        total = bare[name]
        if part.null_when_zero:
            empty = pc.fill_null(pc.equal(bare[part.null_when_zero], 0), fill_value=False)
            total = pc.if_else(empty, pa.scalar(None, total.type), total)
        values[name] = total
    return pa.table(values)


def _size_of(spec: Fold, groups: pa.Table) -> pa.ChunkedArray:
    """How many rows each group has. The one group of a global aggregate has none to count: it
    is always there."""
    if spec.alive:
        return groups.column(spec.alive)
    return pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), groups.num_rows)])


def _sum(part: Component, old: pa.Table | None, change: pa.Table) -> pa.ChunkedArray:
    added = change.column(part.column)
    if old is None:
        return added
    stored = old.column(part.column)
    kind = stored.type
    stored = pc.fill_null(stored, pa.scalar(0).cast(kind))
    if pa.types.is_decimal(kind):
        wide = pa.decimal256(_WIDE, kind.scale)
        stored, added = stored.cast(wide), added.cast(wide)
    return pc.add_checked(stored, added).cast(kind)


def equal(new: pa.Table, old: pa.Table) -> pa.ChunkedArray:
    """For each row, whether every new value equals the old one; a NULL does, a NaN does not."""
    result = pa.chunked_array([pa.repeat(pa.scalar(value=True), new.num_rows)])
    for mine, other in zip(new.columns, old.columns, strict=True):
        both = pc.and_(pc.is_null(mine), pc.is_null(other))
        same = pc.fill_null(pc.equal(mine.cast(other.type), other), fill_value=False)
        result = pc.and_(result, pc.or_(both, same))
    return result
