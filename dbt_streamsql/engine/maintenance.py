"""The maintenance of a whole warehouse: leftovers of dead processes, data that no reader needs any
more, SQL views for readers without an engine, rebuilding a lost store."""

from __future__ import annotations

from dbt_streamsql.durations import orphan_age
from dbt_streamsql.engine.epochs import EpochControl
from dbt_streamsql.engine.reads.consistent_reads import ConsistentReads
from dbt_streamsql.engine.store_recovery import RecoveryReport, rebuild
from dbt_streamsql.meta import Published
from dbt_streamsql.runtime.core.epoch_state import Warehouse
from dbt_streamsql.runtime.core.storage_errors import translate_storage_errors
from dbt_streamsql.runtime.publish import plain_tables, publish
from dbt_streamsql.runtime.reads import published_views
from dbt_streamsql.runtime.upkeep import garbage_collection
from dbt_streamsql.runtime.upkeep.garbage_collection import Garbage


class Maintenance:
    """Operations that need the right to write, but no epoch."""

    def __init__(self, warehouse: Warehouse, reads: ConsistentReads, epochs: EpochControl) -> None:
        self._warehouse = warehouse
        self._reads = reads
        self._epochs = epochs

    @translate_storage_errors
    def sweep(self) -> int:
        """Remove what dead processes left; returns the number of things removed."""
        with self._epochs.alone() as fence:
            return publish.sweep(self._warehouse, fence) + plain_tables.sweep(self._warehouse)

    def publish_views(self, schema: str, *, with_schema: bool = False) -> list[str]:
        """Maintain a SQL view of every maintained view in a schema of the catalog, for readers
        without an engine: all show the newest barrier. Returns their names; `with_schema`:
        `<schema>_<name>`.

        Errors: CONFIG_INVALID, TABLE_EXISTS.
        """
        with self._epochs.alone() as fence:
            views = Published(schema, with_schema)
            return published_views.publish(self._warehouse, fence, views)

    def stop_views(self, schema: str) -> list[str]:
        """Drop the SQL views of a schema and stop maintaining them; returns their names."""
        with self._epochs.alone() as fence:
            return published_views.stop(self._warehouse, fence, schema)

    def rebuild(self, store: str = "", *, dry_run: bool = False) -> RecoveryReport:
        """Restore a store that was lost, and is empty now, from the tables.

        `store`: the id of the lost store, if it differs from this one's. `dry_run` only looks.
        Errors: META_CONFLICT, CONFIG_INVALID through a MetaService, WAREHOUSE_BUSY.
        """
        with self._epochs.lock:
            return rebuild(self._warehouse, self._reads, store, dry_run=dry_run)

    def gc(
        self, *, dry_run: bool = False, orphans_older_than: float | str | None = "3 days"
    ) -> Garbage:
        """Remove everything that is no longer needed now; returns what was removed.

        That is the data of barriers older than the retention, leftovers of dead processes, and
        unreferenced files in the folders of views that are at least a day old (None: they stay).
        Waits for the run of another process. `dry_run`: only report what would be removed.
        Errors: CONFIG_INVALID, WAREHOUSE_BUSY when this engine has an epoch open.
        """
        age = orphan_age(orphans_older_than)
        if dry_run:
            return garbage_collection.look(self._warehouse, age)
        with self._epochs.outside() as fence:
            return garbage_collection.collect(self._warehouse, fence, age)
