"""Where the time of one epoch goes: its durable steps, its SQL executions and their Spark jobs.

python -m benchmarks.profile_epoch --rows 1000000 --keys scattered
python -m benchmarks.profile_epoch --kinds 100 --java

Steps are measured in this process, executions and jobs come from Spark's own status stores, all on
one clock. Executions lie inside steps or between them; what no line covers is analysis, metadata
and MetaService (`--calls` shows the calls too). `--kinds` takes that many views of all kinds
(`benchmarks.kinds`) and shows what each spent its time on; `--java` says what Spark's Java did all
the while.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import contestants, data, java_profile, kinds, measure, view_profile
from dbt_streamsql.runtime.core import failpoints
from dbt_streamsql.runtime.core.failpoints import Moment
from dbt_streamsql.runtime.report import TableReport


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


class OneView:
    """A view of one row a group, over which rows of some keys come."""

    def __init__(self, world: data.World, given: argparse.Namespace) -> None:
        self._world, self._given = world, given
        data.create_base(world.spark, given.rows, given.seed)
        data.create_view(world.engine)

    @contextmanager
    def changed(self, number: int) -> Iterator[None]:
        given = self._given
        change = data.Change(given.keys, given.rows, given.change, number, given.seed)
        with data.batch([self._world.spark], change):
            contestants.append(self._world)
            yield


class Kinds:
    """Views of all kinds over five tables, of which 120 rows change."""

    def __init__(self, world: data.World, given: argparse.Namespace) -> None:
        self._world, self._rows = world, given.rows
        self._rng = random.Random(given.seed)  # noqa: S311
        kinds.make(world, given.kinds, given.rows)

    @contextmanager
    def changed(self, _: int) -> Iterator[None]:
        kinds.change(self._world, self._rng, self._rows)
        yield


def main() -> None:
    """Warm up, run one epoch, print its time line and sums."""
    given = _arguments()
    if given.java:
        java_profile.ask_for_whole_stacks()
    with tempfile.TemporaryDirectory(prefix="streamsql-profile-") as folder, ExitStack() as stack:
        world = data.open_world(Path(folder), with_delta=False)
        try:
            scene = Kinds(world, given) if given.kinds else OneView(world, given)
            recording = java_profile.Recording(world.spark) if given.java else None
            for number in range(given.warm):
                with scene.changed(number):
                    world.engine.advance()
            recorder = Recorder()
            failpoints.observers.append(recorder.observe)
            before = (measure.jobs_so_far(world), _last_execution(world.spark))
            if given.calls:
                stack.enter_context(recorder.calls())
            with scene.changed(given.warm):
                measure.settle(world)
                java = stack.enter_context(recording.told()) if recording else None
                profile = view_profile.ViewProfile(world)
                stack.enter_context(profile.recorded(measure.jobs_so_far(world)))
                recorder.begin()
                start, used = time.time(), time.process_time()
                reports = world.engine.advance().tables
                recorder.add("epoch", "advance()", start)
                used = time.process_time() - used
                stack.close()
            seen = [*recorder.spans, *_from_spark(world.spark, recorder.zero, before)]
        finally:
            failpoints.observers.clear()
            world.close()
    # The rows of the change were made and appended before the clock was set to zero.
    spans = sorted(
        (span for span in seen if span.start >= 0), key=lambda span: (span.start, -span.end)
    )
    console = Console()
    if given.kinds:
        _show_views(console, reports, profile.parts)
    else:
        _show_line(console, spans)
    _show_sums(console, spans, used)
    if java is not None:
        _show_java(console, java)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.profile_epoch", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rows", type=int, help="groups: 1000000; of small tables: 20000")
    parser.add_argument("--keys", choices=data.KEYS, default="scattered", help="%(default)s")
    parser.add_argument("--change", type=int, default=1000, help="changed rows: %(default)s")
    parser.add_argument("--kinds", type=int, default=0, help="views of all kinds instead of one")
    parser.add_argument("--warm", type=int, default=3, help="epochs before: %(default)s")
    parser.add_argument("--calls", action="store_true", help="also each call of spark.sql")
    parser.add_argument("--java", action="store_true", help="also what Spark's Java did")
    parser.add_argument("--seed", type=int, default=1, help="of the data: %(default)s")
    given = parser.parse_args()
    given.rows = given.rows or (20_000 if given.kinds else 1_000_000)
    return given


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


def _show_views(
    console: Console,
    reports: Mapping[str, TableReport],
    parts: Mapping[str, Mapping[str, float]],
) -> None:
    """Seconds of each view, and milliseconds of its parts; the sums stand below."""
    columns = ("view", "seconds", "n", "how", "rows", *view_profile.COLUMNS)
    table = _table("the views of one epoch: Spark's jobs (n), and milliseconds", *columns)
    for name, report in sorted(reports.items()):
        how = report.mode if report.mode == "noop" else report.strategy
        rows = f"+{report.rows_inserted} -{report.rows_deleted}"
        spent = _shown(parts.get(name, {}))
        table.add_row(name, f"{report.seconds:.3f}", str(report.jobs), how, rows, *spent)
    outside = _shown(parts.get(view_profile.EPOCH, {}))
    table.add_row(view_profile.EPOCH, "", "", "", "", *outside)
    whole = sum(report.seconds for report in reports.values())
    jobs = sum(report.jobs for report in reports.values())
    sums = _shown(view_profile.summed(parts))
    table.add_row("all", f"{whole:.3f}", str(jobs), "", "", *sums)
    console.print(table)


def _shown(parts: Mapping[str, float]) -> list[str]:
    return [f"{parts.get(name, 0.0):.0f}" for name in view_profile.COLUMNS]


def _show_line(console: Console, spans: Sequence[Span]) -> None:
    table = _table("one epoch", "from", "seconds", "kind", "what")
    room = max(30, console.width - 32)
    indent = {"epoch": "", "step": " ", "call": "  ", "sql": "   ", "job": "    "}
    for span in spans:
        what = escape((indent[span.kind] + " ".join(span.what.split()))[:room])
        table.add_row(f"{span.start:.3f}", f"{span.seconds:.3f}", span.kind, what)
    console.print(table)


def _show_sums(console: Console, spans: Sequence[Span], used: float) -> None:
    whole = next(span for span in spans if span.kind == "epoch").seconds
    for kind in ("step", "call", "sql", "job"):
        chosen = [span for span in spans if span.kind == kind]
        if chosen:
            share = _covered(chosen)
            console.print(f"{kind}: {len(chosen)} in {share:.2f} s of {whole:.2f}", markup=False)
    rest = whole - _covered([span for span in spans if span.kind != "epoch"])
    console.print(f"in none of them: {rest:.2f} s")
    console.print(f"Python: {used:.2f} s of a processor")
    steps = defaultdict(list)
    for span in spans:
        if span.kind == "step":
            steps[span.what].append(span)
    table = _table("durable steps", "step", "times", "seconds")
    for step, each in sorted(steps.items(), key=lambda item: -_covered(item[1])):
        table.add_row(step, str(len(each)), f"{_covered(each):.3f}")
    console.print(table)


def _show_java(console: Console, java: java_profile.Told) -> None:
    table = _table(f"Java: {java.classes} classes generated", "what", "processor ms", "%")
    whole = sum(ms for _, ms in java.lines())
    for what, ms in java.lines():
        table.add_row(what, f"{ms:,}", f"{100 * ms / whole:.0f}")
    console.print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        is_number = column in ("from", "seconds", "n", "times", "processor ms", "%")
        is_number = is_number or column in view_profile.COLUMNS
        table.add_column(column, justify="right" if is_number else "left")
    return table


def _covered(spans: list[Span]) -> float:
    """Seconds in which at least one of the spans was running."""
    total, reached = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total


if __name__ == "__main__":
    main()
