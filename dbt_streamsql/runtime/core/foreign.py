"""Detect that another writer wrote to a view's table."""

from __future__ import annotations

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.iceberg.metadata import Metadata


def foreign_write(meta: Metadata, previous: TableVersion) -> str:
    """Why the table does not have the rows of its last version; '' when it has them."""
    if meta.current == previous.snapshot:
        return ""
    path = meta.lineage(meta.current, previous.snapshot)
    if path is not None and all(snapshot.operation == "replace" for snapshot in path):
        return ""
    return "the view's table was modified outside dbt-streamsql"


def table_moved(job: Job, meta: Metadata, previous: TableVersion) -> StreamSqlError:
    """The refusal to overwrite what another writer wrote among the branches."""
    name = TableName.parse(job.table)
    now = meta.snapshots[meta.current] if meta.current is not None else None
    return StreamSqlError(
        "TABLE_MOVED",
        f"{job.table} was modified outside dbt-streamsql; only its branches may write to it",
        given=f"snapshot {now.id} ({now.operation})" if now is not None else "an empty table",
        allowed=f"snapshot {previous.snapshot} of barrier {previous.barrier}",
        hint="make that writer a branch; `--full-refresh` undoes its changes, as does "
        f"CALL system.rollback_to_snapshot('{name.schema}.{name.table}', {previous.snapshot})",
        place=Place(job.unique_id or job.table),
    )
