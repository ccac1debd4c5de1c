"""The product's own runtime over the simulated store and storage, and what processes do with it.

`Epoch`, `ViewJob`, `Writer`, `publish`, `upkeep` and the storage room's `staging`, `refs` and
`pins` are the product's. What is put in their place computes rows, reads the clock or draws names.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from dbt_streamsql.meta import Job, Retention
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.redefinition import SHADOW, Redefinition
from dbt_streamsql.plan.schema import Column
from dbt_streamsql.quoting import TableName
from tests.oracle.zset import ZSet, add
from tests.simulator.sim_lake import KINDS, query
from tests.simulator.sim_process import Process
from tests.simulator.sim_spark import (
    JavaTable,
    Sessions,
    SimulatedSpark,
    change_of,
    folder_rows,
    write_branch,
)
from tests.support.product import DAY, Epoch, Mismatch, Outcome, Stamp, Warehouse, home

context = home("Warehouse")
durable = home("durable")
epoch = home("Epoch")
feed = home("Feed")
job = home("ViewJob")
publish = home("roll_forward")
stager = home("Stager")
upkeep = home("upkeep")
write = home("Writer")
retention = home("Retention")
compaction = home("compact")
delta = home("Delta")
files = home("delete_folder")
metadata = home("Metadata")
nearby = home("has_schema")
refs = home("Moves")

Task = Callable[[Process], None]
KEPT = Retention(seconds=30 * DAY, barriers=2)


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


@dataclass
class Changed:
    """A view's own change; `Kept` without a frame."""

    data: ZSet
    rows: None = None


class Frames:
    """Runs a program: the view's change follows from the changes of its inputs."""

    def __init__(self, spark: Any, readings: Any, _: Any, writer: Any, *__: Any) -> None:
        self.spark, self.readings, self.writer = cast("SimulatedSpark", spark), readings, writer

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
        kept: Any = Changed(change) if writer.feed else None
        return Outcome(gained, lost, kept)

    def close(self) -> None:
        pass


class Local:
    """Frames by name: none are needed."""

    def __init__(self, spark: Any) -> None:
        pass

    def close(self) -> None:
        pass


class JobCount:
    """One job a view."""

    def __init__(self, spark: Any) -> None:
        pass

    def stop(self) -> tuple[int, int]:
        return 1, 0


class _Pool:
    """Jobs of one level in an order that the simulation draws, instead of in threads."""

    @staticmethod
    def map(action: Callable[[str], Any], items: Iterable[str]) -> list[Any]:
        given = list(items)
        _running().simulation.rng.shuffle(given)
        return [action(item) for item in given]


def _commit(
    spark: Any, name: TableName, branch: str, base: int, origin: Stamp, rows: ZSet
) -> None:
    commit = spark.lake.commit
    spark.do(
        f"commit {name} on {branch}",
        lambda: commit(name, branch, base, rows, "delta", origin.properties()),
    )


def _write_feed(spark: Any, path: str, change: Changed, _: Sequence[str]) -> None:
    lake = spark.lake
    # Between the two a file is there that lacks its end.
    spark.do(f"begin {path}", lambda: lake.write_file(path, {}, torn=True))
    spark.do(f"write {path}", lambda: lake.write_file(path, change.data))


def _delete(spark: Any, path: str) -> None:
    if path in spark.lake.files:
        spark.do(f"delete {path}", lambda: spark.lake.delete_file(path))


def _running() -> Process:
    return cast("Process", threading.current_thread())


def _observe(step: str, moment: str) -> None:
    _running().point(step, moment)


@contextmanager
def substituted() -> Iterator[None]:
    """Inside, the product's runtime works on simulations."""
    now = SimpleNamespace(
        time=lambda: _running().simulation.now,
        monotonic=lambda: 0.0,
        time_ns=lambda: int(_running().simulation.now * 1e9),
    )
    names = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=_running().simulation.name()))
    changes: list[tuple[Any, str, Any]] = [
        # Names are parsed again and again, which is half of the work here.
        (TableName, "parse", lru_cache(TableName.parse)),
        (metadata, "load", lambda spark, name: spark.lake.load(name)),
        (nearby, "has_schema", lambda *_: True),
        (refs, "java_table", JavaTable),
        (refs, "is_connect", lambda spark: spark.process.simulation.connect),
        (compaction, "is_connect", lambda _: True),
        (delta, "supported", lambda spark, _: spark.process.simulation.driver),
        (write, "commit", _commit),
        (files, "delete_folder", _delete),
        (feed, "write", _write_feed),
        (job, "Frames", Frames),
        (job, "Local", Local),
        (job, "JobCount", JobCount),
        (job, "time", now),
        (stager, "uuid", names),
        (context, "time", now),
        (epoch, "time", now),
        (context, "uuid", names),
        (epoch, "ThreadPoolExecutor", lambda *_, **__: nullcontext(_Pool)),
        # So that tables this small and young are worn.
        (upkeep, "SMALL_TABLE", 0),
        (upkeep, "SMALL_FILES", 2),
        (retention, "TOGETHER", 2),
    ]
    level = context.log.level
    context.log.setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        for target, name, new in changes:
            stack.enter_context(patch.object(target, name, new))
        durable.observers.append(_observe)
        try:
            yield
        finally:
            durable.observers.remove(_observe)
            context.log.setLevel(level)


# -- what processes do -------------------------------------------------------------------------


def warehouse(process: Process) -> Warehouse:
    sessions, store = cast("Any", Sessions(process)), cast("Any", process.store)
    return Warehouse(sessions, store, "lake", KEPT)


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
            known = opened.open.jobs.get(model.table)
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
