"""Fold into a big keyed table: one MERGE that updates and deletes, then insert the new groups.

A MERGE without `NOT MATCHED` is an inner join, so the change is broadcast and the table is scanned
once and never shuffled. The snapshot's summary shows which groups were missing or, when some were
and some were not, the few rows that the MERGE wrote do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbt_streamsql.plan.program.fold_values import fold_values
from dbt_streamsql.plan.program.steps import Fold
from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime.spark.join_conditions import match, same
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.access import tables_of

if TYPE_CHECKING:
    from dbt_streamsql.runtime.write.writer import Writer


def fold(writer: Writer, source: str, spec: Fold) -> tuple[int, int]:
    """Rows inserted and deleted; an updated group is one of each."""
    kept = writer.local.kept(source, small=writer.small)
    condition, literals = match(kept, spec.key)
    values = fold_values(spec, "t", "s")
    sets = ", ".join(
        f"t.{quote(column)} = {value}"
        for column, value in values.items()
        if column not in spec.key
    )
    with writer.writing() as target:
        writer.spark.sql(
            f"MERGE INTO {target} t USING {kept.name} s ON {condition} "
            f"WHEN MATCHED AND {values[spec.alive]} <= 0 THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets}",
            args=literals,
        )
    matched, updated, head = _matched(writer)
    new = kept.count - matched
    if new:
        _insert(writer, kept.name, spec, head if updated else None)
    return updated + new, matched


def _matched(writer: Writer) -> tuple[int, int, int | None]:
    """(groups found, of those updated, the snapshot that wrote them)."""
    meta = metadata.load(writer.spark, writer.table)
    assert meta is not None
    head = meta.refs[writer.branch]
    if head == writer.base:
        return 0, 0, None
    made = meta.snapshots[head]
    updated = made.count("added-records")
    # From this commit's own counts: its totals continue those of any compaction of the table.
    marked = made.count("added-position-deletes") - made.count("removed-position-deletes")
    return made.count("deleted-records") + marked, updated, head


def _insert(writer: Writer, source: str, spec: Fold, merged: int | None) -> None:
    """Insert the groups that the MERGE did not find."""
    values = fold_values(spec, "", "s")
    items = ", ".join(f"{values[column]} AS {quote(column)}" for column in writer.columns)
    names = ", ".join(quote(column) for column in writer.columns)
    known = ""
    if merged is not None:
        files = tables_of(writer.spark).added_files(writer.table, merged)
        # With a schema, Spark need not open a file to infer one.
        like = writer.spark.table(writer.table.sql).select(*[quote(key) for key in spec.key])
        written = writer.local.view(writer.spark.read.schema(like.schema).parquet(*files))
        known = f"LEFT ANTI JOIN {written} w ON {same(spec.key, 's', 'w')} "
    with writer.writing() as target:
        writer.spark.sql(
            f"INSERT INTO {target} ({names}) SELECT {items} FROM {source} s {known}"
            f"WHERE s.{quote(spec.alive)} > 0"
        )
