"""Recover a lost store from the tables of a catalog: definitions, versions, barriers.

Only what main leads to counts: a snapshot that no barrier has published is not on main. A version
that replaced an earlier table names the snapshot which that had, so the walk continues there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Published, TableVersion
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.changelog import changelog_table
from dbt_streamsql.runtime.core import definition_property
from dbt_streamsql.runtime.core.definition_property import Definition
from dbt_streamsql.runtime.reads.published_views import CURRENT, MARK
from dbt_streamsql.storage.iceberg import metadata, provenance, staging
from dbt_streamsql.storage.iceberg.metadata import Metadata, Snapshot
from dbt_streamsql.storage.iceberg.provenance import Provenance

Metas = Mapping[str, Metadata]
"""The tables of a catalog by name, including those of the staging schema."""

NOT_STORED = "its definition is not stored: an earlier release wrote the table"
"""Why a table of another release cannot be recovered."""


def tables(spark: SparkSession, catalog: str) -> dict[str, Metadata]:
    """Every Iceberg table of a catalog."""
    found = {}
    for space in spark.sql(f"SHOW NAMESPACES IN {quote(catalog)}").collect():
        schema = space["namespace"]
        rows = spark.sql(f"SHOW TABLES IN {quote(catalog)}.{quote(schema)}").collect()
        for row in rows:
            name = TableName(catalog, schema, row["tableName"])
            try:
                meta = metadata.load(spark, name)
            except StreamSqlError:
                continue  # of another format
            if meta is not None:
                found[str(name)] = meta
    return found


def stores(metas: Metas) -> Counter[str]:
    """How many tables each store maintains, by its id; '': an earlier release wrote them."""
    found: Counter[str] = Counter()
    for meta in metas.values():
        store, stamps = meta.properties.get(definition_property.STORE, ""), _stamps(meta)
        # A table that records its inputs but no store was given up by its store.
        if stamps and (store or all(origin.inputs is None for origin in stamps)):
            found[store] += 1
    return found


@dataclass(frozen=True)
class PublishedVersion:
    """One published version of a table."""

    snapshot: Snapshot
    origin: Provenance


class Table:
    """One table of the store, as its metadata describes it."""

    def __init__(self, name: str, meta: Metadata) -> None:
        self.name, self.meta = name, meta

    @cached_property
    def history(self) -> list[PublishedVersion]:
        """The published versions, newest first."""
        return list(self._walk())

    @cached_property
    def whole(self) -> bool:
        """Whether the history goes back to the first version."""
        last = self.history[-1] if self.history else None
        if last is None or last.origin.inputs is None:
            return False
        return last.snapshot.parent is None and last.origin.replaces is None

    @property
    def barrier(self) -> int:
        """The barrier of the newest version, 0 when there is none."""
        return self.history[0].origin.barrier if self.history else 0

    def definition(self) -> Definition | str:
        """The definition that the newest version matches, or why there is none."""
        kept = self.meta.properties.get(definition_property.DEFINITION)
        if not self.history:
            return "none of its versions belongs to a barrier"
        if kept is None:
            return NOT_STORED
        newest = self.history[0]
        of_table, of_snapshot = definition_property.decode(kept), None
        if newest.origin.definition:
            of_snapshot = definition_property.decode(newest.origin.definition)
        same = self.meta.properties.get(definition_property.UNCHANGED)
        if of_table is not None and same in (str(newest.snapshot.id), str(newest.origin.staged)):
            return of_table
        for found in (of_table, of_snapshot):
            if found is not None and found.fingerprint == newest.origin.plan:
                return found
        return "its newest rows may come from a different definition"

    def _walk(self) -> Iterator[PublishedVersion]:
        at, last = self.meta.current, 0
        while at is not None and (snapshot := self.meta.snapshots.get(at)) is not None:
            origin = provenance.read(snapshot.summary)
            if origin is not None and (not last or origin.barrier < last):
                # With several snapshots at a barrier, only the last one is complete.
                if origin.inputs is None and last:
                    return  # an earlier release wrote it and did not record its inputs
                last = origin.barrier
                yield PublishedVersion(snapshot, origin)
            replaced = origin.replaces if origin is not None else None
            at = replaced if replaced is not None else snapshot.parent


class CatalogScan:
    """All tables of one store in a catalog."""

    def __init__(self, metas: Metas, store: str) -> None:
        self.store = store
        self.metas = metas
        self.staging: dict[str, Metadata] = {}
        self.tables: dict[str, Table] = {}
        self.published: list[Published] = []
        for name, meta in metas.items():
            if meta.properties.get(definition_property.STORE) != store:
                continue
            if TableName.parse(name).table == CURRENT:
                by_schema = meta.properties.get(MARK) == "schema_name"
                self.published.append(Published(TableName.parse(name).schema, by_schema))
            elif TableName.parse(name).schema == staging.STAGING_SCHEMA:
                self.staging[name] = meta
            else:
                self.tables[name] = Table(name, meta)

    @cached_property
    def newest(self) -> int:
        """The newest barrier with a published table."""
        return max((table.barrier for table in self.tables.values()), default=0)

    @cached_property
    def last(self) -> int:
        """The highest barrier number of which there is a trace."""
        names = [TableName.parse(name) for name in self.metas]
        staged = [name for name in names if name.schema == staging.STAGING_SCHEMA]
        numbers = [self.newest, *(staging.staged_barrier(name, self.store) for name in staged)]
        for meta in (*self.staging.values(), *(table.meta for table in self.tables.values())):
            numbers += [origin.barrier for origin in _stamps(meta)]
            numbers += [staging.branch_barrier(ref) for ref in meta.refs]
        return max(numbers)

    def waiting(self) -> list[TableVersion]:
        """What was staged for a barrier of which some tables are published: it was complete."""
        found: dict[str, TableVersion] = {}
        branch = staging.branch_name(self.newest)
        for name, table in self.tables.items():
            head = table.meta.snapshots.get(table.meta.refs.get(branch, -1))
            origin = provenance.read(head.summary) if head is not None else None
            if head is None or origin is None or origin.barrier != self.newest:
                continue
            if self._behind(name):
                found[name] = TableVersion(self.newest, name, snapshot=head.id, branch=branch)
        # Of several that were built for one table, the last one counts.
        for at in sorted(self.staging, key=_number):
            meta, to = (
                self.staging[at],
                self.staging[at].properties.get(definition_property.TABLE, ""),
            )
            mine = staging.staged_barrier(TableName.parse(at), self.store) == self.newest
            if to and mine and self._behind(to):
                new = to not in self.metas
                found[to] = TableVersion(
                    self.newest, to, snapshot=meta.current, staged_at=at, created=new
                )
        return sorted(found.values(), key=lambda version: version.table)

    def versions(self, names: Mapping[str, object]) -> list[TableVersion]:
        """The published versions of these tables."""
        copies: dict[tuple[str, int | None], int] = {
            (name, told.origin.staged): told.snapshot.id
            for name, table in self.tables.items()
            for told in table.history
            if told.origin.staged is not None
        }
        return [
            _version(name, told, copies) for name in names for told in self.tables[name].history
        ]

    def kept_from(self, names: Mapping[str, object]) -> int:
        """The oldest barrier at which each of these tables is known, 0 for any."""
        known = {name: {t.origin.barrier for t in self.tables[name].history} for name in names}
        barriers = sorted(set().union(*known.values()))
        oldest = [min(of) for name, of in known.items() if not self.tables[name].whole]
        for name, of in known.items():
            # Main was set back, or this table was held back: it is not known at such a barrier.
            missing = {origin.barrier for origin in _stamps(self.tables[name].meta)} - of
            off = max(missing.intersection(barriers), default=0)
            oldest.append(next((later for later in barriers if off and later > off), off))
        return max(oldest, default=0)

    def changelogs(self, views: Mapping[str, Definition]) -> dict[str, None]:
        """The changelog tables of views that ask for one."""
        names = (name for name in self.tables if changelog_table.view_of(name) in views)
        return {
            name: None
            for name in names
            if views[changelog_table.view_of(name)].changelog and self.tables[name].history
        }

    def _behind(self, name: str) -> bool:
        return name not in self.tables or self.tables[name].barrier < self.newest


def _stamps(meta: Metadata) -> list[Provenance]:
    found = (provenance.read(snapshot.summary) for snapshot in meta.snapshots.values())
    return [origin for origin in found if origin is not None]


def _number(staged: str) -> int:
    """The place of a staging table among those of its barrier."""
    number = TableName.parse(staged).table.split("_")[1]
    return int(number) if number.isdigit() else -1


def _version(
    name: str, told: PublishedVersion, copies: Mapping[tuple[str, int | None], int]
) -> TableVersion:
    made, origin = told.snapshot, told.origin
    inputs = {
        source: copies.get((source, seen), seen) for source, seen in (origin.inputs or {}).items()
    }
    whole = made.count("total-records") == made.count("added-records")
    gone = made.count("deleted-records") + made.count("added-position-deletes")
    mode = "full" if whole else "append" if not gone else "incremental"
    return TableVersion(
        origin.barrier,
        name,
        "WRITTEN",
        snapshot=made.id,
        mode=mode,
        reason="read from the table: the store was rebuilt",
        rows_inserted=made.count("added-records"),
        rows_deleted=gone,
        written_at=made.committed / 1000,
        inputs=inputs,
    )
