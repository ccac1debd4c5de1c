"""Remove everything that is no longer needed, in one pass: `streamsql gc`.

What runs remove bit by bit goes at once: old barriers with their snapshots and rows, what dead
processes have staged, change files that all readers have consumed. Then what nothing names: change
folders that MetaService does not list, and files in the folders of views that are not in their
metadata. Another process may just be writing such a file: so only old enough files go.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dbt_streamsql.meta import Fence, Forgotten
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.publish import plain_tables, publish
from dbt_streamsql.runtime.upkeep import retention
from dbt_streamsql.storage.iceberg import files, metadata, staging
from dbt_streamsql.storage.iceberg.commits import table_maintenance
from dbt_streamsql.storage.iceberg.metadata import Metadata

_CHANGES = re.compile(r"b(\d+)-[0-9a-f]{8}")
"""The folder of a change file, by its barrier."""


@dataclass(frozen=True)
class TableGarbage:
    """What is removed of one table. `orphans`: files that no metadata names (None: not looked
    for); `changes`: folders of change files that MetaService does not list.

    `files` and `bytes`: by how much the table's folder has shrunk (None: not known).
    """

    table: str
    snapshots: int = 0
    changes: int = 0
    orphans: int | None = None
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Garbage:
    """What was removed, or would be (`dry_run`). `kept_from` is the oldest barrier that can be
    read.

    `left`: things that dead processes left, and that all readers had consumed, such as staging
    tables. For a dry run they are the staging tables, and `ledger` does not include all rows.
    """

    dry_run: bool
    kept_from: int
    left: int = 0
    ledger: Forgotten = field(default_factory=Forgotten)
    tables: tuple[TableGarbage, ...] = ()


def collect(warehouse: Warehouse, fence: Fence, orphans: float | None) -> Garbage:
    """Remove it; `orphans`: the age in seconds from which such files go (None: they stay)."""
    spark = warehouse.sessions.main
    left = publish.recover(warehouse, fence) + plain_tables.sweep(warehouse)
    newest = warehouse.store.newest_barrier(fence)
    metas = _metas(warehouse)
    before = {table: files.size(spark, meta.location) for table, meta in metas.items()}
    kept = retention.let_go(warehouse, fence)
    expired = retention.expire(warehouse, kept, metas)
    found = []
    for table, meta in metas.items():
        changes = _unlisted(warehouse, table, meta, newest)
        for folder in changes:
            with failpoint("sweep.orphans"):
                files.delete_folder(spark, folder)
        gone = _orphans(warehouse, table, metas, orphans, remove=True)
        was, now = before[table], files.size(spark, meta.location)
        fewer, less = (was[0] - now[0], was[1] - now[1]) if was and now else (None, None)
        snapshots = expired.get(table, 0)
        found.append(TableGarbage(table, snapshots, len(changes), gone, fewer, less))
    ledger = retention.forget(warehouse, fence)
    return Garbage(False, kept, left, ledger, tuple(found))


def look(warehouse: Warehouse, orphans: float | None) -> Garbage:
    """What `collect` would remove. Takes no lock and changes nothing."""
    store, spark = warehouse.store, warehouse.sessions.main
    ahead = store.outlook(warehouse.retention)
    metas = _metas(warehouse)
    old = retention.old_snapshots(warehouse, ahead.keep_from, metas, swept=False)
    newest = store.last_committed()
    found = tuple(
        TableGarbage(
            table,
            len(old.get(table, ())),
            len(_unlisted(warehouse, table, meta, newest)),
            _orphans(warehouse, table, metas, orphans, remove=False),
        )
        for table, meta in metas.items()
    )
    names = staging.staged_tables(spark, warehouse.catalog)
    left = sum(0 <= staging.staged_barrier(name, store.id) <= newest for name in names)
    versions = sum(store.surplus(ahead.keep_from).values())
    ledger = Forgotten(ahead.barriers, versions)
    return Garbage(True, ahead.keep_from, left, ledger, found)


def _metas(warehouse: Warehouse) -> dict[str, Metadata]:
    """The views and changelogs of the warehouse whose tables exist."""
    found = {
        table: metadata.load(warehouse.sessions.main, TableName.parse(table))
        for table in warehouse.store.latest_all()
    }
    return {table: meta for table, meta in found.items() if meta is not None}


def _unlisted(warehouse: Warehouse, table: str, meta: Metadata, newest: int) -> list[str]:
    """Folders of changes that MetaService does not know, of barriers up to the newest."""
    store, place = warehouse.store, f"{meta.location}-changes"
    known = [*store.change_files(table, 0, newest), *store.aborted_change_files()]
    listed = {posixpath.basename(file.path) for file in known}
    names = files.names(warehouse.sessions.main, place)
    ours = {name: int(found[1]) for name in names if (found := _CHANGES.fullmatch(name))}
    return [
        posixpath.join(place, name)
        for name, barrier in sorted(ours.items())
        if barrier <= newest and name not in listed
    ]


def _orphans(
    warehouse: Warehouse,
    table: str,
    metas: Mapping[str, Metadata],
    age: float | None,
    *,
    remove: bool,
) -> int | None:
    place = metas[table].location
    others = (meta.location for name, meta in metas.items() if name != table)
    if age is None or _shared(place, others):
        return None
    before = int((warehouse.clock.time() - age) * 1000)
    spark, name = warehouse.sessions.main, TableName.parse(table)
    try:
        if not remove:
            return table_maintenance.orphans(spark, name, place, before, remove=False)
        with failpoint("sweep.orphans"):
            return table_maintenance.orphans(spark, name, place, before, remove=True)
    except (PySparkException, Py4JError) as error:
        log.warning(
            "the folder of %s could not be cleaned up: %s", table, str(error).splitlines()[0]
        )
        return None


def _shared(place: str, others: Iterable[str]) -> bool:
    """Whether files of another table are in the folder."""
    return any(f"{other}/".startswith(f"{place}/") for other in others)
