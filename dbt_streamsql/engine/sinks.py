"""The sinks of an engine: what is delivered to outside systems. Epochs deliver to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dbt_streamsql.compiler.sink_query import table_of
from dbt_streamsql.engine.definitions import Definitions
from dbt_streamsql.engine.epochs import EpochControl
from dbt_streamsql.engine.reads.user_sql import expanded_to_store
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import Sink
from dbt_streamsql.meta.model.stored_definition import StoredSink
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.core.epoch_state import Warehouse
from dbt_streamsql.runtime.core.storage_errors import translate_storage_errors
from dbt_streamsql.runtime.deliver.deliver import Delivered


class SinkManager:
    """Defines and drops sinks."""

    def __init__(
        self, warehouse: Warehouse, definitions: Definitions, epochs: EpochControl
    ) -> None:
        self._warehouse = warehouse
        self._definitions = definitions
        self._epochs = epochs

    @translate_storage_errors
    def create(
        self,
        name: str,
        sql: str,
        *,
        target: Mapping[str, Any],
        connection: str = "",
        key: Sequence[str] = (),
        mode: str = "",
        unique_id: str = "",
        full_refresh: bool = False,
    ) -> Delivered:
        """Create or redefine a sink: a query over one maintained table whose changes are delivered
        to an outside system; and deliver to it.

        `sql` selects, computes and filters over that one table. `target` is the destination
        (`connector`, `format`, `options`; see docs/sink.md), `connection` names options that the
        engine was opened with; `key`: the columns by which rows are upserted and deleted there.
        `full_refresh` delivers the whole table again, replacing what the target has.

        Joins the open epoch (see `begin`), otherwise it is its own epoch: published data is
        delivered when the epoch ends.
        Errors: CONFIG_INVALID, SQL_UNSUPPORTED, DEFINITION_MISSING, DUPLICATE_WRITER, SINK_KEY,
        SINK_LOST, SINK_REFUSED, SINK_UNREACHABLE.
        """
        at = str(TableName.parse(name, self._warehouse.catalog).checked())
        sql = expanded_to_store(self._warehouse.sessions.main, sql)
        read = table_of(sql, unique_id or at, self._warehouse.catalog)
        options = StoredSink(target, connection, tuple(key), mode)
        own = self._epochs.opened is None
        with self._epochs.joined() as epoch:
            job = epoch.state.jobs.get(read)
            place = Place(unique_id or at)
            if job is None:
                raise StreamSqlError(
                    "DEFINITION_MISSING",
                    "a sink can read only a table that this warehouse maintains",
                    given=read,
                    allowed="a materialized view or a streaming table",
                    hint="create a materialized view over it, and read that view in the sink",
                    place=place,
                )
            if at in epoch.state.jobs:
                raise StreamSqlError(
                    "DUPLICATE_WRITER",
                    f"{at} is a table that this warehouse maintains",
                    hint="give the sink a different name, or drop the table first",
                    place=place,
                )
            current = self._sink(at)
            sink = self._definitions.define_sink(
                current,
                job,
                Sink(at, read, unique_id, sql, options.as_config()),
                self._warehouse.connections,
                full_refresh=full_refresh,
            )
            epoch.define_sink(sink, current)
        done = epoch.delivered.get(at) if own else None
        if done is not None and done.error is not None:
            raise done.error
        known = self._sink(at)
        barrier = known.delivered if known is not None else 0
        return done or Delivered(at, target.get("connector", ""), barrier)

    @translate_storage_errors
    def drop(self, name: str) -> None:
        """Stop delivering to a sink; the target keeps its data. DEFINITION_MISSING when there is
        no such sink."""
        at = str(TableName.parse(name, self._warehouse.catalog))
        if self._sink(at) is None:
            raise StreamSqlError(
                "DEFINITION_MISSING",
                f"{at} is not a sink",
                allowed=", ".join(sink.name for sink in self.all()) or "there are no sinks",
            )
        with self._epochs.writing() as fence:
            self._warehouse.store.drop_sink(fence, at)

    def all(self) -> list[Sink]:
        """All sinks, by name, with their delivery progress."""
        return self._warehouse.store.sinks()

    def _sink(self, name: str) -> Sink | None:
        return next((sink for sink in self.all() if sink.name == name), None)
