"""What dbt asks about schemas, tables and their docs, in any catalog of the session."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.contracts.relation import RelationConfig, RelationType
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.reference_keys import _ReferenceKey
from dbt.adapters.spark.impl import SparkAdapter
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError
from dbt_common.utils.executor import executor

from dbt_streamsql.adapter import catalog
from dbt_streamsql.adapter.common.relation import StreamSqlColumn, StreamSqlRelation
from dbt_streamsql.adapter.session import integrations
from dbt_streamsql.adapter.session.connections import StreamSqlConnectionManager, reads_rows
from dbt_streamsql.adapter.session.host import SparkHost, project_root
from dbt_streamsql.adapter.session.integrations import IcebergCatalog
from dbt_streamsql.meta.inspect.system_tables import PREFIX
from dbt_streamsql.quoting import TableName, check_name, quote
from dbt_streamsql.storage.locations import Roots
from dbt_streamsql.storage.tables import sql_functions
from dbt_streamsql.storage.tables.listing import listed

if TYPE_CHECKING:
    import agate
    from dbt.adapters.base.impl import FreshnessResponse
    from dbt_common.contracts.metadata import CatalogTable
    from pyspark.sql import SparkSession

logger = AdapterLogger("StreamSQL")

HIDDEN_PREFIX = "__streamsql_"
"""Columns and schemas that belong to the engine; dbt never sees them."""

_MISSING = (
    *("SCHEMA_NOT_FOUND", "NoSuchNamespace", "TABLE_OR_VIEW_NOT_FOUND", "NoSuchTable"),
    "EntityNotFoundException",  # Iceberg's Glue catalog passes it on for a schema
)


def _tell_of_earlier(barrier: int, changed: Collection[str]) -> None:
    logger.info(
        f"Shown as of barrier {barrier}, where these tables are consistent. Changed since: "
        f"{', '.join(sorted(changed))}. The next run applies the changes; "
        "`--vars 'consistency: read_uncommitted'` shows each table as it is now"
    )


class RelationsAdapter(SparkAdapter):
    """The half of the adapter that inspects and does not build."""

    Relation = StreamSqlRelation
    Column = StreamSqlColumn
    ConnectionManager = StreamSqlConnectionManager
    CATALOG_INTEGRATIONS = (IcebergCatalog,)
    _capabilities = CapabilityDict(
        {
            capability: CapabilitySupport(support=Support.Full)
            for capability in (
                Capability.TableLastModifiedMetadata,
                Capability.TableLastModifiedMetadataBatch,
                Capability.GetCatalogForSingleRelation,
                Capability.CatalogsV2,
            )
        }
    )
    connections: StreamSqlConnectionManager

    # -- catalogs.yml of version 2 ----------------------------------------------------------------

    def _v2_to_v1_type(self, catalog_type: str) -> str:
        return IcebergCatalog.catalog_type

    def _translate_v2_properties(self, catalog_type: str, props: dict[str, Any]) -> dict[str, Any]:
        return integrations.properties_of(catalog_type, props)

    # -- what the process shares ---------------------------------------------------------------

    @property
    def host(self) -> SparkHost:
        return self.connections.host

    @property
    def session(self) -> SparkSession:
        """The Spark session of this thread's connection."""
        return self.connections.get_thread_connection().handle.session

    def add_catalog_integration(self, catalog_integration: Any) -> Any:
        """One entry of catalogs.yml. Error: CONFIG_INVALID."""
        added = super().add_catalog_integration(catalog_integration)
        if added.name == self.config.credentials.database:
            raise DbtRuntimeError(
                f"The catalog {added.name!r} in catalogs.yml is the profile's own: "
                "rename it, or remove it and set `catalog_properties` in the profile"
            )
        iceberg = self.config.credentials.iceberg or ""
        self.host.add_catalog(added.settings(project_root(self.config), iceberg))
        return added

    @property
    def _roots(self) -> Roots:
        return self.config.credentials.roots(project_root(self.config))

    def _name(self, relation: StreamSqlRelation) -> TableName:
        """The name as the engine knows it, checked. Error: IDENTIFIER_INVALID."""
        return relation.in_catalog(self.config.credentials.database)

    def _staged(self, sql: str) -> str:
        # A table's name in a catalog has a dot; a temporary view alone has no versions.
        named = "." in sql or PREFIX in sql.upper()
        if not named or not reads_rows(sql):
            return sql
        with self.connections.exception_handler(sql):
            handle = self.connections.get_thread_connection().handle
            level, bound = handle.reads.consistency, handle.reads.max_staleness
            told = _tell_of_earlier if handle.shows else None
            return self.host.engine.adapter_api.rewrite(sql, level, bound, handle.beside, told)

    # -- schemas and relations -----------------------------------------------------------------

    def quote(self, identifier: str) -> str:
        return quote(identifier)

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        _, cursor = self.connections.add_select_query(sql)
        with self.connections.exception_handler(sql):
            return cursor.fetchall()

    def list_schemas(self, database: str | None) -> list[str]:
        where = (database or self.config.credentials.database).strip("`")
        rows = self._query(f"SHOW NAMESPACES IN {quote(where)}")
        return [row[0].strip("`") for row in rows if not row[0].startswith(HIDDEN_PREFIX)]

    def check_schema_exists(self, database: str | None, schema: str) -> bool:
        return schema in self.list_schemas(database)

    def create_schema(self, relation: StreamSqlRelation) -> None:
        with self.connections.exception_handler(""):
            check_name(relation.schema or "", "schema")
        try:
            super().create_schema(relation)
        except DbtRuntimeError:
            # In a JDBC catalog, IF NOT EXISTS is a lookup and then an insert: another process
            # was faster.
            if not self.check_schema_exists(relation.database, relation.schema or ""):
                raise

    def drop_schema(self, relation: StreamSqlRelation) -> None:
        # Iceberg's catalogs do not cascade.
        for inner in self.list_relations_without_caching(relation):
            self.drop_relation(inner)
        super().drop_schema(relation)

    def list_relations_without_caching(
        self, schema_relation: StreamSqlRelation
    ) -> list[StreamSqlRelation]:
        where = schema_relation.without_identifier().render()
        try:
            tables, views = listed(self._query, where)
        except DbtRuntimeError as error:
            if any(sign in error.msg for sign in _MISSING):
                return []
            raise
        found = [self._view_or_function(schema_relation, name) for name in views]
        if tables:
            # A command's first request to MetaService.
            with self.connections.exception_handler(""):
                maintained = self.host.engine.queries.views()
                for name in tables:
                    relation = self._relation(schema_relation, name, RelationType.Table)
                    if str(TableName(relation.database, relation.schema, name)) in maintained:
                        relation = relation.incorporate(type=RelationType.MaterializedView)
                    found.append(relation)
        return found

    def _view_or_function(self, where: StreamSqlRelation, name: str) -> StreamSqlRelation:
        if name.startswith(sql_functions.PREFIX):
            name = name.removeprefix(sql_functions.PREFIX)
            return self._relation(where, name, RelationType.Function)
        return self._relation(where, name, RelationType.View)

    def _relation(self, where: StreamSqlRelation, name: str, kind: RelationType) -> Any:
        return self.Relation.create(
            database=where.database,
            schema=where.schema,
            identifier=name,
            type=kind,
            is_iceberg=kind == RelationType.Table,
        )

    def drop_relation(self, relation: StreamSqlRelation) -> None:
        if relation.is_materialized_view:
            self.cache_dropped(relation)
            with self.connections.exception_handler("drop"):
                self.host.engine.drop(self._name(relation).sql)
        elif relation.is_function:
            self.cache_dropped(relation)
            view = sql_functions.view_of(self._name(relation))
            with self.connections.exception_handler("drop"):
                self.session.sql(f"DROP VIEW IF EXISTS {view.sql}")
        elif relation.is_view:
            super().drop_relation(relation)
        else:
            from dbt_streamsql.storage.emptied import location_of, swept

            with swept(location_of(self.session, relation.render())):
                super().drop_relation(relation)

    def get_columns_in_relation(self, relation: StreamSqlRelation) -> list[StreamSqlColumn]:
        sql = self._staged(f"SELECT * FROM {relation.render()}")
        try:
            with self.connections.exception_handler(sql):
                fields = self.session.sql(sql).schema.fields
        except DbtDatabaseError as error:
            if any(sign in error.msg for sign in _MISSING):
                return []
            raise
        return [
            StreamSqlColumn(
                table_database=relation.database,
                table_schema=relation.schema,
                table_name=relation.identifier,
                table_type=relation.type,
                column=field.name,
                column_index=position,
                dtype=field.dataType.simpleString(),
            )
            for position, field in enumerate(fields)
            if not field.name.startswith(HIDDEN_PREFIX)
        ]

    def get_relation(self, database: str, schema: str, identifier: str) -> BaseRelation | None:
        """Like dbt's own, which compares the name with those of all relations of the schema: each
        of three thousand models would wait 10 ms for it."""
        if not database or not self._schema_is_cached(database, schema):
            return super().get_relation(database, schema, identifier)
        key = _ReferenceKey(*(part.strip("`").lower() for part in (database, schema, identifier)))
        known = self.cache.relations.get(key)
        near: list[Any] = [known.inner] if known is not None else []
        return next(iter(self._make_match(near, database, schema, identifier)), None)

    def _make_match_kwargs(self, database: str, schema: str, identifier: str) -> dict[str, str]:
        # dbt lowercases names that the project does not quote; Iceberg's catalogs keep their case.
        parts = {"database": database, "schema": schema, "identifier": identifier}
        return {part: name for part, name in parts.items() if name is not None}

    # -- docs ----------------------------------------------------------------------------------

    def get_catalog(
        self,
        relation_configs: Iterable[RelationConfig],
        used_schemas: frozenset[tuple[str, str]],
    ) -> tuple[agate.Table, list[Exception]]:
        """One row per column of every relation in the used schemas, with its metadata."""
        import agate

        found: list[dict[str, Any]] = []
        problems: list[Exception] = []
        for database, schema in sorted(used_schemas):
            try:
                with self.connection_named(f"catalog_{schema}"):
                    relations: list[Any] = self.list_relations(database, schema)
                for described in self._all_described(relations):
                    found += described.rows()
            except DbtRuntimeError as error:
                problems.append(error)
        names = list(found[0]) if found else []
        types = [catalog.column_type(name) for name in names]
        return agate.Table([list(row.values()) for row in found], names, types), problems

    def get_catalog_for_single_relation(self, relation: StreamSqlRelation) -> CatalogTable:
        return self._described(relation).table()

    def _all_described(self, relations: Iterable[StreamSqlRelation]) -> list[catalog.Described]:
        """Relations in their order, looked up by as many threads as the profile sets."""
        wanted = [relation for relation in relations if not relation.is_function]
        threads = max(1, min(self.config.threads, len(wanted)))

        def some(number: int) -> list[catalog.Described]:
            return [self._described(relation) for relation in wanted[number::threads]]

        with executor(self.config) as pool:
            futures = [
                pool.submit_connected(self, f"catalog_{number}", some, number)
                for number in range(threads)
            ]
            parts = [future.result() for future in futures]
        return [parts[at % threads][at // threads] for at in range(len(wanted))]

    def _described(self, relation: StreamSqlRelation) -> catalog.Described:
        with self.connections.exception_handler("describe"):
            name = self._name(relation)
            found = catalog.describe(self.session, relation, name, HIDDEN_PREFIX)
            if not relation.is_materialized_view:
                return found
            known = self.host.engine.adapter_api
            stats = {
                "kept": known.maintenance_summary(str(name)),
                "state": known.state_summary(str(name)),
                "state_ttl": known.retention_summary(str(name)),
            }
            more = {key: text for key, text in stats.items() if text}
            return replace(found, stats={**found.stats, **more})

    def calculate_freshness_from_metadata(
        self,
        source: StreamSqlRelation,
        macro_resolver: Any = None,
    ) -> tuple[AdapterResponse | None, FreshnessResponse]:
        """The age of a source by its newest snapshot; no row is read."""
        with self.connections.exception_handler("freshness"):
            at = catalog.last_change(self.session, self._name(source))
        return None, self._create_freshness_response(at, datetime.now(timezone.utc))

    def calculate_freshness_from_metadata_batch(
        self,
        sources: list[StreamSqlRelation],
        macro_resolver: Any = None,
    ) -> tuple[list[AdapterResponse | None], dict[StreamSqlRelation, FreshnessResponse]]:
        """The ages of sources; dbt asks again for each that is missing."""
        found = {}
        for source in sources:
            # After an error, dbt 1.12 skips all sources.
            with suppress(DbtRuntimeError):
                found[source] = self.calculate_freshness_from_metadata(source, macro_resolver)[1]
        return [], found
