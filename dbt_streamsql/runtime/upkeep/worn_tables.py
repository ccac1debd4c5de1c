"""Keep views from wearing out: merge small files, at a barrier.

Every epoch adds a small file and marks rows of older files as deleted. After a barrier is
published, the most worn of its tables is compacted: the cost is that of its small and much-deleted
files, not of the table. Readers keep the snapshot that they have; a compaction is not a change for
the views that read the table.
"""

from __future__ import annotations

from collections.abc import Iterable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dbt_streamsql.meta import Fence, TableVersion
from dbt_streamsql.meta.model.stored_definition import known_plan
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log, reads_ages
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.core.table_wear import FULL_FILE, scattered, wear
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.commits import table_maintenance, tags
from dbt_streamsql.storage.iceberg.metadata import Metadata

_PARTS = 8
"""Files smaller than one in so many parts of a small table are merged."""


def upkeep(warehouse: Warehouse, fence: Fence, published: Iterable[TableVersion]) -> None:
    """Compact the most worn table of a published barrier."""
    spark = warehouse.sessions.main
    tables = {version.table: version for version in published if version.branch}
    found = {table: metadata.load(spark, TableName.parse(table)) for table in tables}
    metas = {table: meta for table, meta in found.items() if meta is not None}
    # What was loaded is this runner's own; what a successor publishes later is newer than that.
    warehouse.store.newest_barrier(fence)
    tuning = warehouse.tuning
    worn = {table: wear(meta, tuning) for table, meta in metas.items()}
    if many := [table for table, meta in metas.items() if scattered(meta, tuning)]:
        jobs = warehouse.store.jobs()
        worn |= {table: 1.0 for table in many if reads_ages(jobs, table)}
    worst = max(worn, key=lambda table: worn[table], default="")
    if worst and worn[worst] >= 1:
        job = warehouse.store.jobs().get(worst)
        plan = known_plan(job) if job is not None else None
        key = plan.key if plan is not None else ()
        with failpoint("table.compact"):
            _compact(warehouse, tables[worst], metas[worst], key)


def _compact(
    warehouse: Warehouse, version: TableVersion, meta: Metadata, key: tuple[str, ...]
) -> None:
    """A failure does no harm: the table is as it was, and published."""
    assert meta.current is not None
    assert version.snapshot is not None
    spark, name = warehouse.sessions.main, TableName.parse(version.table)
    size = meta.snapshots[meta.current].count("total-files-size")
    kept = {*tags.of(meta, warehouse.store_id), version.snapshot}
    try:
        # It will no longer be the head of main, and snapshot expiry would remove it.
        tags.reconcile(spark, name, meta, warehouse.store_id, kept)
        table_maintenance.compact(spark, name, key, min(size // _PARTS, FULL_FILE))
    except (PySparkException, Py4JError) as error:
        log.warning("%s could not be compacted: %s", name, str(error).splitlines()[0])
