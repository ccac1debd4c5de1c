"""State tables go with their last reader."""

from __future__ import annotations

from dbt_streamsql.meta import Fence
from dbt_streamsql.meta.model.stored_definition import definition_of
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Warehouse
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.storage.iceberg import staging


def sweep(warehouse: Warehouse, fence: Fence) -> int:
    """Drop the state tables that no view reads, and those that only these read; returns how
    many."""
    gone = 0
    while unread := _unread(warehouse):
        for table in unread:
            with failpoint("sweep.state"):
                staging.drop_table(warehouse.sessions.main, TableName.parse(table))
                warehouse.store.drop_job(fence, table)
        gone += len(unread)
    return gone


def _unread(warehouse: Warehouse) -> list[str]:
    jobs = warehouse.store.jobs()
    read = {source for job in jobs.values() for source in job.sources}
    return [table for table, job in jobs.items() if definition_of(job).part and table not in read]
