"""The tables that the engine maintains: materialized views and streaming tables, in one epoch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.base import available
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.exceptions import DbtRuntimeError

from dbt_streamsql.adapter import plan_files
from dbt_streamsql.adapter.common.error_messages import listed
from dbt_streamsql.adapter.common.relation import StreamSqlRelation
from dbt_streamsql.adapter.config import (
    declared_keys,
    model_config,
    partial_update,
    plain_table,
    sink,
    streaming_table,
)
from dbt_streamsql.adapter.config.folder_config import own_config
from dbt_streamsql.adapter.profile.credentials import DEFAULT_WAREHOUSE
from dbt_streamsql.adapter.run_operations import OperationsAdapter
from dbt_streamsql.adapter.run_results import check_policy
from dbt_streamsql.adapter.session.connections import named_by, reads_rows
from dbt_streamsql.adapter.session.host import project_root
from dbt_streamsql.adapter.waiting import WaitingList
from dbt_streamsql.compiler.parsing.names import written_by
from dbt_streamsql.errors import Place, StreamSqlError

if TYPE_CHECKING:
    from dbt_streamsql.engine import Engine, TableReport

logger = AdapterLogger("StreamSQL")


class MaintainedAdapter(OperationsAdapter):
    """The adapter's methods for the models that are part of the run's barrier."""

    def __init__(self, config: Any, mp_context: Any) -> None:
        super().__init__(config, mp_context)
        self._beginning = threading.Lock()
        self._planned: Any = None
        self._waiting = WaitingList()

    @available.parse(lambda *_, **__: None)
    def streamsql_materialize(
        self,
        relation: StreamSqlRelation,
        sql: str,
        model: Any,
        nodes: list[Mapping[str, Any]],
        full_refresh: bool = False,
        old_relation: StreamSqlRelation | None = None,
        keep: bool = False,
    ) -> AdapterResponse:
        """Bring one materialized view up to date in this run's epoch; opens the epoch if needed.

        `nodes`: what the model reads, as nodes of dbt's graph, whose declared keys are relied on.
        `keep`: with the view's current configuration, whatever the model's config says.

        Returns what `run_results.json` and dbt's log line show.
        """
        with self.connections.exception_handler(sql):
            config = own_config(model, self.config)
            name = self._maintained(relation, config)
            options = self._view_options(name, config)
            keys = declared_keys.keys_of(name, nodes)
            if keep:
                options = self.host.engine.adapter_api.configuration(name) or options

        def create(engine: Engine) -> TableReport:
            return engine.create_materialized_view(
                name,
                sql,
                unique_id=model["unique_id"],
                full_refresh=full_refresh,
                keys=keys,
                **options,
            )

        return self._in_epoch(create, old_relation, replaces=True)

    @available.parse(lambda *_, **__: None)
    def streamsql_partial_update(
        self,
        relation: StreamSqlRelation,
        sql: str,
        model: Any,
        nodes: list[Mapping[str, Any]],
        full_refresh: bool = False,
        old_relation: StreamSqlRelation | None = None,
        keep: bool = False,
    ) -> AdapterResponse:
        """Bring one wide table up to date in this run's epoch, as `streamsql_materialize` does.

        `sql` are the INSERT statements of its branches, `nodes` the project's, from dbt's graph.
        """
        with self.connections.exception_handler(sql):
            config = own_config(model, self.config)
            name = self._maintained(relation, config)
            rules, options = partial_update.of_partial_update(name, config)
            partial_update.check_sinks(model, nodes)
            if keep:
                options = self.host.engine.adapter_api.configuration(name) or options

        def create(engine: Engine) -> TableReport:
            return engine.create_partial_update(
                name,
                branches=sql,
                unique_id=model["unique_id"],
                full_refresh=full_refresh,
                **rules,
                **options,
            )

        return self._in_epoch(create, old_relation)

    @available.parse(lambda *_, **__: "")
    def streamsql_branch(
        self,
        this: StreamSqlRelation,
        relation: StreamSqlRelation,
        nodes: list[Mapping[str, Any]],
        key: str | list[str] | None,
        columns: str | list[str] | None,
        own_key: str | list[str] | None,
    ) -> str:
        """The statement that writes a model's columns of a wide table; see `branch()`."""
        keys = model_config.names_of(key)
        own = model_config.names_of(own_key)
        node = partial_update.node_of(relation, nodes)
        told = columns or ((node or {}).get("config") or {}).get("columns")
        names = model_config.names_of(told)
        if not names:
            found = [column.name for column in self.get_columns_in_relation(relation)]
            names = [name for name in found if name not in (own or keys)]
        return partial_update.branch_statement(this, relation, names, keys, own)

    @available.parse(lambda *_, **__: None)
    def streamsql_stream(
        self,
        relation: StreamSqlRelation,
        sql: str,
        model: Any,
        sources: list[Mapping[str, Any]],
        full_refresh: bool = False,
        old_relation: StreamSqlRelation | None = None,
    ) -> AdapterResponse:
        """Read what is new in the stream of a streaming table, in this run's epoch.

        `sql` is the code of a python model. `sources`: the sources of the project that the model
        reads, as nodes of dbt's graph.
        """
        with self.connections.exception_handler(sql):
            config = own_config(model, self.config)
            name = self._maintained(relation, config)
            options = streaming_table.of_streaming_table(
                name, config, model.get("unrendered_config") or {}
            )
            root = project_root(self.config)
            if model["language"] == "python":
                warehouse = self.config.credentials.settings(root).warehouse
                stream = streaming_table.of_python(
                    name, sql, warehouse or str(root / DEFAULT_WAREHOUSE)
                )
                query = f"SELECT * FROM {stream['stream']}"
            else:
                stream, query = streaming_table.stream_of(name, sources, root), sql

        def create(engine: Engine) -> TableReport:
            return engine.create_streaming_table(
                name,
                query,
                unique_id=model["unique_id"],
                full_refresh=full_refresh,
                **stream,
                **options,
            )

        return self._in_epoch(create, old_relation)

    @available.parse(lambda *_, **__: None)
    def streamsql_sink(
        self,
        relation: StreamSqlRelation,
        sql: str,
        model: Any,
        full_refresh: bool = False,
        old_relation: StreamSqlRelation | None = None,
    ) -> AdapterResponse:
        """Define a sink in this run's epoch, whose end delivers to it; what is already published
        of its table is delivered now."""
        with self.connections.exception_handler(sql):
            config = own_config(model, self.config)
            name = self._maintained(relation, config)
            if old_relation is not None:
                raise StreamSqlError(
                    "TABLE_EXISTS",
                    "a sink has no table, but a table with its name exists",
                    given=old_relation.render(),
                    hint="drop the table, or give the sink a different `alias`",
                    place=Place(name),
                )
            options = sink.of_sink(name, config, project_root(self.config))
        engine = self._begun()
        with self.connections.exception_handler(""):
            with self.host.gate.shared():
                done = engine.create_sink(
                    name, sql, unique_id=model["unique_id"], full_refresh=full_refresh, **options
                )
            if self._policy == "model":
                with self.host.gate.alone():
                    engine.epochs.flush()
        return sink.response_of(done)

    @available.parse(lambda *_, **__: False)
    def streamsql_waits(self, this: StreamSqlRelation, statement: str) -> bool:
        """Whether a hook's statement has to wait until the run is published, and then does.

        It reads no rows, so no version can be put into it, and names a table that the run has
        staged. Error: DUPLICATE_WRITER when it writes rows of a maintained table.
        """
        engine = self.host.open_epoch
        if engine is None:
            return False
        if reads_rows(statement):
            with self.connections.exception_handler(statement):
                self._refuse_writing(statement, engine)
            return False
        names = named_by(statement, engine.catalog)
        with self.host.gate.shared():
            waits = any(engine.adapter_api.staged(name.sql) for name in names)
        if waits:
            self._wait(this, statement, lambda: self.execute(statement))
        return waits

    @available.parse(lambda *_, **__: None)
    def streamsql_when_published(self, this: StreamSqlRelation, statement: str) -> None:
        """Run a hook's statement as soon as what its model has made is published."""
        if self.host.open_epoch is None or self._policy == "model":
            self.execute(statement)
        else:
            self._wait(this, statement, lambda: self.execute(statement))

    @available.parse(lambda *_, **__: None)
    def streamsql_document(self, relation: StreamSqlRelation, model: Any) -> None:
        """Set a maintained table's comments of `persist_docs` when its version is published.

        Error: CONFIG_INVALID.
        """
        name = self._name(relation)
        with self.connections.exception_handler(""):
            comment, columns = plain_table.comments_of(str(name), model)
        if comment is None and not columns:
            return

        def document() -> None:
            with self.connections.exception_handler(""):
                missing = self.host.engine.adapter_api.keep_comments(name.sql, comment, columns)
            if missing:
                logger.warning(f"{name} lacks columns that have comments: {', '.join(missing)}")

        engine = self.host.open_epoch
        if engine is None or self._policy == "model" or not engine.adapter_api.staged(name.sql):
            document()
        else:
            self._wait(relation, f"the comments of {name}", document)

    def _wait(self, of: StreamSqlRelation, what: str, do: Callable[[], object]) -> None:
        self._waiting.add(str(self._name(of)), what, do)

    def _refuse_writing(self, statement: str, engine: Engine) -> None:
        for name in written_by(statement, engine.catalog):
            found = self.get_relation(name.catalog, name.schema, name.table)
            kept = found is not None and found.is_materialized_view
            if kept or engine.adapter_api.staged(name.sql):
                raise StreamSqlError(
                    "DUPLICATE_WRITER",
                    "a hook writes to a table that the engine maintains",
                    given=str(name),
                    hint="change the rows in the model's query instead",
                )

    def _do_waiting(self, held: Collection[str] = ()) -> None:
        """Do all that was waiting. Error: HOOK_FAILED, listing what failed."""
        failed = []
        for each in self._waiting.take(held):
            try:
                each.do()
            except DbtRuntimeError as error:
                failed.append(f"{each.model}: {error.msg}\n{each.what}")
        if failed:
            raise StreamSqlError(
                "HOOK_FAILED",
                "the run was published, but hooks that run after publishing failed",
                given=listed(failed),
                hint="run these statements by hand, or correct the hooks and run the models again",
            )

    def _view_options(self, name: str, config: Any) -> dict[str, Any]:
        """A materialized view's options from its config, with the plan file that it names."""
        options = model_config.of_materialized_view(name, config)
        return plan_files.with_plan(options, name, config, self._roots, lambda: self.host.spark)

    def cleanup_connections(self) -> None:
        """The end of a command; for `dbt compile`, it writes the plan files of its views."""
        nodes = getattr(self.get_macro_resolver(), "nodes", None)
        # dbt calls this more than once.
        if nodes and nodes is not self._planned and plan_files.is_compiling():
            self._planned = nodes

            def options_of(node: Any) -> tuple[str, dict[str, Any]]:
                name = str(self._name(self.Relation.create_from(self.config, node)))
                return name, self._view_options(name, own_config(node.to_dict(), self.config))

            target = Path(self.config.project_target_path)
            plan_files.write_plans(
                self.host.engine, nodes.values(), target, options_of, self.config.threads
            )
        super().cleanup_connections()

    def _maintained(self, relation: StreamSqlRelation, config: Any) -> str:
        """The name of the table. Errors: CONFIG_INVALID, DUPLICATE_WRITER, GRANTS_UNSUPPORTED."""
        name, kind = str(self._name(relation)), str(config["materialized"]).replace("_", " ")
        self._refuse_function(relation)
        plain_table.check_grants(name, config)
        if relation.database != self.config.credentials.database:
            raise StreamSqlError(
                "CONFIG_INVALID",
                f"a {kind} must be in the profile's catalog",
                given=f"catalog {relation.database}",
                allowed=self.config.credentials.database,
                hint="remove `catalog_name` or `database`; its inputs may be in any catalog",
                place=Place(name),
            )
        return name

    def _in_epoch(
        self,
        create: Callable[[Engine], TableReport],
        old_relation: StreamSqlRelation | None,
        *,
        replaces: bool = False,
    ) -> AdapterResponse:
        """`replaces`: an Iceberg table of that name stays until the new one is published."""
        engine = self.host.engine
        # The engine runs its own statements: lines of this one would mislead.
        with self.connections.exception_handler(""):
            at_once = self._policy == "model"
            self._begun()
            with self.host.gate.shared():
                if old_relation is not None and not old_relation.is_materialized_view:
                    if replaces and engine.epochs.take_over(self._name(old_relation).sql):
                        self.cache_dropped(old_relation)
                    else:
                        self.drop_relation(old_relation)
                report = create(engine)
            if at_once:
                with self.host.gate.alone():
                    engine.epochs.flush()
        return model_config.response_of(report)

    def _begun(self) -> Engine:
        """The engine, with this run's epoch open."""
        engine = self.host.engine
        with self.connections.exception_handler(""), self._beginning:
            if not engine.epochs.is_open:
                engine.begin()
        return engine

    @property
    def _policy(self) -> str:
        """When this run is published. Error: CONFIG_INVALID."""
        chosen = self.config.cli_vars.get("publish", self.config.credentials.publish)
        return check_policy(chosen)

    def _refuse_function(self, relation: StreamSqlRelation) -> None:
        name = self._name(relation)
        found = self.get_relation(name.catalog, name.schema, name.table)
        if found is not None and found.is_function:
            raise StreamSqlError(
                "DUPLICATE_WRITER",
                "a function in the project has the same name as this model",
                given=relation.render(),
                hint="set a different `alias` for one of them",
            )
