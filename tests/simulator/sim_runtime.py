"""The product's own runtime over the simulated store and storage, and what processes do with it.

`Epoch`, `ViewRefresh`, `Writer`, `publish`, `upkeep` and the storage room's `staging`, `refs` and
`pins` are the product's; a simulated session leads them to simulated tables (`sim_tables.py`).
What is put in their place computes rows, reads the clock or draws names.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random
from typing import Any, cast
from unittest.mock import patch

from dbt_streamsql.meta import Job, Retention
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.redefinition import SHADOW, Redefinition
from dbt_streamsql.quoting import TableName
from tests.oracle.zset import ZSet, add
from tests.simulator.sim_lake import KINDS, query
from tests.simulator.sim_process import Process, Simulation
from tests.simulator.sim_spark import (
    Sessions,
    SimulatedSpark,
    change_of,
    folder_rows,
    write_branch,
)
from tests.simulator.sim_tables import SimulatedTables
from tests.support.product import (
    DAY,
    WAYS,
    Epoch,
    InputChange,
    Mismatch,
    Outcome,
    TempRelation,
    Tuning,
    Warehouse,
    full_name,
    home,
)
from tests.support.steps import observing

context = home("Warehouse")
publish = home("roll_forward")

Task = Callable[[Process], None]
WAYS[full_name(SimulatedSpark)] = SimulatedTables
KEPT = Retention(seconds=30 * DAY, barriers=2)
WORN = Tuning(compacted_above=0, small_files=2, barriers_together=2, compared_rows=-1)
"""Tables this small and young are worn."""


@cache
def plan_of(sql: str) -> CompiledPlan:
    """A plan of a view such as `joined(lake.s.a; lake.s.b)`."""
    kind, _, rest = sql.rstrip(")").partition("(")
    columns = tuple(Column(name, "bigint") for name in KINDS[kind][1])
    tables = tuple(rest.split("; "))
    return CompiledPlan(
        sql, "incremental", "rows", (), tables, columns, (), (), "", (), {"kind": kind}, sql
    )


def definition(table: str, kind: str, sources: Sequence[str], **config: Any) -> Job:
    columns = [{"name": name, "type": "bigint"} for name in KINDS[kind][1]]
    sql = f"{kind}({'; '.join(sources)})"
    of_epoch = {"steps": [], "key": [], "strategy": "rows", "columns": columns, "hidden": []}
    plan = {"plan": of_epoch, "kind": kind, "order": tuple(sources)}
    return Job(table, table, sql, "auto", config, sql, plan, columns, tuple(sources))


def rewritten(sql: str, replacement: Callable[[TableName], str | None]) -> str:
    kind, _, rest = sql.rstrip(")").partition("(")
    texts = [replacement(TableName.parse(name)) for name in rest.split("; ")]
    return f"{kind}({'; '.join(map(str, texts))})"


# -- what stands in for rows and Spark jobs ----------------------------------------------------


class SimulatedProgram:
    """Runs a program: the view's change follows from the changes of its inputs."""

    def __init__(self, readings: Mapping[str, InputChange], writer: Any, *_: Any) -> None:
        self.readings, self.writer = readings, writer
        self.spark = cast("SimulatedSpark", writer.spark)

    def run(self, plan: CompiledPlan) -> Outcome:
        lake = self.spark.lake
        before, after = [], []
        for reading in (self.readings[table] for table in plan.tables):
            old, new = reading.change.old, reading.change.new
            rows = lake.rows(reading.name, old)
            change: ZSet = {}
            if reading.change.kind != "none" and reading.feed is not None:
                change = folder_rows(self.spark, reading.feed.folders)
            elif reading.change.kind != "none":
                change = change_of(self.spark, reading.name, old, new)
            before.append(rows)
            after.append(add([rows, change]))
        kind = plan.tree["kind"]
        change = add([query(kind, after), {r: -w for r, w in query(kind, before).items()}])
        if not change:
            return Outcome()
        return self._written(change)

    def _written(self, change: ZSet) -> Outcome:
        writer = self.writer
        rows = add([self.spark.lake.rows(writer.table, writer.base), change])
        if any(weight < 0 for weight in rows.values()):
            raise Mismatch
        if writer.driver:
            writer.commit(rows)
        else:
            with writer.writing():
                write_branch(self.spark, writer.table, writer.branch, rows, "delta")
        gained = sum(weight for weight in change.values() if weight > 0)
        lost = -sum(weight for weight in change.values() if weight < 0)
        kept = None
        if writer.feed:
            kept = TempRelation(len(change), lambda _: "changed")
            self.spark.views[kept.name] = change
        return Outcome(gained, lost, kept)

    def close(self) -> None:
        pass


@dataclass
class _Pool:
    """Jobs of one level in an order that the simulation draws, instead of in threads."""

    rng: Random

    def map(self, action: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        given = list(items)
        self.rng.shuffle(given)
        return [action(item) for item in given]


@dataclass
class SimulatedClock:
    """The simulation's, by which tables are written too."""

    simulation: Simulation

    def time(self) -> float:
        return self.simulation.now

    def monotonic(self) -> float:
        return 0.0

    def committed(self, at: int) -> int:
        return at


def _running() -> Process:
    return cast("Process", threading.current_thread())


def _observe(step: str, moment: str) -> None:
    _running().point(step, moment)


@contextmanager
def substituted() -> Iterator[None]:
    """Inside, the product's runtime works on simulations."""
    changes: list[tuple[Any, str, Any]] = [
        # Names are parsed again and again, which is half of the work here.
        (TableName, "parse", lru_cache(TableName.parse)),
    ]
    level = context.log.level
    context.log.setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        for target, name, new in changes:
            stack.enter_context(patch.object(target, name, new))
        stack.enter_context(observing(_observe))
        stack.callback(context.log.setLevel, level)
        yield


# -- what processes do -------------------------------------------------------------------------


def warehouse(process: Process) -> Warehouse:
    simulation = process.simulation
    sessions, store = cast("Any", Sessions(process)), cast("Any", process.store)
    return Warehouse(
        *(sessions, store, "lake", KEPT),
        tuning=WORN,
        programs=SimulatedProgram,
        clock=SimulatedClock(simulation),
        new_name=simulation.name,
        workers=lambda *_: nullcontext(_Pool(simulation.rng)),
    )


def begun(process: Process) -> Epoch:
    """`Engine.begin`."""
    opened = Epoch(warehouse(process), rewritten, lambda found: (found, plan_of(found.sql), None))
    try:
        opened.pin_roots()
    except BaseException:
        opened.abort()
        raise
    return opened


def advance(process: Process) -> None:
    """`Engine.advance`: all views or none."""
    opened = begun(process)
    try:
        opened.advance()
    except BaseException:
        opened.abort()
        raise
    opened.publish()


def run_models(models: Sequence[tuple[Job, str]]) -> Task:
    """`dbt run`: a model that fails does not keep the others from being published.

    Each with a reason to build it in full, or ''.
    """

    def task(process: Process) -> None:
        opened = begun(process)
        failed: list[BaseException] = []
        lost: list[str] = []
        for model, why in models:
            known = opened.state.jobs.get(model.table)
            change = None
            if known is not None and known != model:
                change = Redefinition(SHADOW, "another query")
            try:
                opened.define(model, plan_of(model.sql), change, why)
            except Exception as error:  # noqa: BLE001 - dbt goes on with the next model
                failed.append(error)
                lost.append(model.unique_id)
        if failed:
            # What a run with a failure publishes is the user's choice.
            choice = process.simulation.rng.choice(["models", "models", "graph", "nothing"])
            process.simulation.say(f"{process.name} has failures: publishes {choice}")
            if choice == "nothing":
                opened.leave()
                raise failed[0]
            if choice == "graph":
                opened.withdraw(lost)
        opened.publish()
        if failed:
            raise failed[0]

    return task


def twice(task: Task) -> Task:
    """A process that lives on after a failed command and is given the next one."""

    def tasks(process: Process) -> None:
        try:
            task(process)
        except Exception as error:  # noqa: BLE001 - the command failed, not the process
            process.simulation.say(f"{process.name} goes on after: {error!s:.80}")
        advance(process)

    return tasks


def sweep(process: Process) -> None:
    """`Engine.sweep`."""
    place = warehouse(process)
    fence = process.store.acquire(wait=True)
    try:
        publish.recover(place, fence)
        publish.sweep(place, fence)
    finally:
        process.store.release(fence)


def recover(process: Process) -> None:
    """What any next run does first, and no more."""
    begun(process).abort()
