"""Deliver what is published to outside systems, never what is only staged.

The target of a sink holds, at the barrier up to which it was delivered, what the sink's query
gives over its table at that barrier. A delivery sends what has changed since, according to the
published versions. Where the target cannot keep its progress, MetaService learns of a delivery
before it is made: after a crash in between, the very same one is repeated, and only then the next.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from dbt_streamsql.connectors.sinks.registry import open_target
from dbt_streamsql.connectors.sinks.target import (
    BAD_KEY,
    LOST_ROW,
    Batch,
    Delivery,
    Layout,
    Mark,
    Target,
)
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import Fence, Job, Sink, TableVersion
from dbt_streamsql.meta.model.stored_definition import known_plan, stored_sink
from dbt_streamsql.runtime.core.epoch_state import Warehouse, log
from dbt_streamsql.runtime.core.failpoints import failpoint
from dbt_streamsql.runtime.deliver.sink_rows import DoubleKeyError, SinkRows, readable
from dbt_streamsql.runtime.refresh.full_query import Rewrite
from dbt_streamsql.runtime.spark.scratch import Scratch
from dbt_streamsql.storage.conf import over_few_rows
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.inputs import inputs

PARALLEL = 4
"""Sinks that are delivered to in parallel."""

_KEYED = ("fold", "replace", "upsert")
"""Strategies of tables that have at most one row of each key."""


@dataclass(frozen=True)
class Delivered:
    """The result for one sink. `barrier`: up to which its target has the changes. `whole`: all
    rows were delivered. `error`: the cause, if it failed. `seconds` is wall time."""

    sink: str
    target: str
    barrier: int
    deliveries: int = 0
    whole: bool = False
    seconds: float = 0.0
    error: Exception | None = None


def opened(sink: Sink, connections: Mapping[str, Mapping[str, str]]) -> Target:
    """The target of a sink, with the options of its connection. Error: CONFIG_INVALID."""
    place = Place(sink.unique_id or sink.name)
    wanted = stored_sink(sink)
    connection = wanted.connection
    if connection and connection not in connections:
        raise StreamSqlError(
            "CONFIG_INVALID",
            f"the profile has no connection {connection!r}",
            given=f"connection: {connection}",
            allowed=", ".join(sorted(connections)) or "`connections` is empty",
            place=place,
        )
    options = {**connections.get(connection, {}), **(wanted.target.get("options") or {})}
    return open_target({**wanted.target, "options": options}, wanted.mode, wanted.key, place)


def fingerprint(sink: Sink, target: Target) -> str:
    """Changes when the target would have to hold different records."""
    parts = [sink.table, sink.sql, sink.columns, list(stored_sink(sink).key), target.identity]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def same(known: Sink | None, sink: Sink) -> bool:
    """Whether that definition is known; progress does not matter, unless it is to be
    redelivered."""
    if known is None or (sink.replaces and not known.replaces):
        return False
    parts = ("table", "unique_id", "sql", "config", "columns", "fingerprint")
    return all(getattr(known, part) == getattr(sink, part) for part in parts)


def register(warehouse: Warehouse, fence: Fence, sinks: Iterable[Sink]) -> None:
    """Make the definitions of a published epoch take effect."""
    for sink in sinks:
        with failpoint("sink.register"):
            warehouse.store.put_sink(fence, sink)


def deliver_all(
    warehouse: Warehouse, fence: Fence, rewrite: Rewrite, leave_out: Collection[str] = ()
) -> dict[str, Delivered]:
    """Deliver to every sink what is published and not there yet; returns the results by sink.

    Sinks without anything to do are left out. A target that fails is a warning: the barrier
    stands, and the next epoch tries again.
    """
    store = warehouse.store
    sinks = [sink for sink in store.sinks() if sink.name not in leave_out]
    if not sinks:
        return {}
    jobs, latest = store.jobs(), store.latest_all()

    def run(sink: Sink) -> Delivered | None:
        return _Sinking(warehouse, fence, rewrite, sink, jobs, latest).run()

    if len(sinks) == 1:
        done = [run(sinks[0])]
    else:
        # Each mostly waits for its own system.
        with warehouse.workers(PARALLEL, "streamsql-sink") as pool:
            done = list(pool.map(run, sinks))
    return {each.sink: each for each in done if each is not None}


class InBackground:
    """`deliver_all` in a thread of its own, begun by an epoch that computes meanwhile.

    It writes by the right of that epoch, which waits for it before it ends.
    """

    def __init__(
        self, warehouse: Warehouse, fence: Fence, rewrite: Rewrite, leave_out: Collection[str]
    ) -> None:
        self._ends = ExitStack()
        pool = self._ends.enter_context(warehouse.workers(1, "streamsql-deliver"))
        self._results = pool.map(
            lambda without: deliver_all(warehouse, fence, rewrite, without), [leave_out]
        )

    def wait(self) -> None:
        """Until every delivery was made or has failed."""
        self._ends.close()

    def results(self) -> dict[str, Delivered]:
        """The results by sink; waits for them. Raises what `deliver_all` raised."""
        self.wait()
        (delivered,) = self._results
        return delivered


def deliver(warehouse: Warehouse, fence: Fence, rewrite: Rewrite, sink: Sink) -> None:
    """Deliver to one sink what is published; raises what `deliver_all` only reports."""
    store = warehouse.store
    done = _Sinking(warehouse, fence, rewrite, sink, store.jobs(), store.latest_all()).run()
    if done is not None and done.error is not None:
        raise done.error


def check(warehouse: Warehouse, sink: Sink) -> None:
    """Whether the target can be delivered to. Errors: SINK_UNREACHABLE, SINK_REFUSED."""
    first = not (sink.delivered or sink.under_way or sink.replaces)
    target = opened(sink, warehouse.connections)
    target.check(warehouse.sessions.main, layout_of(warehouse, sink), first=first)


def layout_of(warehouse: Warehouse, sink: Sink) -> Layout:
    columns = tuple((column["name"], column["type"]) for column in sink.columns)
    key = stored_sink(sink).key
    return Layout(sink.name, warehouse.store_id, columns, key, sink.fingerprint)


class _Sinking:
    """One sink, brought to the newest version of its table."""

    def __init__(
        self,
        warehouse: Warehouse,
        fence: Fence,
        rewrite: Rewrite,
        sink: Sink,
        jobs: Mapping[str, Job],
        latest: Mapping[str, TableVersion],
    ) -> None:
        self._warehouse = warehouse
        self._clock = warehouse.clock
        self._store = warehouse.store
        self._fence = fence
        self._rewrite = rewrite
        self._sink = sink
        self._job = jobs.get(sink.table)
        self._newest = latest.get(sink.table)
        self._target = ""
        self._deliveries = 0
        self._whole = False

    def run(self) -> Delivered | None:
        """None when there was nothing to do."""
        started = self._clock.monotonic()
        if self._newest is None and self._sink.delivered == 0:
            return None  # the first run of its table has yet to be published
        error: Exception | None = None
        try:
            if self._job is None or self._newest is None:
                raise StreamSqlError(
                    "TABLE_MISSING",
                    f"{self._sink.table} is no longer maintained",
                    hint="restore the table, or drop this sink with `streamsql sinks --drop`",
                    place=self._place,
                )
            if not self._due:
                return None
            while self._due:
                self._deliver(self._job)
        except Exception as caught:
            error = self._told(caught)
            if isinstance(caught, StreamSqlError) and caught.code.startswith("META_"):
                raise
            self._failed(error)
        seconds = self._clock.monotonic() - started
        done = (self._sink.delivered, self._deliveries, self._whole, seconds, error)
        return Delivered(self._sink.name, self._target, *done)

    @property
    def _due(self) -> bool:
        assert self._newest is not None
        return bool(self._sink.under_way) or self._sink.delivered < self._newest.barrier

    @property
    def _place(self) -> Place:
        return Place(self._sink.unique_id or self._sink.name)

    # -- one delivery ------------------------------------------------------------------------

    def _deliver(self, job: Job) -> None:
        target = opened(self._sink, self._warehouse.connections)
        self._target = target.name
        spark = self._warehouse.sessions.main
        layout = layout_of(self._warehouse, self._sink)
        upto = self._upto()
        first = not (self._sink.delivered or self._sink.under_way or self._sink.replaces)
        if first and not target.keeps_mark:
            target.check(spark, layout, first=True)
        if not target.keeps_mark and self._sink.under_way != upto.barrier:
            with failpoint("sink.record"):
                self._put(replace(self._sink, under_way=upto.barrier))
        begun = target.begin(spark, layout, replaces=self._sink.replaces)
        with begun as delivery, ExitStack() as ends:
            # A runner that has lost its lock unnoticed must not undo what its successor delivers.
            self._store.newest_barrier(self._fence)
            mark = self._sure(delivery.mark if target.keeps_mark else self._mark)
            if mark is None or mark.barrier < upto.barrier:
                self._write(ends, delivery, target, job, mark, upto)
        with failpoint("sink.delivered"):
            self._put(
                replace(
                    self._sink,
                    delivered=upto.barrier,
                    under_way=0,
                    replaces=False,
                    delivered_at=self._clock.time(),
                    failing_since=None,
                    problem="",
                )
            )
        self._deliveries += 1

    def _write(
        self,
        ends: ExitStack,
        delivery: Delivery,
        target: Target,
        job: Job,
        mark: Mark | None,
        upto: TableVersion,
    ) -> None:
        session = ends.enter_context(self._warehouse.sessions.use())
        local = Scratch(session, self._warehouse.tuning.fetched_bytes)
        ends.callback(local.close)
        options = stored_sink(self._sink)
        sure = is_sure(job, options.key, options.plain)
        meta, old = None, self._since(mark)
        if old is not None:
            meta = readable(self._warehouse, job, old)
        few = meta is not None and old is not None and self._are_few(meta, old, upto)
        ends.enter_context(over_few_rows(session, few))
        rows = SinkRows(session, local, self._rewrite, self._sink, job, sure, few)
        whole = meta is None or old is None
        if whole and mark is not None and not target.compares:
            raise self._lost(mark)
        if meta is not None and old is not None:
            frame = rows.changed(meta, old, upto, keyed=target.is_keyed)
        else:
            frame = rows.whole(upto, keyed=target.is_keyed)
        if frame is not None:
            ended = self._ended(upto.barrier)
            batch = Batch(frame, whole, self._sink.table, upto.barrier, ended, few)
            with failpoint("sink.write"):
                delivery.write(batch)
            self._whole = self._whole or whole
        with failpoint("sink.publish"):
            delivery.publish(upto.barrier)

    def _are_few(self, meta: Metadata, old: TableVersion, new: TableVersion) -> bool:
        """Whether the rows that have changed may come to the driver."""
        move, tuning = inputs.classify(meta, old.snapshot, new.snapshot), self._warehouse.tuning
        each = meta.live_bytes(new.snapshot) / max(1, meta.live_rows(new.snapshot))
        return move.rows <= tuning.driver_rows and move.rows * each <= tuning.driver_bytes

    def _sure(self, mark: Mark | None) -> Mark | None:
        """The mark, if the target has what this sink would have delivered up to there."""
        if mark is None or self._sink.replaces or mark.fingerprint != self._sink.fingerprint:
            return None
        # The store was set back, as by a backup, when the target is ahead of it.
        return mark if mark.barrier <= self._store.last_committed() else None

    def _upto(self) -> TableVersion:
        """The version to deliver: that of a delivery under way, else the newest."""
        assert self._newest is not None
        asked = self._sink.under_way
        if not asked or asked == self._newest.barrier:
            return self._newest
        found = self._in_force(asked)
        if found is None or found.snapshot is None:
            raise self._lost(Mark(asked, ""))
        return replace(found, barrier=asked)

    @property
    def _mark(self) -> Mark | None:
        known = self._sink.delivered
        return Mark(known, self._sink.fingerprint) if known else None

    def _since(self, mark: Mark | None) -> TableVersion | None:
        """The version that the target has; None when that is not known, or no longer."""
        return self._in_force(mark.barrier) if mark is not None else None

    def _in_force(self, barrier: int) -> TableVersion | None:
        """The version of the table at a barrier; None when it is forgotten, or of a table that
        was dropped since."""
        found = None
        for version in self._store.history(self._sink.table, barrier):
            found = version
            if version.barrier <= barrier:
                return found
            if version.created:
                return None
        return None

    def _ended(self, barrier: int) -> float:
        found = self._store.barrier(barrier)
        return found.ended_at or found.started_at if found is not None else self._clock.time()

    # -- what is known of it -----------------------------------------------------------------

    def _put(self, sink: Sink) -> None:
        self._store.put_sink(self._fence, sink)
        self._sink = sink

    def _failed(self, error: Exception) -> None:
        log.warning("the delivery of %s failed and will be retried: %s", self._sink.name, error)
        problem = str(error).replace("\x00", "")
        since = self._sink.failing_since or self._clock.time()
        if (self._sink.failing_since, self._sink.problem) != (since, problem):
            self._put(replace(self._sink, failing_since=since, problem=problem))

    def _lost(self, mark: Mark) -> StreamSqlError:
        return StreamSqlError(
            "SINK_LOST",
            f"the changes of {self._sink.table} since barrier {mark.barrier} are gone",
            given=f"{self._target} has everything up to barrier {self._sink.delivered}",
            hint="`dbt run --full-refresh` of the sink delivers the whole table; deletes that "
            "happened in between are lost, so empty the target first",
            place=self._place,
        )

    def _told(self, error: Exception) -> Exception:
        """An error in the rows as SINK_KEY or CHANGELOG_MODE, any other one unchanged."""
        text = str(error)
        problem = text.partition(BAD_KEY)[2].splitlines()[0] if BAD_KEY in text else ""
        if isinstance(error, DoubleKeyError):
            problem = f"two rows have the key {error}"
        if problem:
            return StreamSqlError(
                "SINK_KEY",
                f"the key of {self._sink.name} does not identify its rows",
                given=problem.partition(" SQLSTATE: ")[0],
                allowed="one row per key, and no NULL in the key",
                hint="choose a different `key`, or group in a materialized view",
                place=self._place,
            )
        if LOST_ROW in text:
            return StreamSqlError(
                "CHANGELOG_MODE",
                f"rows of {self._sink.table} were changed or deleted, not only added",
                given="mode: append",
                hint="use `mode: changelog`",
                place=self._place,
            )
        return error


def is_sure(job: Job, key: Collection[str], plain: Mapping[str, str]) -> bool:
    """Whether the table has one row at most for each key of the sink."""
    plan = known_plan(job)
    if plan is None or plan.strategy not in _KEYED:
        return False
    own = set(plan.key)
    return bool(own) and own <= {plain.get(k) for k in key}
