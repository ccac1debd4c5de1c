"""The `epoch` object of a compiled program: changes and states of the inputs, queries, and the final write."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan import steps
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.expression import fill
from dbt_streamsql.plan.schema import WEIGHT
from dbt_streamsql.plan.steps import Component, Derived, Fold, Step
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.write import Outcome, Writer
from dbt_streamsql.storage.iceberg import changes
from dbt_streamsql.storage.iceberg.changes import Change
from dbt_streamsql.storage.iceberg.metadata import Metadata

BROADCAST_ROWS = 500_000
"""Above this many changed rows the hints to broadcast the change are dropped."""

_HINT = re.compile(r"/\*\+ BROADCAST\(\S+\) \*/ ")
_numbers = itertools.count()

Frame = DataFrame | str | None
"""A relation of the epoch: data, a table's text, or None when it is known to be empty."""


@dataclass(frozen=True)
class Reading:
    """An input of a job: where it is read, what changed, and files that hold the change."""

    name: TableName
    meta: Metadata
    change: Change
    files: tuple[str, ...] = ()


@dataclass
class Frames:
    """Runs the steps of one program in one session; `outcome` is what was written."""

    spark: SparkSession
    reads: Mapping[str, Reading]
    writer: Writer
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self._kept: list[DataFrame] = []
        self._views: list[str] = []
        rows = sum(read.change.rows for read in self.reads.values())
        self._hinted = rows <= BROADCAST_ROWS

    def changes(self, table: str, columns: Sequence[str]) -> Frame:
        """Consolidated signed rows of an input: `columns` and `_w`."""
        read = self.reads[table]
        if read.change.kind == "none":
            return None
        if not read.files:
            return changes.read(self.spark, read.name, read.meta, read.change, tuple(columns))
        names = ", ".join(quote(column) for column in columns)
        frame = self.spark.read.parquet(*read.files)
        return self.sql(
            f"SELECT {names}, sum({WEIGHT}) AS {WEIGHT} FROM {{files}} "
            f"GROUP BY {names} HAVING sum({WEIGHT}) <> 0",
            files=frame,
        )

    def before(self, table: str) -> Frame:
        """The input as the view last saw it."""
        read = self.reads[table]
        return changes.version(read.name, read.change.old)

    def after(self, table: str) -> Frame:
        """The input at this barrier."""
        read = self.reads[table]
        return changes.version(read.name, read.change.new)

    def sql(self, text: str, /, when: Iterable[Frame] = (), **frames: Frame) -> Frame:
        """A query over frames; None when one of them is known to be empty."""
        if any(frame is None for frame in (*frames.values(), *when)):
            return None
        if not self._hinted:
            text = _HINT.sub("", text)
        return self.spark.sql(fill(text, lambda name: self._relation(frames[name])))

    def union(self, *parts: Frame) -> Frame:
        """UNION ALL of the parts that are not known to be empty, matched by name."""
        found = [part for part in parts if isinstance(part, DataFrame)]
        if not found:
            return None
        result = found[0]
        for part in found[1:]:
            result = result.unionByName(part.select(*[quote(name) for name in result.columns]))
        return result

    def collect(self, frame: Frame) -> Frame:
        """Compute once and keep; None when it turns out empty."""
        if not isinstance(frame, DataFrame):
            return None
        kept = frame.persist()
        self._kept.append(kept)
        return kept if kept.count() else None

    def apply(self, frame: Frame) -> None:
        """Add signed rows to the view."""
        if isinstance(frame, DataFrame):
            self.outcome = self.writer.signed(frame)

    def replace(self, frame: Frame, keys: Frame, key: Sequence[str]) -> None:
        """The rows of the view under `keys` become those of `frame`."""
        if isinstance(frame, DataFrame) and isinstance(keys, DataFrame):
            self.outcome = self.writer.replace(frame, keys, tuple(key))

    def fold(
        self,
        groups: Frame,
        exact: Frame,
        key: Sequence[str],
        alive: str,
        components: Sequence[Component],
        derived: Sequence[Derived],
    ) -> None:
        """Combine the changes of groups with the stored groups."""
        if isinstance(groups, DataFrame):
            spec = Fold("", "", tuple(key), tuple(components), tuple(derived), alive)
            recomputed = exact if isinstance(exact, DataFrame) else None
            self.outcome = self.writer.fold(groups, recomputed, spec)

    def run(self, plan: CompiledPlan) -> Outcome:
        """Run a plan's steps, the same that its printed program names."""
        named: dict[str, Frame] = {"": None}
        for step in plan.steps:
            self._run_step(step, named)
        return self.outcome

    def _run_step(self, step: Step, named: dict[str, Frame]) -> None:
        if isinstance(step, steps.Changes):
            named[step.name] = self.changes(step.table, step.columns)
        elif isinstance(step, steps.State):
            read = self.before if step.moment == "before" else self.after
            named[step.name] = read(step.table)
        elif isinstance(step, steps.Query):
            frames = {name: named[name] for name in step.frames}
            named[step.name] = self.sql(step.sql, **frames)
        elif isinstance(step, steps.Union):
            named[step.name] = self.union(*(named[part] for part in step.parts))
        elif isinstance(step, steps.Collect):
            named[step.name] = self.collect(named[step.frame])
        elif isinstance(step, steps.Apply):
            self.apply(named[step.frame])
        elif isinstance(step, steps.Replace):
            self.replace(named[step.frame], named[step.keys], step.key)
        else:
            self.fold(
                named[step.groups],
                named[step.exact],
                step.key,
                step.alive,
                step.components,
                step.derived,
            )

    def close(self) -> None:
        """Let go of what was kept."""
        for frame in self._kept:
            frame.unpersist()
        for view in self._views:
            self.spark.catalog.dropTempView(view)
        self.writer.close()

    def _relation(self, frame: Frame) -> str:
        if isinstance(frame, str):
            return frame
        if frame is None:
            raise StreamSqlError("INTERNAL", "an empty frame was planned")
        view = f"streamsql_frame_{next(_numbers)}"
        frame.createOrReplaceTempView(view)
        self._views.append(view)
        return view
