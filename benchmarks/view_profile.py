"""What each view of an epoch spent its seconds on, in the process that drives Spark.

Milliseconds on the clock of the thread that brings a view up to date; of Spark's phases, its own.
Views run side by side, so what one waits for another is in its parts too.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.data import World
from dbt_streamsql.runtime.core import failpoints
from dbt_streamsql.runtime.core.failpoints import Moment
from dbt_streamsql.runtime.refresh.view_refresh import RefreshTask
from dbt_streamsql.runtime.spark.session_pool import SessionPool

STATEMENTS, ANALYSIS, OPTIMIZING, PLANNING = "statements", "analysis", "optimizing", "planning"
JOBS, ROWS_IN, COMMIT, META, REST = "jobs", "rows in", "commit", "MetaService", "rest"
COLUMNS = (STATEMENTS, ANALYSIS, OPTIMIZING, PLANNING, JOBS, ROWS_IN, COMMIT, META, REST)
"""Numbers of statements; milliseconds of all others. `rows in`: rows that go from here to Spark;
`rest`: of the view's time what no other covers, of which Python's own and the gateway's."""

_PHASES = {"parsing": ANALYSIS, "analysis": ANALYSIS, "optimization": OPTIMIZING}
_COMMITS = ("branch.create", "branch.write")
EPOCH = "(of no view)"


@dataclass
class ViewProfile:
    """Counts between entering and leaving `recorded`."""

    world: World
    parts: dict[str, dict[str, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    _views: dict[int, str] = field(default_factory=dict)
    _groups: dict[str, str] = field(default_factory=dict)
    _frames: list[tuple[str, DataFrame]] = field(default_factory=list)
    _open: dict[tuple[int, str], float] = field(default_factory=dict)

    @contextmanager
    def recorded(self, first_job: int) -> Iterator[None]:
        """`first_job`: the number of Spark's next job."""
        with ExitStack() as stack:
            for owner, name, told in (
                (RefreshTask, "run", self._run),
                (SparkSession, "sql", self._sql),
                (SparkSession, "createDataFrame", functools.partial(self._timed, ROWS_IN)),
                (SessionPool, "job_count", self._counted),
            ):
                stack.enter_context(_patched(owner, name, told))
            store = self.world.engine.warehouse.store
            for name in dir(store):
                if not name.startswith("_") and callable(getattr(store, name)):
                    about = functools.partial(self._timed, META)
                    stack.enter_context(_patched(store, name, about))
            failpoints.observers.append(self._observe)
            try:
                yield
            finally:
                failpoints.observers.remove(self._observe)
        self._add_phases()
        self._add_jobs(first_job)
        for each in self.parts.values():
            covered = sum(each[part] for part in COLUMNS if part not in (STATEMENTS, REST))
            each[REST] = max(0.0, each["all"] - covered)

    @property
    def _view(self) -> str:
        return self._views.get(threading.get_ident(), EPOCH)

    def _run(self, original: Callable[..., Any], job: RefreshTask) -> Any:
        self._views[threading.get_ident()] = job.job.table
        started = time.perf_counter()
        try:
            return original(job)
        finally:
            self.parts[self._view]["all"] += 1000 * (time.perf_counter() - started)
            del self._views[threading.get_ident()]

    def _sql(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        frame = original(*args, **kwargs)
        self.parts[self._view][STATEMENTS] += 1
        self._frames.append((self._view, frame))
        return frame

    def _timed(self, part: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            self.parts[self._view][part] += 1000 * (time.perf_counter() - started)

    def _counted(self, original: Callable[..., Any], *args: Any) -> Any:
        counter = original(*args)
        self._groups[counter._group] = self._view  # noqa: SLF001 - nobody else needs it
        return counter

    def _observe(self, step: str, moment: Moment) -> None:
        if step not in _COMMITS:
            return
        key = (threading.get_ident(), step)
        if moment == "before":
            self._open[key] = time.perf_counter()
        else:
            self.parts[self._view][COMMIT] += 1000 * (time.perf_counter() - self._open.pop(key))

    def _add_phases(self) -> None:
        """Of the statements whose frames are known: those of Spark's own commands are not."""
        for view, frame in self._frames:
            execution: Any = frame._jdf.queryExecution()  # noqa: SLF001
            phases = execution.tracker().phases()
            names = phases.keySet().iterator()
            while names.hasNext():
                name = names.next()
                spent = phases.apply(name).durationMs()
                self.parts[view][_PHASES.get(name, PLANNING)] += spent

    def _add_jobs(self, first: int) -> None:
        context: Any = self.world.spark.sparkContext._jsc  # noqa: SLF001
        listed = context.sc().statusStore().jobsList(None)
        for job in (listed.apply(index) for index in range(listed.size())):
            if job.jobId() < first or not job.completionTime().isDefined():
                continue
            group = job.jobGroup().get() if job.jobGroup().isDefined() else ""
            begun, done = job.submissionTime().get(), job.completionTime().get()
            self.parts[self._groups.get(group, EPOCH)][JOBS] += done.getTime() - begun.getTime()


def summed(parts: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The parts of all views."""
    return {name: sum(each.get(name, 0.0) for each in parts.values()) for name in COLUMNS}


@contextmanager
def _patched(owner: Any, name: str, told: Callable[..., Any]) -> Iterator[None]:
    """Calls of `owner.name` go through `told`, whose first argument is the original."""
    original = getattr(owner, name)
    is_own = name in vars(owner)

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        return told(original, *args, **kwargs)

    setattr(owner, name, called)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)
