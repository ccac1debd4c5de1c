"""Rebuilds a lost store from the tables that it maintained.

A publish that a dead process left incomplete is finished first; then the definitions and versions
are read from the tables, and one transaction writes them to the store. A process that dies before
that leaves an empty store, and tables that the next attempt can start from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dbt_streamsql.engine.definitions import Definitions
from dbt_streamsql.engine.reads.spark_catalog import SparkCatalog
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import Barrier, Fence, Job, TableVersion
from dbt_streamsql.meta.model.records import Pin
from dbt_streamsql.meta.model.stored_definition import (
    StoredDefinition,
    definition_of,
    named,
    plan_of,
)
from dbt_streamsql.meta.store.recovery import Ledger
from dbt_streamsql.plan.algebra.relational import CLOCK
from dbt_streamsql.plan.algebra.schema import Column, visible
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition import drift
from dbt_streamsql.plan.definition.stored_part import PlaceParts, StoredPart, state_of
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.changelog import changelog_table
from dbt_streamsql.runtime.core.definition_property import Definition
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.ingest import stream_definition
from dbt_streamsql.runtime.publish import publish
from dbt_streamsql.runtime.revise import catalog_scan
from dbt_streamsql.runtime.revise.catalog_scan import CatalogScan, Table
from dbt_streamsql.state_ttl import state_ttl_of
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.iceberg import files

if TYPE_CHECKING:
    from dbt_streamsql.engine.reads.consistent_reads import ConsistentReads


Define = Callable[..., tuple[Job, CompiledPlan, Any]]


@dataclass(frozen=True)
class RecoveryReport:
    """The result of recovering a lost store.

    `store` is its id, `barrier` the newest one that is known again, `kept_from` the oldest that
    can be read. `tables`: those that it maintains again, each with the reason why its next
    refresh is in full ('': from changes). `left`: tables that it had, each with the reason why
    it no longer knows them; they stay unchanged, and `dbt run` defines them again.
    `published`: those whose newest version was staged and is visible now.
    """

    store: str
    barrier: int
    kept_from: int
    barriers: int
    tables: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    published: tuple[str, ...] = ()


def rebuild(
    warehouse: Warehouse, reads: ConsistentReads, store: str = "", *, dry_run: bool = False
) -> RecoveryReport:
    """Restore the empty store of a warehouse from the tables of the catalog.

    `store` is the id of the lost one ('': that of this store, which depends on its address).
    `dry_run` looks, and changes nothing. Errors: META_CONFLICT when the store is not empty or the
    tables have other owners, CONFIG_INVALID through a MetaService, WAREHOUSE_BUSY.
    """
    warehouse.store.check_empty()
    fence = warehouse.store.acquire()
    try:
        return _StoreRecovery(warehouse, reads, fence, store, dry_run=dry_run).run()
    finally:
        warehouse.store.release(fence)


class _StoreRecovery:
    def __init__(
        self,
        warehouse: Warehouse,
        reads: ConsistentReads,
        fence: Fence,
        store: str,
        *,
        dry_run: bool,
    ) -> None:
        self.warehouse, self.reads, self.fence, self.dry_run = warehouse, reads, fence, dry_run
        self.spark = warehouse.sessions.main
        self.store = store or warehouse.store.id
        self.asked = bool(store)

    def run(self) -> RecoveryReport:
        found = self._look()
        waiting = found.waiting()
        if waiting and not self.dry_run:
            log.warning("barrier %s was only partly published: publishing the rest", found.newest)
            for version in waiting:
                with failpoint("rebuild.publish"):
                    publish.make_visible(self.spark, version)
            found = self._look()
        definitions, left = self._definitions(found)
        jobs: dict[str, Job] = {}
        told: dict[str, str] = {}
        compiler = self._compiler(found)
        for name, kept in definitions.items():
            try:
                if kept.stream:
                    jobs[name], told[name] = self._stream(compiler, name, kept), ""
                elif not kept.beside:
                    place = _states_read(found.tables[name], definitions)
                    jobs[name], told[name] = _compiled(compiler.define, name, kept, place)
            except StreamSqlError as error:
                left[name] = f"its query cannot be compiled: {error.message}"
        for job in list(jobs.values()):
            jobs |= {
                o.table: o for o in stream_definition.side_tables(job) if o.table in found.tables
            }
        for name in jobs:
            if found.tables[name].history[0].origin.inputs is None:
                told[name] = "the inputs of its newest version are not recorded"
        known = {**jobs, **found.changelogs({name: definitions[name] for name in jobs})}
        left |= {
            name: "the view whose changes it holds was not recovered"
            for name in found.tables
            if name not in known and name not in left
        }
        ledger = self._ledger(found, known, list(jobs.values()))
        if not self.dry_run:
            with failpoint("rebuild.store"):
                self.warehouse.store.rebuild(self.fence, ledger)
            self._clean(found, known)
        return RecoveryReport(
            ledger.store,
            max((barrier.id for barrier in ledger.barriers), default=0),
            ledger.kept_from,
            len(ledger.barriers),
            {**told, **{name: "" for name in known if name not in told}},
            left,
            tuple(version.table for version in waiting),
        )

    def _look(self) -> CatalogScan:
        metas = catalog_scan.tables(self.spark, self.warehouse.catalog)
        stores = catalog_scan.stores(metas)
        if self.store not in stores and (self.asked or any(stores)):
            others = ", ".join(f"{of} ({n} tables)" for of, n in sorted(stores.items()) if of)
            raise StreamSqlError(
                "META_CONFLICT",
                f"no table of {self.warehouse.catalog} belongs to the store {self.store}",
                given=others or "no table belongs to any store",
                hint="if one of these is the lost store, pass its id: `--store <id>`",
            )
        return CatalogScan(metas, self.store)

    def _definitions(self, found: CatalogScan) -> tuple[dict[str, Definition], dict[str, str]]:
        """The definitions by view, and why other tables have none."""
        known: dict[str, Definition] = {}
        left: dict[str, str] = {}
        for name, table in found.tables.items():
            definition = table.definition()
            if isinstance(definition, Definition):
                known[name] = definition
            elif not changelog_table.view_of(name):
                left[name] = definition
        for name, meta in found.metas.items():
            if catalog_scan.stores({name: meta})[""]:
                left[name] = catalog_scan.NOT_STORED
        return known, left

    def _compiler(self, found: CatalogScan) -> Definitions:
        """Compiles over the current tables, without the engine's own columns."""

        def shown(name: TableName) -> str | None:
            return self.reads.shown(name.sql) if str(name) in found.tables else None

        def rewritten(sql: str) -> str:
            return self.reads.rewritten(sql, shown)

        catalog = self.warehouse.catalog
        return Definitions(
            SparkCatalog(self.spark, catalog, lambda name: name, rewritten, lambda _: None)
        )

    def _stream(self, compiler: Definitions, name: str, kept: Definition) -> Job:
        """The definition of a streaming table as a job."""
        stream, connections = stream_definition.from_json(kept.stream), self.warehouse.connections
        fields = self.spark.table(TableName.parse(name).sql).schema
        has = visible(tuple(Column(f.name, type_text(f.dataType)) for f in fields))
        table = Job(name, kept.unique_id, kept.sql, columns=named(has))
        follows = drift.FAIL if stream.by_event_time else drift.APPEND
        lenient = replace(stream, on_schema_change=follows)
        job, plan, change = compiler.define_stream(
            table, name, kept.sql, lenient, connections, kept.unique_id, kept.properties
        )
        known = replace(definition_of(job), stream=asdict(stream))
        job = replace(job, config=known.as_config())
        if change is None:
            return job
        # New stream columns are left to the next run: the table does not have them.
        plan = replace(plan, columns=has)
        return replace(
            job,
            plan=known.as_plan(plan),
            config=replace(known, reads=()).as_config(),
            columns=table.columns,
        )

    def _ledger(self, found: CatalogScan, known: Mapping[str, object], jobs: list[Job]) -> Ledger:
        versions = found.versions(known)
        by_barrier: dict[int, list[TableVersion]] = {}
        for version in versions:
            by_barrier.setdefault(version.barrier, []).append(version)
        barriers = []
        for number, mine in sorted(by_barrier.items()):
            at = [version.written_at or 0.0 for version in mine]
            barriers.append(Barrier(number, "COMMIT", self.fence.token, min(at), max(at)))
        pins = {
            number: {
                source: Pin(seen, _committed(found, source, seen))
                for version in mine
                for source, seen in version.inputs.items()
                if source != CLOCK and source not in known
            }
            for number, mine in by_barrier.items()
        }
        return Ledger(
            self.store,
            found.last,
            found.kept_from(known),
            barriers,
            versions,
            jobs,
            pins,
            found.published,
        )

    def _clean(self, found: CatalogScan, known: Mapping[str, object]) -> None:
        """Change files are no longer listed, nor is staged data that was never published."""
        for name in known:
            with failpoint("sweep.changes"):
                files.delete_folder(self.spark, f"{found.tables[name].meta.location}-changes")
        publish.sweep(self.warehouse, self.fence)


def _states_read(table: Table, definitions: Mapping[str, Definition]) -> PlaceParts:
    """Where the parts are stored that the newest version of a table was computed from."""
    read = table.history[0].origin.inputs or {}
    there = {kept.part: name for name, kept in definitions.items() if kept.part and name in read}

    def place(parts: Sequence[StoredPart]) -> dict[str, str]:
        return {part.id: there[part.id] for part in parts if part.id in there}

    return place


def _compiled(define: Define, name: str, kept: Definition, place: PlaceParts) -> tuple[Job, str]:
    """The definition as a job, and why the view needs a full refresh ('': it does not)."""
    at = Place(kept.unique_id or name)
    stored = StoredDefinition(
        kept.properties,
        changelog=kept.changelog,
        state=state_of(kept.state or "auto", at),
        keys=tuple(TableKey(**key) for key in kept.keys),
        part=kept.part,
    )
    job, _, _ = define(
        *(None, name, kept.sql, kept.refresh_mode, kept.unique_id, stored),
        state_ttl=state_ttl_of(kept.state_ttl, "", at),
        place=place,
    )
    if job.fingerprint == kept.fingerprint:
        return job, ""
    # As if compiled by another compiler, so that the existing rows are not reused.
    unknown = replace(definition_of(job), compiler="")
    stale = replace(job, fingerprint=kept.fingerprint, plan=unknown.as_plan(plan_of(job)))
    return stale, "its query now compiles to a different plan"


def _committed(found: CatalogScan, source: str, snapshot: int | None) -> float | None:
    meta = found.metas.get(source)
    made = meta.snapshots.get(snapshot) if meta is not None and snapshot is not None else None
    return made.committed / 1000 if made is not None else None
