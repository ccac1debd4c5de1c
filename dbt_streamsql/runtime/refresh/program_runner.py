"""The meaning of a compiled program's steps, whatever engine computes the rows.

A printed program calls the same methods: its `epoch` is a `ProgramRunner`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dbt_streamsql.plan.algebra.expression import fill, holes
from dbt_streamsql.plan.algebra.relational import CLOCK
from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.program import steps
from dbt_streamsql.plan.program.steps import (
    Component,
    Derived,
    Fold,
    Lookup,
    Meeting,
    Step,
)
from dbt_streamsql.quoting import quote

Frame = str | None
"""A relation of the epoch as SQL that may follow FROM, or None when it is known to be empty."""

Times = tuple[int | None, int | None]
"""The time of the view's last epoch and of this one, in microseconds since 1970."""

Known = dict[tuple[str, int], Frame]
"""The changes of inputs that a program has requested so far, by table and TTL."""


class Relations(Protocol):
    """How an engine makes, reads and writes the relations of one epoch of one view.

    It receives Spark SQL over its own relations. Tables are inputs of the view.
    """

    def expect(self, changes: Sequence[steps.Changes], lookups: Sequence[Lookup]) -> None:
        """Announce the changes that a program reads, before it requests the first of them, and the
        rows that it looks up."""

    def size(self, table: str) -> int:
        """About how many rows an input has at this barrier."""

    def changes(
        self, table: str, columns: Sequence[str], meets: Sequence[Meeting], known: Known
    ) -> Frame:
        """The consolidated signed rows of an input.

        If it had to compute one of `known`, the result replaces that entry.
        """

    def lapsing(self, table: str, columns: Sequence[str], ttl: int) -> Frame:
        """The signed rows of an input whose old rows expire."""

    def before(self, table: str, *, met: bool, ttl: int) -> str:
        """The rows of an input as the view last saw it: see `steps.State`."""

    def after(self, table: str, *, met: bool, ttl: int) -> str:
        """The rows of an input at this barrier: see `steps.State`."""

    def stored(self) -> str:
        """The rows of the view itself before this epoch."""

    def looked_up(self, lookup: Lookup, rows: str, asking: str) -> str:
        """Of `rows`, at least those that the rows of `asking` ask for."""

    def suited(self, text: str) -> str:
        """The text of a query with only those hints that hold in this epoch."""

    def relation(self, sql: str) -> str:
        """The rows of a query."""

    def keep(self, relation: str) -> tuple[str, int]:
        """Compute a relation once; returns where it is kept and its number of rows."""

    def of_groups(self, ttl: int) -> tuple[int, int]:
        """Groups written before the first time have expired, others are written at the second;
        both in microseconds since 1970."""

    def apply(self, change: str) -> None:
        """Add signed rows to the view."""

    def replace(self, rows: str, keys: str, key: tuple[str, ...], *, single: bool) -> None:
        """The rows of the view under `keys` become `rows`."""

    def fold(self, groups: str, spec: Fold) -> None:
        """Combine the changes of groups with the stored groups, on top of earlier writes."""


def clock_row(micros: int | None) -> Frame:
    """The relation `now()` at a moment: its one row as SQL, None when there was no such moment."""
    if micros is None:
        return None
    now = f"timestamp_micros({int(micros)}L)"
    return f"(SELECT {now} AS now, CAST({now} AS DATE) AS today)"


@dataclass
class ProgramRunner:
    """Runs the steps of one program over the relations of one epoch."""

    relations: Relations
    clock: Times = (None, None)
    _changed: Known = field(default_factory=dict)
    _present: dict[str, set[str]] = field(default_factory=dict)

    def changes(
        self, table: str, columns: Sequence[str], meets: Sequence[Meeting] = (), ttl: int = 0
    ) -> Frame:
        """Signed rows of an input: `columns` and the weight; none for a constant ('').

        They are consolidated unless there is a `ttl`, see `steps.Changes`.
        """
        found: Frame = None
        if table == CLOCK:
            found = self._clock_change(columns)
        elif table and ttl:
            found = self.relations.lapsing(table, columns, ttl)
        elif table:
            found = self.relations.changes(table, columns, meets, self._changed)
        self._changed[table, ttl] = found
        return found

    def _clock_change(self, columns: Sequence[str]) -> Frame:
        names = ", ".join(quote(column) for column in columns)
        both = " UNION ALL ".join(
            f"SELECT {names}, {weight}L AS {WEIGHT} FROM {clock_row(at)}"
            for weight, at in zip((-1, 1), self.clock, strict=True)
        )
        return self.relations.relation(both)

    def before(self, table: str, *, met: bool = False, ttl: int = 0) -> Frame:
        """The input as the view last saw it; `met`: at least the rows that other changes meet.

        With a `ttl` it has only the rows that have not expired.
        """
        if table == CLOCK:
            return clock_row(self.clock[0])
        return self.relations.before(table, met=met, ttl=ttl)

    def after(self, table: str, *, met: bool = False, ttl: int = 0) -> Frame:
        """The input at this barrier; `met` and `ttl` as for `before`."""
        if table == CLOCK:
            return clock_row(self.clock[1])
        return self.relations.after(table, met=met, ttl=ttl)

    def looked_up(self, lookup: Lookup, rows: Frame, asking: Frame) -> Frame:
        """Of `rows`, at least those that are asked for; see `steps.Lookup`."""
        if rows is None or asking is None:
            return rows
        return self.relations.looked_up(lookup, rows, asking)

    def stored(self) -> Frame:
        """The rows of the view itself before this epoch."""
        return self.relations.stored()

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
        filled = fill(self.relations.suited(text), lambda name: str(frames[name]))
        return self.relations.relation(f"\n{filled}\n")

    def union(self, *parts: Frame) -> Frame:
        """UNION ALL of the parts that are not known to be empty; they have the same columns."""
        found = [f"SELECT * FROM {part}" for part in parts if part is not None]
        return self.relations.relation(" UNION ALL ".join(found)) if found else None

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
        text = sides[0]
        if len(sides) > 1:
            items = [f"any_value({quote(name)}, true) AS {quote(name)}" for name in every]
            both = " UNION ALL ".join(sides)
            text = f"SELECT {', '.join([keys, *items])} FROM ({both}) GROUP BY {keys}"
        made = self.relations.relation(text)
        self._present[made] = set(every)
        return made

    def collect(self, frame: Frame) -> Frame:
        """Compute once and keep; None when it turns out empty."""
        if frame is None:
            return None
        kept, count = self.relations.keep(frame)
        return kept if count else None

    def apply(self, frame: Frame) -> None:
        """Add signed rows to the view."""
        if frame is not None:
            self.relations.apply(frame)

    def replace(
        self, frame: Frame, keys: Frame, key: Sequence[str], *, single: bool = True
    ) -> None:
        """The rows of the view under `keys` become those of `frame`."""
        if frame is not None and keys is not None:
            self.relations.replace(frame, keys, tuple(key), single=single)

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
        if groups is None:
            return
        every = {part.column for part in components}
        lacking = tuple(sorted(every - self._present.get(groups, every)))
        parts = (tuple(key), tuple(components), tuple(derived), alive, lacking)
        spec = Fold("", *parts, ttl, *(self.relations.of_groups(ttl) if ttl else ()))
        self.relations.fold(groups, spec)

    def run(self, plan: CompiledPlan) -> None:
        """Run a plan's steps, the same as in its printed program."""
        named: dict[str, Frame] = {"": None}
        found = [step for step in plan.steps if isinstance(step, steps.Changes)]
        lookups = [step for step in plan.steps if isinstance(step, Lookup)]
        self.relations.expect(found, lookups)
        # The biggest input comes last: by then the changes that meet it are known.
        for each in sorted(found, key=lambda each: self._size(each.table)):
            self.changes(each.table, each.columns, each.meets, each.ttl)
        named |= {step.name: self._changed[step.table, step.ttl] for step in found}
        for step in plan.steps:
            if not isinstance(step, steps.Changes):
                self._run_step(step, named)

    def _size(self, table: str) -> int:
        return self.relations.size(table) if table not in ("", CLOCK) else 0

    def _run_step(self, step: Step, named: dict[str, Frame]) -> None:
        if isinstance(step, steps.State):
            read = self.before if step.moment == "before" else self.after
            named[step.name] = read(step.table, met=step.met, ttl=step.ttl)
        elif isinstance(step, Lookup):
            named[step.name] = self.looked_up(step, named[step.rows], named[step.asking])
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
        else:
            raise TypeError(f"no such step: {step}")
