"""How a job reads the changes of its inputs: as stored, or computed once for all views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.quoting import quote
from dbt_streamsql.runtime.core.epoch_state import EpochState, Version
from dbt_streamsql.runtime.refresh.spark_relations import InputChange
from dbt_streamsql.runtime.spark.scratch import Scratch
from dbt_streamsql.runtime.spark.shared_relations import (
    CachedRelation,
    Shared,
    hold,
    keep,
)
from dbt_streamsql.runtime.write.change_feed import Feed
from dbt_streamsql.storage.conf import over_few_rows
from dbt_streamsql.storage.iceberg import provenance
from dbt_streamsql.storage.iceberg.access import tables_of
from dbt_streamsql.storage.iceberg.scans.changes import Change
from dbt_streamsql.storage.inputs import inputs


def readings(
    epoch: EpochState,
    spark: SparkSession,
    versions: Mapping[str, Version],
    moves: Mapping[str, Change],
) -> dict[str, InputChange]:
    """How each input of a job is read: `versions` are what it reads now, `moves` what changed."""
    found = {}
    for source, at in versions.items():
        move = moves[source]
        written = None
        if move.kind != "none" and source in epoch.jobs:
            written = _feed(epoch, source, at, move.old)
        reading = InputChange(at.at, at.meta, move, written)
        found[source] = replace(reading, shared=_shared(epoch, spark, source, reading))
    return found


def version_of(epoch: EpochState, spark: SparkSession, version: Version) -> str:
    """A version of an input, for the query of a view: SQL that may follow FROM.

    The first views of an epoch that compute their queries over it read it as it is stored. Then,
    unless it is big, it is read once more, into Spark's cache, for all other views.
    """
    text = inputs.as_now(spark, version.at, version.meta, version.snapshot)
    tuning, meta = epoch.warehouse.tuning, version.meta
    if (
        not 0 < meta.live_rows(version.snapshot) <= tuning.compared_rows
        or meta.live_bytes(version.snapshot) > tuning.compared_bytes
        or epoch.versions.asked(text) <= tuning.read_alone
    ):
        return text

    def compute() -> Shared:
        with over_few_rows(spark):
            return hold(spark, f"SELECT * FROM {text}")

    held = epoch.versions.get(text, compute)
    assert isinstance(held, CachedRelation)
    return held.name


def _shared(
    epoch: EpochState, spark: SparkSession, source: str, reading: InputChange
) -> Shared | None:
    """The change of an input that several views of this epoch read, computed by the first.

    None where there is nothing to compute: no change, or many rows that are stored in files as
    they are, from which each view reads the columns that it needs. What this epoch has written
    itself is known, for a single reader, too.
    """
    move, tuning = reading.change, epoch.warehouse.tuning
    small = move.rows <= tuning.broadcast_rows and reading.bytes <= tuning.driver_bytes
    stored = move.insert_only or reading.feed is not None
    if move.kind == "none":
        return None
    key = (source, move.old, move.new)
    columns = epoch.shared_columns(source, move.old)
    if not columns or (stored and not small):
        return epoch.changes.known(key)

    def compute() -> Shared:
        decoded = reading.decoded(spark, columns, tuning) if small else None
        if decoded is not None:
            return decoded
        local, newer = Scratch(spark, tuning.fetched_bytes), tables_of(spark).newer_rows()
        try:
            if reading.feed is not None:
                change = local.view(reading.feed.read(spark))
            else:
                files = newer.changed(reading.name, reading.meta, move)
                change = str(inputs.read(reading.name, reading.meta, move, columns, files))
            names = ", ".join(quote(column) for column in columns)
            query = f"SELECT {names}, {WEIGHT} FROM {change}"
            return keep(spark, query, tuning.fetched_bytes) if small else hold(spark, query)
        finally:
            newer.close()
            local.close()

    return epoch.changes.get(key, compute)


def _feed(epoch: EpochState, source: str, version: Version, seen: int | None) -> Feed | None:
    """The files that together hold the change since `seen`; None when they do not cover it."""
    path = version.meta.lineage(version.snapshot, seen)
    if not path:
        return None
    needed = {
        int(snapshot.summary.get(provenance.BARRIER_PROPERTY, -1))
        for snapshot in path
        if snapshot.operation != "replace"
    }
    store = epoch.warehouse.store
    files = store.change_files(source, min(needed, default=0) - 1, epoch.barrier())
    found = {file.barrier: file.path for file in files}
    if not needed or not needed <= set(found):
        return None
    folders = tuple(found[barrier] for barrier in sorted(needed))
    return Feed(epoch.jobs[source], folders)
