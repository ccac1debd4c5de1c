"""The `epoch` object of a compiled program: changes and states of inputs, queries, the write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from dbt_streamsql.plan import steps
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.expression import fill, holes
from dbt_streamsql.plan.relational import CLOCK
from dbt_streamsql.plan.schema import WEIGHT
from dbt_streamsql.plan.steps import Component, Derived, Fold, Meeting, Step, asked
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.ages import Ages
from dbt_streamsql.runtime.feed import Feed
from dbt_streamsql.runtime.local import Local
from dbt_streamsql.runtime.outcome import Outcome
from dbt_streamsql.runtime.shared import Rows, Shared
from dbt_streamsql.runtime.write import Writer
from dbt_streamsql.storage import inputs
from dbt_streamsql.storage.iceberg import changes
from dbt_streamsql.storage.iceberg.changes import Change
from dbt_streamsql.storage.iceberg.metadata import Metadata
from dbt_streamsql.storage.iceberg.recent import Recent

_HINT = re.compile(r"/\*\+ BROADCAST\(\S+\) \*/ ")
Frame = str | None
"""A relation of the epoch as SQL that may follow FROM, or None when it is known to be empty."""


@dataclass(frozen=True)
class Reading:
    """An input of a job: where it is read and what changed.

    The change may lie in the feed of another view, or be shared by the epoch.
    """

    name: TableName
    meta: Metadata
    change: Change
    feed: Feed | None = None
    shared: Shared | None = None


def clock_row(micros: int | None) -> Frame:
    """The relation `now()` at a moment: its one row as SQL, None when there was no such moment."""
    if micros is None:
        return None
    now = f"timestamp_micros({int(micros)}L)"
    return f"(SELECT {now} AS now, CAST({now} AS DATE) AS today)"


@dataclass
class Frames:
    """Runs the steps of one program in one session; `outcome` is what was written.

    `clock` is the time of the view's last epoch and of this one; `ages` are the rows of its inputs
    that have expired.
    """

    spark: SparkSession
    reads: Mapping[str, Reading]
    local: Local
    writer: Writer
    clock: tuple[int | None, int | None] = (None, None)
    ages: Ages = field(default_factory=Ages)
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        rows = sum(read.change.rows for read in self.reads.values())
        self._hinted = rows <= self.writer.tuning.broadcast_rows
        # Adaptive execution runs every stage as a job of its own, which for a small change
        # costs more than it can win: the hints say already what is small.
        self.spark.conf.set("spark.sql.adaptive.enabled", not self._hinted)
        self.writer.small = self._hinted
        self.recent = Recent(self.spark, self.local.view)
        self._changed: dict[tuple[str, int], Frame] = {}
        self._rows_met: dict[str, str] = {}
        self._present: dict[str, set[str]] = {}

    def changes(
        self, table: str, columns: Sequence[str], meets: Sequence[Meeting] = (), ttl: int = 0
    ) -> Frame:
        """Signed rows of an input: `columns` and `_w`; none of a constant ('').

        They are consolidated unless there is a `ttl`, see `steps.Changes`.
        """
        if ttl:
            read = self.reads[table]
            found = changes.lapsing(
                read.name,
                read.meta,
                read.change,
                tuple(columns),
                self.ages.expired(table, ttl),
                partial(self.recent.rows, read.name, read.meta),
                self.recent.appended(read.name, read.change),
            )
        else:
            found = self._met(table, tuple(columns), meets) or self._changes(table, columns)
        self._changed[table, ttl] = found
        return found

    def _changes(self, table: str, columns: Sequence[str]) -> Frame:
        """Signed rows of what a table (or the clock) gained and lost; None when there are none."""
        if not table:
            return None
        names = ", ".join(quote(column) for column in columns)
        if table == CLOCK:
            both = " UNION ALL ".join(
                f"SELECT {names}, {weight}L AS {WEIGHT} FROM {clock_row(at)}"
                for weight, at in zip((-1, 1), self.clock, strict=True)
            )
            return f"({both})"
        read = self.reads[table]
        if read.change.kind == "none":
            return None
        if isinstance(read.shared, Rows):
            known = self.local.rows(read.shared)
        elif read.shared is not None:
            known = read.shared.name
        elif read.feed is not None:
            known = self.local.view(read.feed.read(self.spark))
        else:
            return self._read(read, tuple(columns))
        rows = f"SELECT {self._single(read)}{names}, {WEIGHT} FROM {known}"
        if read.change.insert_only:
            return f"({rows})"
        return (
            f"(SELECT {names}, sum({WEIGHT}) AS {WEIGHT} FROM ({rows}) "
            f"GROUP BY {names} HAVING sum({WEIGHT}) <> 0)"
        )

    def _met(self, table: str, columns: tuple[str, ...], meets: Sequence[Meeting]) -> Frame:
        """The change of a big table, read together with the rows that other changes meet.

        None where the two are not one read, or where the other changes are not known yet.
        """
        read = self.reads.get(table)
        moved = {name for name, other in self.reads.items() if other.change.kind != "none"}
        ways = asked(table, meets, moved)
        if read is None or not ways or not self._hinted or read.shared or read.feed:
            return None
        big = self._rows(table) >= self.writer.tuning.big_rows
        if not big or not changes.is_flagged(read.meta, read.change):
            return None
        others = {way.other for way in ways}
        if not {(other, 0) for other in others} <= set(self._changed):
            return None
        self._changed |= {(other, 0): self.collect(self._changed[other, 0]) for other in others}
        keys: dict[str, list[str]] = {}
        for way in ways:
            if (known := self._changed[way.other, 0]) is not None:
                value = quote(way.other_column)
                asking = f"SELECT DISTINCT {value} AS k FROM {known} WHERE {value} IS NOT NULL"
                keys.setdefault(way.column, []).append(asking)
        unique = {column: f"({' UNION '.join(asking)})" for column, asking in keys.items()}
        sql = changes.around(read.name, read.meta, read.change, columns, unique)
        rows = self.local.collect(sql, small=False).name
        self._rows_met[table] = rows
        return changes.change_around(rows, columns)

    def _read(self, read: Reading, columns: tuple[str, ...]) -> Frame:
        found = inputs.read(read.name, read.meta, read.change, columns)
        hint = self._single(read)
        if read.change.kind != "append" or not hint:
            return found
        return f"(SELECT {hint}* FROM {found})"

    def _single(self, read: Reading) -> str:
        """A hint that puts a small change into one task: what groups it needs no shuffle then."""
        single = read.change.rows <= self.writer.tuning.single_rows
        return "/*+ COALESCE(1) */ " if single else ""

    def before(self, table: str, *, met: bool = False, ttl: int = 0) -> Frame:
        """The input as the view last saw it; `met`: at least the rows that other changes meet.

        With a `ttl` it has only the rows that have not expired.
        """
        if met and table in self._rows_met:
            return f"(SELECT * FROM {self._rows_met[table]} WHERE NOT {changes.FRESH})"
        if table == CLOCK:
            return clock_row(self.clock[0])
        read = self.reads[table]
        if ttl:
            return self._live(read, read.change.old, self.ages.expired(table, ttl))
        return inputs.version(read.name, read.change.old)

    def after(self, table: str, *, met: bool = False, ttl: int = 0) -> Frame:
        """The input at this barrier; `met` and `ttl` as for `before`."""
        if met and table in self._rows_met:
            return f"(SELECT * FROM {self._rows_met[table]} WHERE NOT {changes.GONE})"
        if table == CLOCK:
            return clock_row(self.clock[1])
        read = self.reads[table]
        if ttl:
            # What came in this epoch is there in it, however long ago it was written.
            expired = min(self.ages.expired(table, ttl), changes.sequence(read.meta, read.change))
            return self._live(read, read.change.new, expired)
        return inputs.version(read.name, read.change.new)

    def _live(self, read: Reading, snapshot: int | None, expired: int) -> str:
        if snapshot is None or expired <= 0:
            return inputs.version(read.name, snapshot)
        return changes.live(self.recent.rows(read.name, read.meta, snapshot, expired))

    def stored(self) -> Frame:
        """The rows of the view itself before this epoch."""
        return inputs.version(self.writer.table, self.writer.base)

    def sql(
        self,
        text: str,
        /,
        when: Iterable[Frame] = (),
        unless: Iterable[Frame] = (),
        **frames: Frame,
    ) -> Frame:
        """A query over frames; None when one of them is empty, or one of `unless` is not."""
        if any(frame is None for frame in (*frames.values(), *when)):
            return None
        if any(frame is not None for frame in unless):
            return None
        if not self._hinted:
            text = _HINT.sub("", text)
        return f"(\n{fill(text, lambda name: str(frames[name]))}\n)"

    def union(self, *parts: Frame) -> Frame:
        """UNION ALL of the parts that are not known to be empty; they have the same columns."""
        found = [f"SELECT * FROM {part}" for part in parts if part is not None]
        return f"({' UNION ALL '.join(found)})" if found else None

    def together(self, *parts: tuple[Frame, Sequence[str]], key: Sequence[str]) -> Frame:
        """The changes of several branches, one row for each key; see `steps.Together`."""
        found = [(frame, list(columns)) for frame, columns in parts if frame is not None]
        if not found:
            return None
        keys = ", ".join(quote(name) for name in key)
        every = [name for _, columns in found for name in columns]
        sides = []
        for frame, columns in found:
            items = [quote(n) if n in columns else f"NULL AS {quote(n)}" for n in every]
            sides.append(f"SELECT {', '.join([keys, *items])} FROM {frame}")
        if len(sides) == 1:
            text = f"({sides[0]})"
        else:
            items = [f"any_value({quote(name)}, true) AS {quote(name)}" for name in every]
            both = " UNION ALL ".join(sides)
            text = f"(SELECT {', '.join([keys, *items])} FROM ({both}) GROUP BY {keys})"
        self._present[text] = set(every)
        return text

    def collect(self, frame: Frame) -> Frame:
        """Compute once and keep; None when it turns out empty."""
        if frame is None:
            return None
        kept = self.local.kept(frame, small=self._hinted)
        return kept.name if kept.count else None

    def apply(self, frame: Frame) -> None:
        """Add signed rows to the view."""
        if frame is not None:
            self.outcome = self.writer.signed(frame)

    def replace(
        self, frame: Frame, keys: Frame, key: Sequence[str], *, single: bool = True
    ) -> None:
        """The rows of the view under `keys` become those of `frame`."""
        if frame is not None and keys is not None:
            self.outcome = self.writer.replace(frame, keys, tuple(key), single=single)

    def fold(
        self,
        groups: Frame,
        key: Sequence[str],
        alive: str,
        components: Sequence[Component],
        derived: Sequence[Derived],
        ttl: int = 0,
    ) -> None:
        """Combine the changes of groups with the stored groups."""
        if groups is not None:
            every = {part.column for part in components}
            lacking = tuple(sorted(every - self._present.get(groups, every)))
            parts = (tuple(key), tuple(components), tuple(derived), alive, lacking)
            spec = Fold("", *parts, ttl, *(self.ages.of_groups(ttl) if ttl else ()))
            self.outcome = self.writer.then(self.outcome, partial(self.writer.fold, groups, spec))

    def run(self, plan: CompiledPlan) -> Outcome:
        """Run a plan's steps, the same that its printed program names."""
        named: dict[str, Frame] = {"": None}
        found = [step for step in plan.steps if isinstance(step, steps.Changes)]
        self.recent.fixed = frozenset(step.table for step in found if not step.ttl)
        for each in sorted(found, key=lambda each: self._rows(each.table)):
            self.changes(each.table, each.columns, each.meets, each.ttl)
        named |= {step.name: self._changed[step.table, step.ttl] for step in found}
        for step in plan.steps:
            if not isinstance(step, steps.Changes):
                self._run_step(step, named)
        return self.outcome

    def _rows(self, table: str) -> int:
        read = self.reads.get(table)
        return read.meta.live_rows(read.change.new) if read is not None else 0

    def _run_step(self, step: Step, named: dict[str, Frame]) -> None:
        if isinstance(step, steps.State):
            read = self.before if step.moment == "before" else self.after
            named[step.name] = read(step.table, met=step.met, ttl=step.ttl)
        elif isinstance(step, steps.Stored):
            named[step.name] = self.stored()
        elif isinstance(step, steps.Query):
            when, unless = ([named[n] for n in names] for names in (step.when, step.unless))
            frames = {name: named[name] for name in holes(step.sql)}
            named[step.name] = self.sql(step.sql, when, unless, **frames)
        elif isinstance(step, steps.Union):
            named[step.name] = self.union(*(named[part] for part in step.parts))
        elif isinstance(step, steps.Together):
            parts = [(named[part.frame], part.columns) for part in step.parts]
            named[step.name] = self.together(*parts, key=step.key)
        elif isinstance(step, steps.Collect):
            named[step.name] = self.collect(named[step.frame])
        elif isinstance(step, steps.Apply):
            self.apply(named[step.frame])
        elif isinstance(step, steps.Replace):
            self.replace(named[step.frame], named[step.keys], step.key, single=step.single)
        elif isinstance(step, Fold):
            self.fold(
                named[step.groups],
                step.key,
                step.alive,
                step.components,
                step.derived,
                step.ttl,
            )

    def close(self) -> None:
        """Let go of what was kept."""
        self.recent.close()
        self.local.close()
        self.spark.conf.set("spark.sql.adaptive.enabled", True)
