"""The adapter: the run, and what the macros may call. Thin: the engine does the work."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from dbt.adapters.base import ConstraintSupport, available
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.contracts.relation import RelationConfig
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.spark.impl import SparkConfig
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.events.event_manager_client import add_callback_to_manager
from dbt_common.exceptions import DbtBaseException

from dbt_streamsql.adapter import debug, python_models, seeds
from dbt_streamsql.adapter.common.error_messages import cause_of, trace_of
from dbt_streamsql.adapter.common.relation import StreamSqlColumn, StreamSqlRelation
from dbt_streamsql.adapter.config import model_config, partial_update, plain_table
from dbt_streamsql.adapter.config.folder_config import own_config
from dbt_streamsql.adapter.config.layout import partition_fields
from dbt_streamsql.adapter.engine_models import MaintainedAdapter
from dbt_streamsql.adapter.run_results import Outcomes
from dbt_streamsql.adapter.session.connections import named_in
from dbt_streamsql.plan.operators import HEADINGS, cells
from dbt_streamsql.quoting import (
    TableName,
    column,
    expression,
    literal,
    partition_field,
    quote,
)
from dbt_streamsql.storage.conf import snapshot_properties

if TYPE_CHECKING:
    import agate
    from pyspark.sql import DataFrame

    from dbt_streamsql.engine import Engine
    from dbt_streamsql.runtime.publish.constraints import Constraint
    from dbt_streamsql.storage.tables.sql_functions import FunctionView

logger = AdapterLogger("StreamSQL")


class PublishError(DbtBaseException):
    """The run was built but could not be published.

    Not a DbtRuntimeError: dbt would take one here for Ctrl-C, and say so.
    """


class StreamSqlConfig(SparkConfig):
    """Model configs; those of materialized views are checked by `model_config`."""


class StreamSqlAdapter(MaintainedAdapter):
    AdapterSpecificConfigs = StreamSqlConfig
    CONSTRAINT_SUPPORT: ClassVar[dict[ConstraintType, ConstraintSupport]] = {
        ConstraintType.check: ConstraintSupport.ENFORCED,
        ConstraintType.not_null: ConstraintSupport.ENFORCED,
        ConstraintType.unique: ConstraintSupport.ENFORCED,
        ConstraintType.primary_key: ConstraintSupport.ENFORCED,
        ConstraintType.foreign_key: ConstraintSupport.NOT_ENFORCED,
    }

    def __init__(self, config: Any, mp_context: Any) -> None:
        super().__init__(config, mp_context)
        self._outcomes = Outcomes(self._needs_of)
        add_callback_to_manager(self._outcomes.heard)

    # -- the run is one barrier ----------------------------------------------------------------

    def clear_transaction(self) -> None:
        """Publish the run. dbt calls this when all nodes are done, before `on-run-end` hooks.

        So hooks read published tables, and a failure here fails the command. (A hook of our own
        would do the same, but dbt counts hooks among the results of the run.)
        """
        engine = self.host.open_epoch
        if engine is not None:
            try:
                held = self._outcomes.publish(engine, self._policy)
                if held is not None:
                    self._do_waiting(held)
            except Exception as error:  # noqa: BLE001 - raised again, in dbt's words
                logger.debug(f"Publishing failed: {trace_of(error)}")
                raise PublishError(cause_of(error)) from None
        super().clear_transaction()

    def _needs_of(self, node: str) -> Collection[str]:
        """The ids of the nodes that a node depends on; () for a node outside the project."""
        found = getattr(self.get_macro_resolver(), "nodes", {}).get(node)
        return found.depends_on_nodes if found is not None else ()

    def cleanup_connections(self) -> None:
        """The end of a command. An epoch that is still open was interrupted: it leaves nothing."""
        super().cleanup_connections()
        engine = self.host.open_epoch
        if engine is not None:
            logger.warning("Run interrupted: its staged changes are discarded")
            engine.abort()

    def cache_added(self, relation: StreamSqlRelation | None) -> str:
        """A materialization made this relation; one that is not ours creates a new version."""
        engine = self.host.open_epoch
        # dbt-spark's incremental hands over a relation without a type.
        kept = relation is None or relation.is_view or relation.is_materialized_view
        if engine is not None and relation is not None and not kept:
            with self.connections.exception_handler("touch"):
                engine.epochs.mark_written(self._name(relation).sql)
        return super().cache_added(relation)

    def execute(
        self,
        sql: str,
        auto_begin: bool = False,
        fetch: bool = False,
        limit: int | None = None,
    ) -> tuple[AdapterResponse, agate.Table]:
        """As in dbt; it reads the open epoch's version, without hidden columns."""
        with self.host.gate.shared():
            return super().execute(self._staged(sql), auto_begin, fetch, limit)

    def get_column_schema_from_query(self, sql: str) -> list[StreamSqlColumn]:
        with self.host.gate.shared():
            return super().get_column_schema_from_query(self._staged(sql))

    def _shown(self, text: str, rewritten: str) -> str:
        """What `text` was rewritten to; later errors give lines of the model in it."""
        handle = self.connections.get_thread_connection().handle
        handle.query = rewritten
        model = handle.model
        start = text.find(model.strip()) if model.strip() else -1
        if start >= 0:
            # A contract adds lines before and after the model's.
            own = rewritten.split("\n")[text[:start].count("\n") :]
            empty = model[: len(model) - len(model.lstrip())].count("\n")
            handle.query = "\n" * empty + "\n".join(own).lstrip()
        return rewritten

    # -- for our macros ------------------------------------------------------------------------

    @available.parse(lambda *a, **k: "")
    def streamsql_rewrite(self, sql: str) -> str:
        """The query over the versions of the open epoch, which stay until the model is done."""
        if self.host.open_epoch is not None:
            self.connections.get_thread_connection().handle.hold()
        return self._shown(sql, self._staged(sql))

    @available.parse(lambda *a, **k: "")
    def streamsql_visible(self, sql: str) -> str:
        """The text of a view without the hidden columns of the materialized views it reads."""
        with self.connections.exception_handler(sql):
            return self._shown(sql, self.host.engine.adapter_api.visible(sql))

    @available.parse(lambda *a, **k: None)
    def streamsql_check(self, relation: StreamSqlRelation, model: Any) -> None:
        """Refuse an invalid name, place or config before any work."""
        config = model["config"]
        handle = self.connections.get_thread_connection().handle
        handle.model = handle.query = model.get("compiled_code") or ""
        with self.connections.exception_handler(""):
            name = self._name(relation)
            handle.reads = model_config.reads_of(str(name), config, self.config.cli_vars)
            self._refuse_function(relation)
            model_config.check(str(name), own_config(model, self.config), self._roots)
            plain_table.check_grants(str(name), config)
        if config.get("catalog_name"):
            self.get_catalog_integration(config["catalog_name"])

    @available.parse(lambda *a, **k: None)
    def streamsql_reads(self, model: Any, shows: bool = False) -> None:
        """Set how this node reads, by its config; `shows`: its rows are shown to a user.

        Error: CONFIG_INVALID.
        """
        with self.connections.exception_handler(""):
            reads = model_config.reads_of(model["name"], model["config"], self.config.cli_vars)
            handle = self.connections.get_thread_connection().handle
            handle.reads, handle.shows = reads, shows
        if model["resource_type"] == "test":
            self._outcomes.tests(model["unique_id"], model["depends_on"]["nodes"])

    @available.parse(lambda *a, **k: None)
    def streamsql_check_name(self, relation: StreamSqlRelation) -> None:
        """Refuse a name that the catalog or the file system cannot store."""
        with self.connections.exception_handler(""):
            self._name(relation)

    @available.parse(lambda *a, **k: "")
    def streamsql_literal(self, value: Any) -> str:
        """A text as a Spark SQL literal, for DDL that takes no parameter markers."""
        return literal(value)

    @available.parse(lambda *a, **k: "")
    def streamsql_column(self, text: Any) -> str:
        """A column that a config names, quoted."""
        with self.connections.exception_handler(""):
            return column(str(text))

    @available.parse(lambda *a, **k: [])
    def streamsql_partition_fields(self, value: Any) -> list[str]:
        """The items of `partition_by`: columns or transforms of a column, quoted."""
        with self.connections.exception_handler(""):
            return list(map(partition_field, partition_fields(value)))

    @available.parse(lambda *a, **k: "")
    def streamsql_expression(self, text: Any, key: str) -> str:
        """A config's SQL, kept to its place."""
        with self.connections.exception_handler(""):
            return expression(text, key)

    @available.parse(lambda *a, **k: None)
    def streamsql_function(self, relation: StreamSqlRelation, model: Any) -> FunctionView:
        """How to keep the SQL function of a `function` node."""
        with self.connections.exception_handler(model["compiled_code"]):
            return self.host.engine.adapter_api.function(
                self._name(relation).sql,
                model["compiled_code"],
                parameters=model_config.parameters_of(model),
                returns=model["returns"]["data_type"],
                kind=model["config"]["type"],
                volatility=model["config"].get("volatility") or "",
            )

    @available.parse(lambda *a, **k: [])
    def streamsql_statements(self, text: str) -> list[str]:
        """The single statements of a text; semicolons in strings and comments do not split it."""
        with self.connections.exception_handler(text):
            return self.host.engine.adapter_api.statements(text)

    @available.parse(lambda *a, **k: {})
    def streamsql_table_properties(self, configured: Any) -> dict[str, str]:
        """The table properties of a new table: ours, then the model's."""
        return {**model_config.TABLE_PROPERTIES, **self.streamsql_located(configured)}

    @available.parse(lambda *a, **k: {})
    def streamsql_located(self, configured: Any) -> dict[str, Any]:
        """Properties or options with the file locations in them made absolute."""
        with self.connections.exception_handler(""):
            return model_config.located({"options": configured}, self._roots).get("options", {})

    @available.parse(lambda *a, **k: "")
    def streamsql_location(self, location_root: Any) -> str:
        """The folder of `location_root`, made absolute. Error: PATH_OUTSIDE."""
        with self.connections.exception_handler(""):
            return self._roots.locate(location_root, "location_root")

    @available.parse(lambda *a, **k: "")
    def streamsql_explained(self, relation: StreamSqlRelation, sql: str) -> str:
        """The query of a view with its explanation as a comment, for dbt's `target/run`."""
        # While another thread publishes, a definition is neither staged nor current.
        with self.host.gate.shared():
            told = self.host.engine.explain(str(self._name(relation)))
        lines = "\n".join(f"-- {line}".rstrip() for line in told.splitlines())
        return f"{sql.rstrip()}\n\n{lines}\n"

    @available.parse(lambda *a, **k: "select 1 as step")
    def streamsql_explain(self, query: Any) -> str:
        """A query whose rows show how a view, or the text of a query, is kept up to date."""
        with self.connections.exception_handler(""):
            engine = self.host.engine
            if isinstance(query, StreamSqlRelation):
                name = str(self._name(query))
                plan, last = engine.queries.explained(name), engine.queries.last_run(name)
            else:
                plan, last = engine.compile(str(query)), ""
        rows = cells(plan.operators) if plan.mode == "incremental" else []
        whole = {
            "operator": plan.headline,
            "strategy": "; ".join(filter(None, [*plan.reasons, last])),
        }
        told = [tuple(whole.get(name, "") for name in HEADINGS), *rows]
        values = ", ".join(
            f"({step}, {', '.join(literal(text) for text in row)})"
            for step, row in enumerate(told)
        )
        names = ", ".join(("step", *HEADINGS))
        return f"select * from values {values} as explained({names}) order by step"

    @available.parse(lambda *a, **k: "")
    def streamsql_changes(self, relation: StreamSqlRelation, model: Any) -> str:
        """What the config changes in an existing view; see `model_config.changes`."""
        with self.connections.exception_handler(""):
            name, config = str(self._name(relation)), own_config(model, self.config)
            if config.get("materialized") == "partial_update":
                _, wanted = partial_update.of_partial_update(name, config)
            else:
                wanted = self._view_options(name, config)
                wanted.pop("plan", None)  # what it sets is in `state_ttl` and `state`
            return model_config.changes(self.host.engine.adapter_api.configuration(name), wanted)

    @available.parse(lambda *a, **k: None)
    def streamsql_create_table(
        self,
        relation: StreamSqlRelation,
        sql: str,
        model: Any,
        config: Any,
        old_relation: StreamSqlRelation | None = None,
        documented: Any = None,
        seed: str = "",
    ) -> AdapterResponse:
        """Build a plain table from a query in place of `old_relation` (or none).

        `documented`: the columns of the model that get their comments; None means all. `seed`: the
        fingerprint of a seed.
        """
        from dbt_streamsql.runtime.publish.plain_tables import Build

        with self.connections.exception_handler(sql):
            name = self._name(relation)
            described = model if documented is None else {**model, "columns": documented}
            spec = plain_table.spec_of(name, described, config, self._roots)
            constraints = plain_table.constraints_of(name, model)
            atomic = plain_table.is_atomic(str(name), config, self.host.settings.spark_properties)

        def clear() -> None:
            if old_relation is None or old_relation.is_table:
                return
            if old_relation.is_materialized_view:
                self.host.engine.drop(self._name(old_relation).sql, keep_table=True)
            else:
                self.drop_relation(old_relation)

        query = self.streamsql_rewrite(sql)
        # In the engine's form, so that lines of its errors are found in the query.
        with self.connections.exception_handler(f"CREATE TABLE {name} AS {query}"):
            build = Build(spec, query, constraints=constraints, clear=clear)
            marked = {seeds.FINGERPRINT: seed} if seed else {}
            with self.connections.limited(), snapshot_properties(self.session, marked):
                self.host.engine.create_table_as(build, spark=self.session, atomic=atomic)
        return AdapterResponse(_message="OK")

    @available.parse(lambda *a, **k: None)
    def streamsql_flush_for(self, sql: str) -> None:
        """Publish staged data if the text reads a table that is not yet visible in its new form.

        Spark checks a view's text against visible tables. A staged table whose visible version
        has the same columns can wait for the end of the run like all others.
        """
        engine = self.host.open_epoch
        if engine is None:
            return
        names, flushed = named_in(sql), False
        with self.connections.exception_handler(sql):
            if any(self._invisible(engine, name) for name in names):
                with self.host.gate.alone():
                    if any(self._invisible(engine, name) for name in names):
                        engine.epochs.flush()
                        flushed = True
            if flushed:
                self._do_waiting()

    def _invisible(self, engine: Engine, name: TableName) -> bool:
        if not engine.adapter_api.staged(str(name)):
            return False
        session = self.session
        if not session.catalog.tableExists(name.sql):
            return True
        query = f"SELECT * FROM {name.sql}"
        return session.sql(query).schema != session.sql(engine.adapter_api.rewrite(query)).schema

    @available.parse(lambda *a, **k: "")
    def streamsql_seed_source(
        self, table: agate.Table, column_types: Any, quote_columns: bool | None = None
    ) -> str:
        """Load a seed's rows into a temporary view of this session; return its quoted name."""
        with self.connections.exception_handler("seed"):
            seeds.check_columns(table.column_names, quote_columns)
        types = self._seed_types(table, column_types)
        with self.connections.exception_handler("seed"):
            return self._named(seeds.to_frame(self.session, table, types))

    def _seed_types(self, table: agate.Table, column_types: Any) -> list[str]:
        return [
            (column_types or {}).get(name) or self.convert_type(table, position)
            for position, name in enumerate(table.column_names)
        ]

    @available.parse(lambda *a, **k: "")
    def streamsql_seed_fingerprint(
        self, relation: StreamSqlRelation, table: agate.Table, model: Any, config: Any
    ) -> str:
        """Of a seed and all that decides what its table becomes ('': the table keeps none)."""
        name = self._name(relation)
        with self.connections.exception_handler("seed"):
            seeds.check_columns(table.column_names, config.get("quote_columns"))
            spec = plain_table.spec_of(name, model, config, self._roots)
            spark = self.host.settings.spark_properties
            if spec.format != "iceberg" or not plain_table.is_atomic(str(name), config, spark):
                return ""
            settings = [
                asdict(spec),
                [asdict(each) for each in plain_table.constraints_of(name, model)],
                config.get("contract"),
                [[each["name"], each.get("data_type")] for each in model["columns"].values()],
                *(self.session.conf.get(key, None) for key in seeds.SETTINGS),
            ]
            types = self._seed_types(table, config.get("column_types"))
            return seeds.fingerprint(table, types, settings)

    @available.parse(lambda *a, **k: False)
    def streamsql_seed_is_loaded(
        self, relation: StreamSqlRelation, model: Any, config: Any, fingerprint: str
    ) -> bool:
        with self.connections.exception_handler("seed"):
            spec = plain_table.spec_of(self._name(relation), model, config, self._roots)
            return seeds.is_loaded(self.session, spec, fingerprint)

    def _named(self, rows: DataFrame) -> str:
        """A temporary view of this connection over the rows, quoted."""
        name = f"__streamsql_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(name)
        self.connections.get_thread_connection().handle.temporaries.append(name)
        return quote(name)

    @available.parse(lambda *a, **k: None)
    def streamsql_change_rows(
        self,
        relation: StreamSqlRelation,
        statements: list[str],
        model: Any,
        kept: StreamSqlRelation | None = None,
    ) -> AdapterResponse:
        """Run statements that write a table as one visible change of it.

        They name the table as it renders, and get a branch of it instead. The model's constraints
        are verified before the change is visible. `kept` is a temporary view that several of the
        statements read: it is computed once.
        """
        from dbt_streamsql.runtime.publish import constraints

        with self.connections.exception_handler("\n".join(statements)):
            name = self._name(relation)
            promised = plain_table.constraints_of(name, model)
            if kept is not None:
                self.session.sql(f"CACHE TABLE {kept}")
            try:
                with self._branch_of(name, statements, promised) as target:
                    for statement in statements:
                        response, _ = self.execute(statement.replace(relation.render(), target))
                    constraints.verify(self.session, target, promised, str(name))
            finally:
                if kept is not None:
                    self.session.sql(f"UNCACHE TABLE IF EXISTS {kept}")
        return response

    def _branch_of(
        self, name: TableName, statements: list[str], promised: tuple[Constraint, ...]
    ) -> AbstractContextManager[str]:
        from dbt_streamsql.storage.iceberg.commits import branch_write

        # A single statement without constraints is one change in every format.
        if len(statements) > 1 or promised or branch_write.possible(self.session, name):
            return branch_write.branch(self.session, name)
        return nullcontext(name.sql)

    def valid_incremental_strategies(self) -> list[str]:
        return ["append", "delete+insert", "insert_overwrite", "merge", "microbatch"]

    @available.parse(lambda *a, **k: "")
    def streamsql_run_python(self, code: str) -> str:
        """Run a Python model; return the quoted name of a temporary view of its result."""
        session = self.session

        def load(name: str) -> DataFrame:
            return session.sql(self.streamsql_rewrite(f"SELECT * FROM {name}"))

        handle = self.connections.get_thread_connection().handle
        handle.beside = frozenset(map(str, named_in(code)))
        with self.connections.exception_handler("python model"):
            return self._named(python_models.run(code, session, load))

    # -- dbt debug -----------------------------------------------------------------------------

    def debug_query(self) -> None:
        """Test each part in turn: Java, jars, session, catalog, MetaService."""
        from dbt.events.types import DebugCmdOut
        from dbt_common.events.functions import fire_event

        with self.connections.exception_handler("debug"):
            for line in debug.run(self.host):
                fire_event(DebugCmdOut(msg=f"  {line}"))

    @classmethod
    def _get_adapter_specific_run_info(cls, config: RelationConfig) -> dict[str, Any]:
        return {"adapter_type": "streamsql", "table_format": "iceberg"}
