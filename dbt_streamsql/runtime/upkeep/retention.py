"""Remove barriers that are older than what is kept, and the versions that only they have.

First MetaService gives up the barriers: they can no longer be requested or leased. Then their
snapshots go, and last their rows, which say where there is something left to remove. A process
that dies in between leaves nothing that can be requested but not read.

A snapshot of a view stays while a barrier that is kept has it, or while it has a tag or a branch:
what another view has yet to read is tagged. Tables of other owners are left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dbt_streamsql.meta import Fence, Forgotten
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.publish import publish
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.commits import table_maintenance, tags
from dbt_streamsql.storage.iceberg.metadata import Metadata


def after_run(warehouse: Warehouse, fence: Fence) -> None:
    """Remove old barriers when there are many of them, or they are overdue; else one query."""
    store = warehouse.store
    ahead = store.outlook(warehouse.retention)
    if not ahead.due(warehouse.tuning.barriers_together):
        return
    kept = let_go(warehouse, fence)
    tables = store.latest_all()
    expire(warehouse, kept, [table for table in store.surplus(kept) if table in tables])
    forget(warehouse, fence)


def let_go(warehouse: Warehouse, fence: Fence) -> int:
    """The oldest barrier that can be requested from now on."""
    with failpoint("ledger.keep"):
        return warehouse.store.keep_from(fence, warehouse.retention)


def expire(warehouse: Warehouse, kept: int, tables: Iterable[str]) -> dict[str, int]:
    """Expire what is older than the version in force at barrier `kept`; returns the number of
    snapshots of each table. Where it fails they stay for the next time."""
    found = old_snapshots(warehouse, kept, tables)
    for table, old in found.items():
        try:
            with failpoint("table.expire"):
                table_maintenance.expire(warehouse.sessions.main, TableName.parse(table), old)
        except (PySparkException, Py4JError) as error:
            log.warning(
                "old versions of %s could not be expired: %s", table, str(error).splitlines()[0]
            )
            found[table] = ()
    return {table: len(old) for table, old in found.items()}


def old_snapshots(
    warehouse: Warehouse, kept: int, tables: Iterable[str], *, swept: bool = True
) -> dict[str, tuple[int, ...]]:
    """The snapshots of each table that are not needed once `kept` is the oldest barrier; also
    those with a tag that the next sweep removes, if that is still to come (not `swept`)."""
    pinned = publish.to_pin(warehouse, warehouse.store.latest_all())
    found = {}
    for table in tables:
        meta = metadata.load(warehouse.sessions.main, TableName.parse(table))
        readable = {version.snapshot for version in warehouse.store.history(table, kept)}
        needed = pinned.get(table, set())
        if meta is not None and not swept:
            gone = tags.moves(meta, warehouse.store_id, needed).drop_tags
            refs = {ref: at for ref, at in meta.refs.items() if ref not in gone}
            meta = replace(meta, refs=refs)
        if meta is not None:
            found[table] = _old(meta, readable - {None}, needed)
    return found


def forget(warehouse: Warehouse, fence: Fence) -> Forgotten:
    """Remove the rows of barriers that have gone."""
    store = warehouse.store
    if store.outside_tables() - {source for source, _ in store.topology()}:
        # Once the ledger has forgotten that they were read, no sweep looks for tags on them.
        publish.move_pins(warehouse, fence, everywhere=True)
    gone = Forgotten(more=True)
    while gone.more:
        with failpoint("ledger.forget"):
            gone += store.forget(fence, warehouse.retention)
    return gone


def _old(
    meta: Metadata, readable: Collection[int | None], needed: Collection[int]
) -> tuple[int, ...]:
    """`readable`: the snapshots of barriers that are kept; `needed`: those that need a tag."""
    ages = _ages(meta)
    # A table without any of these versions was replaced by another writer.
    oldest = min((ages[snapshot] for snapshot in readable if snapshot in ages), default=None)
    if oldest is None:
        return ()
    old = {snapshot for snapshot in meta.snapshots if ages[snapshot] < oldest}
    old -= {*meta.refs.values(), meta.current}
    # Where pinning failed, needed snapshots must wait until it succeeds.
    return tuple(sorted(old, key=ages.__getitem__)) if old.isdisjoint(needed) else ()


def _ages(meta: Metadata) -> Mapping[int | None, int]:
    """The order of snapshots: by sequence numbers, which no clock sets back, if they are known."""
    known = meta.snapshots.values()
    if all(snapshot.sequence for snapshot in known):
        return {snapshot.id: snapshot.sequence for snapshot in known}
    return {snapshot.id: snapshot.committed for snapshot in known}
