"""Collects the steps of a program: named frames, shared frames kept, one change per table."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dbt_streamsql.compiler.codegen.equal_columns import Pairs
from dbt_streamsql.compiler.codegen.join_lookups import key_of, meetings
from dbt_streamsql.plan.algebra.catalog import TableInfo
from dbt_streamsql.plan.algebra.expression import escape, every_hole
from dbt_streamsql.plan.algebra.likeness import grouped, typed
from dbt_streamsql.plan.algebra.relational import CLOCK, Chosen, Node, Scan, walk
from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.plan.definition.table_key import TableKey
from dbt_streamsql.plan.program.steps import (
    Changes,
    Collect,
    KeyKind,
    Lookup,
    Part,
    Query,
    State,
    Step,
    Stored,
    Together,
    Union,
)
from dbt_streamsql.quoting import quote

_UNSAFE = re.compile(r"\W+")


@dataclass
class Emitter:
    """The steps in execution order; every method returns the name of a frame.

    `keys` and `tables` are what is known of the tables that `root` reads.
    """

    root: Node
    steps: list[Step] = field(default_factory=list)
    keys: Collection[TableKey] = ()
    tables: Mapping[str, TableInfo] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._taken: set[str] = set()
        self._short: dict[str, str] = {}
        self._states: dict[tuple[str, int, str, bool], str] = {}
        self._lookups: dict[tuple[str, ...], str] = {}
        self._meetings = meetings(self.root)
        self._changes: dict[tuple[str, int], str] = {}
        self.deltas: dict[Node, str] = {}

    def changes(self, table: str, ttl: int = 0) -> str:
        """The change of a table: the columns that any scan of it uses, plus the weight.

        The table '' stands for a table that never changes.
        """
        if (table, ttl) not in self._changes:
            columns = dict.fromkeys(
                column
                for leaf in walk(self.root)
                if isinstance(leaf, Scan) and (leaf.table, leaf.ttl) == (table, ttl)
                for column in leaf.columns
            )
            name = self._name(f"d_{self._table(table)}" if table else "nothing")
            self._changes[table, ttl] = name
            meets = self._meetings.get(table, ())
            self.steps.append(Changes(name, table, tuple(columns), meets, ttl))
        return self._changes[table, ttl]

    def state(self, scan: Scan, moment: str, pairs: Pairs = (), frame: str = "") -> str:
        """The hole for the rows of a table `before` or `after` the epoch.

        `pairs` (column, operator, column of `frame`): the change that a join term starts from, or
        rows of it that are joined already, join rows by these equalities, and need no others.
        """
        met = bool(frame) and scan.table in self._meetings
        key = (scan.table, scan.ttl, moment, met)
        if key not in self._states:
            self._states[key] = self._name(f"{self._table(scan.table)}_{moment}{'_met' * met}")
            self.steps.append(State(self._states[key], scan.table, moment, met, scan.ttl))
        if isinstance(scan, Chosen):
            pairs, frame = scan.pairs, scan.frame
        elif scan.ttl:
            pairs = ()
        rows = self._states[key]
        for pair in pairs if scan.table != CLOCK else ():
            rows = self._looked_up(rows, scan, moment, pair, frame)
        return "{" + rows + "}"

    def _looked_up(
        self, rows: str, scan: Scan, moment: str, pair: tuple[str, str, str], frame: str
    ) -> str:
        key = (rows, *pair, frame)
        if key not in self._lookups:
            column, operator, other = pair
            name = self._lookups[key] = self._name(f"{rows}_of_{frame}")
            about = (scan.table, moment, column, frame, other, operator != "=")
            self.steps.append(Lookup(name, rows, *about, *self._key(scan, column)))
        return self._lookups[key]

    def _key(self, scan: Scan, column: str) -> tuple[KeyKind, str, str]:
        """What keys say of a column: `Lookup.by`, `parent` and `to`."""
        if scan.ttl:
            # An expired parent or child is not in a change.
            return "", "", ""
        info = self.tables.get(scan.table)
        if info is not None and column.lower() in map(str.lower, info.unique):
            return "key", "", ""
        return key_of(scan.table, column, self.keys)

    def looked_up(self, rows: str) -> str:
        """The frame of a hole, if its rows are looked up; ''."""
        name = rows[1:-1]
        return name if name in self._lookups.values() else ""

    def before(self, scan: Scan) -> str:
        return self.state(scan, "before")

    def after(self, scan: Scan) -> str:
        return self.state(scan, "after")

    def stored(self) -> str:
        """The hole for the rows of the view itself before the epoch."""
        name = self._name("stored")
        self.steps.append(Stored(name))
        return "{" + name + "}"

    def query(
        self, wanted: str, sql: str, when: tuple[str, ...] = (), unless: tuple[str, ...] = ()
    ) -> str:
        name = self._name(wanted)
        self.steps.append(Query(name, sql, when, unless))
        return name

    def union(self, wanted: str, parts: list[str]) -> str:
        if len(parts) == 1:
            return parts[0]
        name = self._name(wanted)
        self.steps.append(Union(name, tuple(parts)))
        return name

    def together(self, parts: tuple[Part, ...], key: tuple[str, ...]) -> str:
        name = self._name("together")
        self.steps.append(Together(name, parts, key))
        return name

    def collect(self, wanted: str, frame: str) -> str:
        name = self._name(wanted)
        self.steps.append(Collect(name, frame))
        return name

    def consolidated(
        self, wanted: str, frame: str, columns: Sequence[str], unlike: Mapping[str, str]
    ) -> str:
        """Add up the weights of equal rows and drop those that cancel.

        `unlike`: the columns that Spark does not compare, with their types.
        """
        shown, keys = map(escape, grouped(typed(columns, unlike), quote))
        return self.query(
            wanted,
            f"SELECT {shown}, sum({WEIGHT}) AS {WEIGHT}\nFROM {{{frame}}}\n"
            f"GROUP BY {keys}\nHAVING sum({WEIGHT}) <> 0",
        )

    def finished(self) -> tuple[Step, ...]:
        """The steps, with a `Collect` after each derived frame that several steps read."""
        uses: dict[str, int] = {}
        for step in self.steps:
            for frame in _reads(step):
                uses[frame] = uses.get(frame, 0) + 1
        kept: list[Step] = []
        renamed: dict[str, str] = {}
        for step in self.steps:
            kept.append(_rename(step, renamed))
            name = getattr(step, "name", "")
            if isinstance(step, Changes | Query | Union) and uses.get(name, 0) > 1:
                renamed[name] = self._name(f"{name}_kept")
                kept.append(Collect(renamed[name], name))
        return tuple(kept)

    def _table(self, table: str) -> str:
        if table not in self._short:
            last = _UNSAFE.sub("_", table.rpartition(".")[2].lower()).strip("_") or "t"
            last = f"t_{last}" if last[0].isdigit() else last
            name, number = last, 2
            while name in self._short.values():
                name, number = f"{last}_{number}", number + 1
            self._short[table] = name
        return self._short[table]

    def _name(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name


def _reads(step: Step) -> tuple[str, ...]:
    """The frames whose rows a step reads, as often as it reads them."""
    if isinstance(step, Query):
        return tuple(every_hole(step.sql))
    if isinstance(step, Union):
        return step.parts
    if isinstance(step, Together):
        return tuple(part.frame for part in step.parts)
    return (step.frame,) if isinstance(step, Collect) else ()


def _rename(step: Step, renamed: dict[str, str]) -> Step:
    if isinstance(step, Query):
        sql = step.sql
        for old, new in renamed.items():
            sql = sql.replace("{" + old + "}", "{" + new + "}")
        when, unless = (
            tuple(renamed.get(frame, frame) for frame in frames)
            for frames in (step.when, step.unless)
        )
        return Query(step.name, sql, when, unless)
    if isinstance(step, Union):
        return Union(step.name, tuple(renamed.get(part, part) for part in step.parts))
    if isinstance(step, Together):
        parts = (replace(part, frame=renamed.get(part.frame, part.frame)) for part in step.parts)
        return replace(step, parts=tuple(parts))
    if isinstance(step, Lookup):
        return replace(step, asking=renamed.get(step.asking, step.asking))
    if isinstance(step, Collect):
        return Collect(step.name, renamed.get(step.frame, step.frame))
    return step
