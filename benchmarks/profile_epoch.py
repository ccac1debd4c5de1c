"""Where the time of one epoch goes: its durable steps, its SQL executions and their Spark jobs.

python -m benchmarks.profile_epoch --rows 1000000 --keys scattered

Steps are measured in this process, executions and jobs come from Spark's own status stores, all on
one clock. Executions lie inside steps or between them; what no line covers is analysis, metadata
and MetaService (`--calls` shows the calls too).
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import contestants, data, measure
from dbt_streamsql.runtime import durable
from dbt_streamsql.runtime.durable import Moment


@dataclass(frozen=True)
class Span:
    """Something that lasted: `start` and `end` in seconds since the epoch was asked for."""

    kind: str
    what: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Recorder:
    """Collects spans of this process between `begin` and the end."""

    def __init__(self) -> None:
        self.zero = time.time()
        self.spans: list[Span] = []
        self._open: dict[tuple[int, str], list[float]] = defaultdict(list)

    def begin(self) -> None:
        self.zero = time.time()
        self.spans.clear()

    def add(self, kind: str, what: str, start: float) -> None:
        self.spans.append(Span(kind, what, start - self.zero, time.time() - self.zero))

    def observe(self, step: str, moment: Moment) -> None:
        """An observer of durable steps."""
        starts = self._open[threading.get_ident(), step]
        if moment == "before":
            starts.append(time.time())
        else:
            self.add("step", step, starts.pop())

    @contextmanager
    def calls(self) -> Iterator[None]:
        """Also record every statement: parsing, analysis and, for commands, the execution."""
        original = SparkSession.sql

        def recorded(spark: SparkSession, text: str, *args: Any, **kwargs: Any) -> Any:
            start = time.time()
            try:
                return original(spark, text, *args, **kwargs)
            finally:
                self.add("call", text, start)

        setattr(SparkSession, "sql", recorded)  # noqa: B010 - a method, as mypy sees it
        try:
            yield
        finally:
            setattr(SparkSession, "sql", original)  # noqa: B010


def main() -> None:
    """Warm up, run one epoch, print its time line and sums."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="groups: %(default)s")
    parser.add_argument("--keys", choices=data.KEYS, default="scattered", help="%(default)s")
    parser.add_argument("--change", type=int, default=1000, help="changed rows: %(default)s")
    parser.add_argument("--warm", type=int, default=3, help="epochs before: %(default)s")
    parser.add_argument("--calls", action="store_true", help="also each call of spark.sql")
    parser.add_argument("--seed", type=int, default=1, help="of the data: %(default)s")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamsql-profile-") as folder:
        world = data.open_world(Path(folder), with_delta=False)
        try:
            data.create_base(world.spark, given.rows, given.seed)
            data.create_view(world.engine)
            for number in range(given.warm):
                _epoch(world, given, number)
            recorder = Recorder()
            durable.observers.append(recorder.observe)
            before = (measure.jobs_so_far(world), _last_execution(world.spark))
            if given.calls:
                with recorder.calls():
                    _epoch(world, given, given.warm, recorder)
            else:
                _epoch(world, given, given.warm, recorder)
            seen = [*recorder.spans, *_from_spark(world.spark, recorder.zero, before)]
        finally:
            durable.observers.clear()
            world.close()
    # The rows of the change were made and appended before the clock was set to zero.
    spans = [span for span in seen if span.start >= 0]
    _show(sorted(spans, key=lambda span: (span.start, -span.end)))


def _epoch(
    world: data.World, given: argparse.Namespace, number: int, recorder: Recorder | None = None
) -> None:
    change = data.Change(given.keys, given.rows, given.change, number, given.seed)
    with data.batch([world.spark], change):
        contestants.append(world)
        measure.settle(world)
        if recorder is not None:
            recorder.begin()
        start = time.time()
        mode = contestants.epoch(world)
        if recorder is not None:
            recorder.add("epoch", f"advance(): {mode}", start)


def _last_execution(spark: SparkSession) -> int:
    found = _executions(spark)
    return max((int(execution.executionId()) for execution in found), default=-1)


def _executions(spark: SparkSession) -> list[Any]:
    context: Any = spark.sparkContext._jsc  # noqa: SLF001 - no public way to these stores
    session: Any = spark._jsparkSession  # noqa: SLF001
    context.sc().listenerBus().waitUntilEmpty()
    listed = session.sharedState().statusStore().executionsList()
    return [listed.apply(index) for index in range(listed.size())]


def _from_spark(spark: SparkSession, zero: float, before: tuple[int, int]) -> list[Span]:
    """Executions and jobs since the counts in `before` were taken."""
    first_job, last_execution = before
    spans = []
    for execution in _executions(spark):
        number, done = int(execution.executionId()), execution.completionTime()
        if number > last_execution and done.isDefined():
            what = f"{number}: {_plan(str(execution.physicalPlanDescription()))}"
            spans.append(_span("sql", what, execution.submissionTime(), done.get(), zero))
    context: Any = spark.sparkContext._jsc  # noqa: SLF001
    store = context.sc().statusStore()
    listed = store.jobsList(None)
    for job in (listed.apply(index) for index in range(listed.size())):
        if job.jobId() >= first_job and job.completionTime().isDefined():
            begun, done = job.submissionTime().get().getTime(), job.completionTime().get()
            tasks = f"{job.jobId()}: {job.numTasks() - job.numSkippedTasks()} tasks"
            spans.append(_span("job", tasks, begun, done.getTime(), zero))
    return spans


def _span(kind: str, what: str, start: int, end: Any, zero: float) -> Span:
    """From Spark's milliseconds since 1970 (a number, or a java.util.Date)."""
    last = end.getTime() if hasattr(end, "getTime") else end
    return Span(kind, what, start / 1000 - zero, last / 1000 - zero)


def _plan(text: str) -> str:
    """The operators at the top of a physical plan, outermost first."""
    names = []
    for line in text.splitlines():
        name = line.lstrip(" +-:*").partition("(")[0].strip()
        if name and not name.startswith("==") and name != "AdaptiveSparkPlan":
            names.append(name)
    return " < ".join(names[:3])


def _show(spans: list[Span]) -> None:
    console = Console()
    table = Table(title="one epoch", title_justify="left")
    table.add_column("from", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("kind")
    table.add_column("what")
    room = max(30, console.width - 32)
    indent = {"epoch": "", "step": " ", "call": "  ", "sql": "   ", "job": "    "}
    for span in spans:
        what = escape((indent[span.kind] + " ".join(span.what.split()))[:room])
        table.add_row(f"{span.start:.3f}", f"{span.seconds:.3f}", span.kind, what)
    console.print(table)
    whole = next(span for span in spans if span.kind == "epoch").seconds
    for kind in ("step", "call", "sql", "job"):
        chosen = [span for span in spans if span.kind == kind]
        if chosen:
            share = _covered(chosen)
            console.print(f"{kind}: {len(chosen)} in {share:.2f} s of {whole:.2f}", markup=False)
    rest = whole - _covered([span for span in spans if span.kind != "epoch"])
    console.print(f"in none of them: {rest:.2f} s")


def _covered(spans: list[Span]) -> float:
    """Seconds in which at least one of the spans was running."""
    total, reached = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total


if __name__ == "__main__":
    main()
