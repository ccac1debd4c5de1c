"""Make staged versions visible, and undo or finish what a dead process left.

A barrier whose tables are all staged (PRECOMMIT) only ever rolls forward; any other only ever
rolls back. Both are idempotent: recovery runs them again after a crash in the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import NOOP, ROLLED_BACK, Fence, Job, TableVersion
from dbt_streamsql.plan.algebra.relational import CLOCK
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.changelog import changelog_table
from dbt_streamsql.runtime.core import definition_property
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.core.storage_errors import brief
from dbt_streamsql.runtime.publish import openlineage, root_correction, state_tables, together
from dbt_streamsql.runtime.reads import published_views
from dbt_streamsql.storage.iceberg import (
    files,
    metadata,
    provenance,
    staging,
)
from dbt_streamsql.storage.iceberg.commits import tags
from dbt_streamsql.storage.iceberg.commits.refs import RefUpdate, set_current, update_refs
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.inputs import inputs

_LIFE, _LIFE_DEFAULT = "history.expire.max-snapshot-age-ms", 5 * 86_400_000
"""The property of an Iceberg table that says for how long its snapshots are kept, in ms."""

_REPLACED = "%s was %s outside dbt-streamsql; overwriting it with barrier %s"
_CONFLICTS = ("CommitFailedException", "CommitStateUnknownException")


def roll_forward(
    warehouse: Warehouse, fence: Fence, barrier: int, new: Mapping[str, Job] | None = None
) -> None:
    """Publish every staged table of a PRECOMMIT barrier and commit it.

    `new` are the definitions that become current with it (None: read them from the store).
    """
    store, spark = warehouse.store, warehouse.sessions.main
    definitions = store.staged_jobs(barrier) if new is None else new
    known = cache(store.jobs)
    # Their tags may be dropped here: ended leases must not revive when a clock is set back.
    store.leases.ended()
    before = store.latest_all()
    needed = to_pin(warehouse, before)

    def pinned(table: str, meta: Metadata) -> RefUpdate:
        # Until the barrier is committed, readers get the version of the last one.
        last = before[table].snapshot if table in before else None
        also = {last} if last is not None else set[int]()
        return tags.moves(meta, store.id, needed.get(table, set()) | also)

    versions = store.versions(barrier)
    together.publish(warehouse, [v for v in versions if v.table not in definitions], pinned)
    for version in versions:
        job = definitions.get(version.table)
        if not version.to_publish:
            if version.mode == NOOP and job is not None:
                with failpoint("publish.table"):
                    _learn(warehouse, version, job)
            continue
        with failpoint("publish.table"):
            if job is not None:
                _learn(warehouse, version, job)
            snapshot = make_visible(
                spark,
                version,
                partial(_remembered, warehouse, version, known),
                partial(pinned, version.table),
            )
        with failpoint("table.written"):
            store.written(fence, barrier, version.table, snapshot)
    with failpoint("barrier.commit"):
        store.commit(fence, barrier)


def roll_back(warehouse: Warehouse, fence: Fence, barrier: int) -> None:
    """Abort an OPEN barrier; the sweep removes what it staged."""
    with failpoint("barrier.abort"):
        warehouse.store.abort(fence, barrier)


def recover(warehouse: Warehouse, fence: Fence) -> int:
    """Finish or undo unfinished barriers, then sweep; returns the number of things removed."""
    for barrier in warehouse.store.unfinished():
        if barrier.state == "PRECOMMIT":
            log.warning(
                "an earlier run stopped while publishing barrier %s; publishing it now",
                barrier.id,
            )
            roll_forward(warehouse, fence, barrier.id)
            openlineage.published(warehouse, barrier.id)
        else:
            log.warning(
                "an earlier run stopped before barrier %s was published; discarding its changes",
                barrier.id,
            )
            roll_back(warehouse, fence, barrier.id)
    return sweep(warehouse, fence)


def undo(warehouse: Warehouse, barrier: int) -> None:
    """Discard what a run that was held back has staged.

    Errors: META_CONFLICT when there is no such open barrier, WAREHOUSE_BUSY.
    """
    store = warehouse.store
    fence = store.acquire()
    try:
        states = {found.id: found.state for found in store.unfinished()}
        if states.get(barrier) != "OPEN":
            raise StreamSqlError(
                "META_CONFLICT",
                f"barrier {barrier} cannot be undone",
                given=states.get(barrier, "not an unfinished barrier"),
                allowed=", ".join(f"barrier {number}" for number in states) or "none is open",
                hint="a published barrier cannot be undone; one in PRECOMMIT will be published",
            )
        recover(warehouse, fence)
    finally:
        store.release(fence)


def sweep(
    warehouse: Warehouse, fence: Fence, published: Iterable[TableVersion] | None = None
) -> int:
    """Remove unneeded branches, staging tables, change files and tags; returns how many.

    Only the runner may sweep, when no barrier is open: then everything staged is left over.
    `published` limits the sweep to what one barrier staged (None: everywhere).
    """
    store, spark = warehouse.store, warehouse.sessions.main
    everywhere = published is None
    # A runner that has lost its lock unnoticed must not remove what its successor stages.
    newest = store.newest_barrier(fence)
    published_views.refresh(warehouse)
    if published is None:
        tables = sorted({*store.jobs(), *store.latest_all()})
        # Those of plain tables have no barrier: see `runtime/publish/plain_tables.py`.
        names = staging.staged_tables(spark, warehouse.catalog)
        ours = {name: staging.staged_barrier(name, store.id) for name in names}
        staged = [name for name, barrier in ours.items() if 0 <= barrier <= newest]
    else:
        moved = [version for version in published if version.mode != NOOP]
        tables = [version.table for version in moved if version.branch]
        staged = [TableName.parse(v.staged_at) for v in moved if v.staged_at and not v.created]
    gone = sum(_drop_branches(spark, TableName.parse(table), newest) for table in tables)
    for name in staged:
        with failpoint("sweep.staging"):
            staging.drop_table(spark, name)
        gone += 1
    if everywhere:
        roots = {source for source, _ in store.topology()} - set(tables)
        names = [TableName.parse(root) for root in sorted(roots)]
        gone += root_correction.sweep(spark, names, warehouse.store_id)
    gone += _sweep_changes(warehouse, fence)
    dropped = changelog_table.sweep(warehouse, fence) + state_tables.sweep(warehouse, fence)
    # They read tables that nothing else may read.
    gone += dropped + move_pins(warehouse, fence, everywhere=everywhere or dropped > 0)
    return gone


def move_pins(warehouse: Warehouse, fence: Fence, *, everywhere: bool) -> int:
    """Tag exactly the snapshots that a view has consumed, that a reader holds, or that are a
    view's newest although a compaction replaced them; returns how many tags moved.

    `everywhere` also looks at tables that no view reads.
    """
    store, spark = warehouse.store, warehouse.sessions.main
    wanted: dict[str, set[int]] = {source: set() for source, _ in store.topology()}
    # A reader may have held any table.
    given_back = store.leases.ended()
    latest = store.latest_all()
    if everywhere or given_back:
        # Changelog tables have versions, but no job.
        known = (*store.jobs(), *latest, *store.outside_tables())
        wanted |= {table: set() for table in known}
    for table, snapshots in to_pin(warehouse, latest).items():
        wanted.setdefault(table, set()).update(snapshots)
    # Other formats have no tags: their own retention decides.
    metas = {source: inputs.tagged(spark, TableName.parse(source)) for source in sorted(wanted)}
    # A runner that has lost its lock unnoticed must not drop its successor's tags: the tags that
    # it knows were there before this.
    store.newest_barrier(fence)
    moved = 0
    for source, meta in metas.items():
        if meta is None:
            continue
        newest = latest[source].snapshot if source in latest else None
        if newest is not None and newest != meta.current:
            wanted[source].add(newest)
        if source in warehouse.untagged:
            continue
        name = TableName.parse(source)
        try:
            with failpoint("pins.move"):
                moved += tags.reconcile(spark, name, meta, warehouse.store_id, wanted[source])
        except (PySparkException, Py4JError) as error:
            _tell_untagged(warehouse, source, meta, error, ours=source in latest)
    if given_back:
        store.leases.forget(given_back)
    return moved


def _tell_untagged(
    warehouse: Warehouse, table: str, meta: Metadata, error: Exception, *, ours: bool
) -> None:
    """Log the consequences of a tag that could not be moved.

    A read-only table is an ordinary source: this process does not try it again. After a commit
    conflict with another writer, it does.
    """
    why = brief(error)
    if ours or any(word in str(error) for word in _CONFLICTS):
        log.warning("%s cannot be pinned: %s", table, why)
        return
    warehouse.untagged.add(table)
    told = meta.properties.get(_LIFE, "")
    days = (int(told) if told.isdecimal() else _LIFE_DEFAULT) / 86_400_000
    log.warning(
        "%s can be read but not tagged (%s). Its snapshots last only as long as its owner keeps "
        "them (%s: %g days). Run more often than that, or the views that read it are refreshed in "
        "full; older barriers are read without it, regardless of `retain`",
        *(table, why, _LIFE, days),
    )


def to_pin(warehouse: Warehouse, latest: Mapping[str, TableVersion]) -> dict[str, set[int]]:
    """The snapshots that a view has consumed or a reader holds, by table. `latest`: the versions
    of the last barrier."""
    wanted = _leased(warehouse)
    for version in latest.values():
        for source, snapshot in version.inputs.items():
            if snapshot is not None and source != CLOCK:
                wanted.setdefault(source, set()).add(snapshot)
    return wanted


def _leased(warehouse: Warehouse) -> dict[str, set[int]]:
    """What readers hold, by table. The newest barrier's versions are kept anyway."""
    store = warehouse.store
    newest = store.last_committed()
    held: dict[str, set[int]] = {}
    for barrier in {lease.barrier for lease in store.leases.live()} - {newest}:
        seen = {table: version.snapshot for table, version in store.latest_all(barrier).items()}
        for table, snapshot in (seen | store.inputs_as_of(barrier)).items():
            if snapshot is not None:
                held.setdefault(table, set()).add(snapshot)
    return held


def clear(warehouse: Warehouse, barrier: int, tables: Collection[str]) -> None:
    """Remove what views staged for an OPEN barrier that they were taken out of again.

    Runs before other tables of the barrier are published: after that, a process that has only the
    tables to go by counts everything staged for the barrier as part of it.
    """
    spark, branch = warehouse.sessions.main, staging.branch_name(barrier)
    versions = warehouse.store.versions(barrier)
    waiting = {version.table for version in versions if version.branch}
    for table in sorted(set(tables) - waiting):
        name = TableName.parse(table)
        meta = metadata.load(spark, name)
        if meta is not None and branch in meta.refs:
            with failpoint("sweep.branch"):
                update_refs(spark, name, RefUpdate(drop_branches=(branch,)))
    built = {version.staged_at for version in versions}
    for name in staging.staged_tables(spark, warehouse.catalog):
        ours = staging.staged_barrier(name, warehouse.store_id) == barrier
        if ours and str(name) not in built:
            with failpoint("sweep.staging"):
                staging.drop_table(spark, name)


def _remembered(
    warehouse: Warehouse, version: TableVersion, known: Callable[[], Mapping[str, Job]]
) -> Mapping[str, str]:
    return definition_property.properties(
        version.table, warehouse.store_id, known().get(version.table)
    )


def _learn(warehouse: Warehouse, version: TableVersion, job: Job) -> None:
    """Record the new definition in the table, wherever the version that matches it is staged."""
    spark = warehouse.sessions.main
    at = TableName.parse(version.staged_at or version.table)
    meta = metadata.load(spark, at)
    if meta is None:
        return
    made = meta.snapshots.get(version.snapshot) if version.snapshot is not None else None
    origin = provenance.read(made.summary) if made is not None else None
    another = origin is None or origin.plan != job.fingerprint
    wanted = definition_property.properties(version.table, warehouse.store_id, job)
    definition_property.keep(spark, at, meta, wanted, version.snapshot if another else None)


def make_visible(
    spark: SparkSession,
    version: TableVersion,
    kept: Callable[[], Mapping[str, str]] = dict,
    pinned: Callable[[Metadata], RefUpdate] = lambda _: RefUpdate(),
) -> int | None:
    """Make one staged version of a barrier that can only roll forward visible. Idempotent.

    Returns its snapshot id if publishing gave it a new one.

    `kept` are the properties that the table needs if an earlier release built it; `pinned` moves
    its tags so that snapshot expiry leaves what readers use, also the version that is replaced
    here. That one keeps its tag until the next one is replaced, or `move_pins` runs: so it costs
    no commit.
    """
    table = TableName.parse(version.table)
    meta = metadata.load(spark, table)
    tagged = pinned(meta) if meta is not None else RefUpdate()
    # A separate commit must not drop any: a runner that has lost its lock may be late.
    tags_alone = RefUpdate(tags=tagged.tags)
    if version.staged_at:
        staged = TableName.parse(version.staged_at)
        if meta is None:
            staging.publish_new(spark, staged, table)
            return None
        if version.created:
            if metadata.load(spark, staged) is None:
                return None
            log.warning(_REPLACED, table, "created", version.barrier)
        update_refs(spark, table, tags_alone)
        return staging.publish_replacement(spark, staged, table, version.barrier)
    assert version.snapshot is not None
    if meta is None or version.snapshot not in meta.snapshots:
        log.warning("%s was dropped outside dbt-streamsql; the next run rebuilds it", table)
        return None
    if ROLLED_BACK in version.stats:
        if meta.current != version.snapshot:
            update_refs(spark, table, tags_alone)
            set_current(spark, table, version.snapshot)
        return None
    if definition_property.STORE not in meta.properties:
        definition_property.keep(spark, table, meta, kept())
    if meta.lineage(meta.current, version.snapshot) is not None:
        return None
    try:
        update_refs(spark, table, together.forward(version, tagged))
    except PySparkException as error:
        if "not an ancestor" not in str(error):
            raise
        log.warning(_REPLACED, table, "modified", version.barrier)
        update_refs(spark, table, tags_alone)
        set_current(spark, table, version.snapshot)
    return None


def _drop_branches(spark: SparkSession, table: TableName, newest: int) -> int:
    meta = metadata.load(spark, table)
    ours = [
        name for name in (meta.refs if meta else {}) if 0 <= staging.branch_barrier(name) <= newest
    ]
    for branch in ours:
        with failpoint("sweep.branch"):
            update_refs(spark, table, RefUpdate(drop_branches=(branch,)))
    return len(ours)


def _sweep_changes(warehouse: Warehouse, fence: Fence) -> int:
    """Delete change files that every reader has consumed, or whose barrier was aborted."""
    store, spark = warehouse.store, warehouse.sessions.main
    latest = store.latest_all()
    paths: list[str] = [file.path for file in store.aborted_change_files()]
    for table in store.tables_with_change_files():
        current = latest.get(table)
        behind = [
            reader
            for reader in store.readers(table)
            if current is not None
            and reader in latest
            and latest[reader].inputs.get(table) != current.snapshot
        ]
        if not behind:
            limit = current.barrier if current is not None else store.last_committed()
            paths += [file.path for file in store.change_files(table, 0, limit)]
    gone: list[str] = []
    for path in paths:
        with failpoint("sweep.changes"):
            gone += delete_changes(spark, [path])
    if gone:
        store.forget_change_files_at(fence, gone)
    return len(gone)


def delete_changes(spark: SparkSession, paths: Iterable[str]) -> list[str]:
    """Delete change files; returns those deleted. The others must stay listed for a later
    sweep."""
    gone = []
    for path in paths:
        try:
            files.delete_folder(spark, path)
        except OSError as error:
            log.warning("%s: a later run removes it", error)
        else:
            gone.append(path)
    return gone
