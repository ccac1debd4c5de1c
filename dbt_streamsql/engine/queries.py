"""Questions to a warehouse: queries, plans, changes, and whether views are correct."""

from __future__ import annotations

from pyspark.sql import DataFrame, Row

from dbt_streamsql.compiler.state import ttl_oracle
from dbt_streamsql.engine.reads.consistent_reads import ConsistentReads, Reader
from dbt_streamsql.engine.reads.current import CurrentEpoch
from dbt_streamsql.engine.state_tables import StateTables
from dbt_streamsql.meta.inspect.wait import wait_for
from dbt_streamsql.meta.model.stored_definition import plan_of
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.changelog import changelog_query
from dbt_streamsql.runtime.core import cost
from dbt_streamsql.runtime.core.epoch_state import Warehouse, registered
from dbt_streamsql.runtime.reads import verification


class Queries:
    """Read-only. Plans are those of the open epoch, rows are published ones."""

    def __init__(
        self,
        warehouse: Warehouse,
        current: CurrentEpoch,
        reads: ConsistentReads,
        states: StateTables,
    ) -> None:
        self._warehouse = warehouse
        self._current = current
        self._reads = reads
        self._states = states

    def sql(
        self,
        text: str,
        consistency: str | None = None,
        barrier: int | None = None,
        max_staleness: float | None = None,
    ) -> DataFrame:
        """A query over one consistent cut of the views and of the tables that they read.

        `consistency` (default: the engine's): read_uncommitted, read_committed, repeatable_read;
        `barrier`: none newer than that one; `max_staleness`: maximum age in seconds of the oldest
        change that is not in the cut. Versions read at repeatable_read are held until `close`.
        Errors: CONFIG_INVALID, CONSISTENCY_UNAVAILABLE, META_CONFLICT.
        """
        return self._warehouse.sessions.main.sql(
            self._reads.at(text, consistency, barrier, max_staleness)
        )

    def reader(self, consistency: str = "repeatable_read", barrier: int | None = None) -> Reader:
        """A reader whose queries all see one committed barrier until it is closed.

        `barrier`: that barrier instead of the newest. Errors: CONFIG_INVALID, META_CONFLICT.
        """
        return self._reads.reader(consistency, barrier)

    def wait_for(self, barrier: int, seconds: float | None = None) -> int:
        """Wait until that barrier, or a later one, is committed; returns its number.

        Error: CONSISTENCY_UNAVAILABLE when it is not within `seconds` (None: forever).
        """
        return wait_for(self._warehouse.store, barrier, seconds)

    def lag(self, name: str) -> float:
        """The age in seconds of the oldest change, in the tables and streams that a table comes
        from, that is not in the table. 0 when it is up to date.

        Errors: DEFINITION_MISSING, STREAM_LOST, STREAM_UNREACHABLE.
        """
        table = TableName.parse(name, self._warehouse.catalog)
        registered(self._warehouse.store.jobs(), str(table))
        return self._reads.lag(table)

    def changelog(
        self, name: str, from_barrier: int, to_barrier: int | None = None, mode: str = "retract"
    ) -> DataFrame:
        """The changes of a view after one committed barrier (0: before the first) up to another.

        Columns: the view's, `_barrier` and `_op`. `mode`: retract (`-` old rows, `+` new ones),
        upsert (by key: `+` new, `*` changed, `-` gone, with its key alone), append (`+` only).
        Errors: DEFINITION_MISSING, CONFIG_INVALID, CHANGELOG_UNAVAILABLE, CHANGELOG_MODE.
        """
        view = TableName.parse(name, self._warehouse.catalog)
        text = changelog_query.query(self._warehouse, view, from_barrier, to_barrier, mode)
        return self._warehouse.sessions.main.sql(text)

    def verify(self, name: str) -> list[Row]:
        """The rows where a view differs from its query at the same barrier: [] when it is correct.

        Each row has a column `_side`: `missing` from the view or `surplus` in it. Floating point
        columns may differ in their last bits, as they do when the query itself is run twice.
        A view with expired state (`state_ttl`) is compared with the result that its last barrier
        should have computed from the rows that it remembers.
        Errors: DEFINITION_MISSING, NOT_A_VIEW, STATE_FORGOTTEN (the result is no longer known).
        """
        table = TableName.parse(name, self._warehouse.catalog)
        return verification.differing(
            self._warehouse, table, self._reads.rewritten, ttl_oracle.difference
        )

    def knows(self, name: str) -> bool:
        """Whether this is a registered materialized view."""
        return str(TableName.parse(name, self._warehouse.catalog)) in self._warehouse.store.jobs()

    def views(self) -> frozenset[str]:
        """The names of all registered views and streaming tables."""
        return frozenset(self._warehouse.store.jobs())

    def readers(self, name: str) -> list[str]:
        """The views and sinks that read a table directly, by name."""
        table, store = str(TableName.parse(name, self._warehouse.catalog)), self._warehouse.store
        sinks = [sink.name for sink in store.sinks() if sink.table == table]
        return sorted([*store.readers(table), *sinks])

    def plan(self, name: str) -> CompiledPlan:
        """The plan of a registered view."""
        table = str(TableName.parse(name, self._warehouse.catalog))
        return plan_of(registered(self._current.jobs(), table))

    def explain(self, name: str) -> str:
        """How a registered view is maintained, with its program, and the cost of its last run."""
        return "\n".join(filter(None, [self.explained(name).explain(), self.last_run(name)]))

    def explained(self, name: str) -> CompiledPlan:
        """The plan of a registered view, whose operators say why they are stored or not."""
        table = str(TableName.parse(name, self._warehouse.catalog))
        job = registered(self._current.jobs(), table)
        return self._states.explained(job, plan_of(job))

    def last_run(self, name: str) -> str:
        """The seconds that the last published run of a view took, and those that each strategy was
        expected to take ('' before the first)."""
        version = self._warehouse.store.latest(str(TableName.parse(name, self._warehouse.catalog)))
        return cost.last_run(version) if version is not None else ""
