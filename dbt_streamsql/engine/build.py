"""Assembles the parts of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from dbt_streamsql.engine.adapter_api import AdapterApi
from dbt_streamsql.engine.definitions import Definitions
from dbt_streamsql.engine.epochs import EpochControl
from dbt_streamsql.engine.maintenance import Maintenance
from dbt_streamsql.engine.options import EngineOptions
from dbt_streamsql.engine.queries import Queries
from dbt_streamsql.engine.reads.consistent_reads import ConsistentReads
from dbt_streamsql.engine.reads.current import CurrentEpoch
from dbt_streamsql.engine.reads.spark_catalog import SparkCatalog
from dbt_streamsql.engine.reads.user_sql import expanded
from dbt_streamsql.engine.revisions import Revisions
from dbt_streamsql.engine.sinks import SinkManager
from dbt_streamsql.engine.state_choice import StateChoice
from dbt_streamsql.engine.state_tables import StateTables
from dbt_streamsql.engine.tables import TableDefiner
from dbt_streamsql.meta import open_store
from dbt_streamsql.meta.model.addresses import store_of
from dbt_streamsql.runtime.core.clock import SystemClock
from dbt_streamsql.runtime.core.epoch_state import Warehouse
from dbt_streamsql.runtime.core.own_keys import unique_columns
from dbt_streamsql.runtime.core.ways import Costs
from dbt_streamsql.runtime.refresh.spark_program import SparkProgram
from dbt_streamsql.runtime.spark.session_pool import SessionPool
from dbt_streamsql.storage.java import is_connect


@dataclass(frozen=True)
class EngineParts:
    """The parts of one engine; they share the warehouse and its open epoch."""

    warehouse: Warehouse
    reads: ConsistentReads
    epochs: EpochControl
    tables: TableDefiner
    sinks: SinkManager
    queries: Queries
    maintenance: Maintenance
    revisions: Revisions
    adapter_api: AdapterApi


def parts_of(spark: SparkSession, catalog: str, meta: str, options: EngineOptions) -> EngineParts:
    """The parts of an engine over a session, its catalog, and MetaService's store.

    Errors: CONFIG_INVALID, META_UNREACHABLE, META_VERSION, META_DENIED.
    """
    store = open_store(store_of(meta, options.boundary), token=options.meta_token)
    warehouse = Warehouse(
        SessionPool(spark, options.query_timeout),
        store,
        catalog,
        options.retention,
        options.connections,
        options.tuning,
        options.clock or SystemClock(),
        programs=SparkProgram,
        # A server has been running already.
        costs=Costs(0.0 if is_connect(spark) else options.tuning.warm_up_seconds),
    )
    current = CurrentEpoch(store)

    def typed(sql: str) -> str:
        return reads.typed(sql, current)

    def unique(table: str) -> tuple[str, ...]:
        return unique_columns(table, current.jobs())

    known = SparkCatalog(spark, catalog, current.place, typed, current.pinned, unique)
    reads = ConsistentReads(warehouse, known, options.consistency, partial(expanded, spark))
    definitions = Definitions(known)
    choice = StateChoice(warehouse, known, options.most_state)
    states = StateTables(current, definitions, choice)
    epochs = EpochControl(warehouse, current, definitions, reads, states)
    tables = TableDefiner(warehouse, known, current, definitions, epochs, states)
    queries = Queries(warehouse, current, reads, states)
    return EngineParts(
        warehouse,
        reads,
        epochs,
        tables,
        SinkManager(warehouse, definitions, epochs),
        queries,
        Maintenance(warehouse, reads, epochs),
        Revisions(warehouse, definitions, epochs),
        AdapterApi(warehouse, current, reads, states),
    )
