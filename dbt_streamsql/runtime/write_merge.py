"""Fold into a big keyed table by one MERGE that only updates and deletes, then insert the new groups.

A MERGE without `NOT MATCHED` is an inner join, so the change is broadcast and the table is
scanned once and never shuffled. Which groups were not there is told by the snapshot's summary, or,
when some were and some were not, by the few rows that the MERGE wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from dbt_streamsql.plan.steps import Fold
from dbt_streamsql.quoting import quote
from dbt_streamsql.storage.iceberg import metadata

if TYPE_CHECKING:
    from dbt_streamsql.runtime.write import Outcome, Writer

_RANGED = ("bigint", "int", "smallint", "tinyint", "date", "timestamp", "timestamp_ntz", "string")


def fold(writer: Writer, source: DataFrame, spec: Fold) -> Outcome:
    """Rows inserted and deleted count an updated group as one of each."""
    from dbt_streamsql.runtime.write import Outcome, fold_values

    kept = writer.keep(source)
    stats = _Stats(kept, spec)
    values = fold_values(spec, "t", "s")
    sets = ", ".join(
        f"t.{quote(column)} = {value}"
        for column, value in values.items()
        if column not in spec.key
    )
    view = writer.view(kept)
    with writer.writing() as target:
        writer.spark.sql(
            f"MERGE INTO {target} t USING {view} s ON {stats.condition} "
            f"WHEN MATCHED AND {values[spec.alive]} <= 0 THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets}",
            args=stats.literals,
        )
    matched, updated, head = _matched(writer)
    new = stats.groups - matched
    if new:
        _insert(writer, view, spec, head if updated else None)
    return Outcome(updated + new, matched)


def _matched(writer: Writer) -> tuple[int, int, int | None]:
    """(groups found, of those updated, the snapshot that wrote them)."""
    meta = metadata.load(writer.spark, writer.table)
    assert meta is not None
    head = meta.refs[writer.branch]
    if head == writer.base:
        return 0, 0, None
    found = writer.live - meta.live_rows(head) + meta.snapshots[head].count("added-records")
    return found, meta.snapshots[head].count("added-records"), head


def _insert(writer: Writer, view: str, spec: Fold, merged: int | None) -> None:
    """Insert the groups that the MERGE did not find."""
    from dbt_streamsql.runtime.write import fold_values

    values = fold_values(spec, "", "s")
    items = ", ".join(f"{values[column]} AS {quote(column)}" for column in writer.columns)
    names = ", ".join(quote(column) for column in writer.columns)
    known = ""
    if merged is not None:
        files = metadata.added_files(writer.spark, writer.table, merged)
        written = writer.view(writer.spark.read.parquet(*files))
        on = " AND ".join(f"s.{quote(c)} <=> w.{quote(c)}" for c in spec.key)
        known = f"LEFT ANTI JOIN {written} w ON {on} "
    with writer.writing() as target:
        writer.spark.sql(
            f"INSERT INTO {target} ({names}) SELECT {items} FROM {view} s {known}"
            f"WHERE s.{quote(spec.alive)} > 0"
        )


class _Stats:
    """What is known about the change: its size, NULL keys, and the range of each key column."""

    def __init__(self, source: DataFrame, spec: Fold) -> None:
        types = dict(source.dtypes)
        ranged = [column for column in spec.key if types[column] in _RANGED]
        row = source.selectExpr(
            "count(*)",
            *[f"max({quote(column)} IS NULL)" for column in spec.key],
            *[f"{end}({quote(column)})" for column in ranged for end in ("min", "max")],
        ).collect()[0]
        self.groups = int(row[0])
        nulls = dict(zip(spec.key, row[1 : 1 + len(spec.key)], strict=True))
        bounds = list(row[1 + len(spec.key) :])
        terms = [
            f"t.{quote(column)} {'<=>' if nulls[column] else '='} s.{quote(column)}"
            for column in spec.key
        ]
        self.literals: dict[str, Any] = {}
        for index, column in enumerate(ranged):
            low, high = bounds[2 * index : 2 * index + 2]
            if nulls[column] or low is None:
                continue
            self.literals |= {f"low{index}": low, f"high{index}": high}
            terms.append(f"t.{quote(column)} BETWEEN :low{index} AND :high{index}")
        self.condition = " AND ".join(terms)
