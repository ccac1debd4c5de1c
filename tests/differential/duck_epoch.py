"""Runs a compiled plan on DuckDB: the `epoch` object of a program, and the view's stored rows.

It means the same as `runtime.frames.Frames` and `runtime.write.Writer`. A frame is the name of a
temporary table, or None when it is known to be empty; names follow from the text that fills them,
so that every epoch runs the same statements and they are translated once.

New kinds of steps: a method here, as the printed program calls it, and a line in `DISPATCH`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2s
from typing import Any

from dbt_streamsql.plan import steps
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.expression import fill, holes
from dbt_streamsql.plan.fold_values import fold_values
from dbt_streamsql.plan.redefinition import NOW, STORED
from dbt_streamsql.plan.schema import WEIGHT
from dbt_streamsql.plan.steps import Component, Derived, Fold, Meeting, asked
from dbt_streamsql.quoting import quote
from tests.differential.duck_dialect import to_duck, to_duck_type
from tests.differential.duck_world import DuckWorld

Frame = str | None


class Mismatch(AssertionError):
    """A change takes back rows that the view does not hold."""


class DuckEpoch:
    """One view: its plan, its stored rows in DuckDB, and the epochs that they go through."""

    def __init__(self, world: DuckWorld, plan: CompiledPlan, name: str) -> None:
        self.world = world
        self.plan = plan
        self._rows = f"lake.v.{name}"
        self.columns = (*plan.columns, *plan.hidden)
        self._normal: dict[str, str] = {}
        self._program: dict[str, Any] = {}
        self._meets: dict[str, Sequence[Meeting]] = {}
        self._present: dict[str, set[str]] = {}
        self.fresh: frozenset[str] = frozenset()
        """Inputs that the stored rows are made of as they are now."""
        self.writes = 0

    # -- filling and comparing ---------------------------------------------------------------

    @property
    def full(self) -> str:
        """The query that fills the view with its hidden columns, for DuckDB."""
        if not self.plan.full_sql:
            return to_duck(self.plan.sql)
        return to_duck(self.plan.filled(self.world.now))

    def fill(self) -> None:
        """A full refresh."""
        self._store(f"({self.full})")

    def follow(self, old: DuckEpoch, sql: str) -> None:
        """The stored rows follow from those of an old definition, as a redefinition says."""

        def read(hole: str) -> str:
            if hole == STORED:
                return old._rows
            if hole == NOW:
                return str(self.world.of_groups(0)[1])
            table = self.plan.tables[int(hole.removeprefix("t"))]
            return (
                self.world.before(table) if table in old.plan.tables else self.world.after(table)
            )

        self.fresh = frozenset(self.plan.tables) - frozenset(old.plan.tables)
        self._store(f"({to_duck(fill(sql, read))})")

    def _store(self, rows: str) -> None:
        """The stored rows become `rows`, in the types that the plan promises."""
        items = ", ".join(
            f"CAST({_name(c.name)} AS {to_duck_type(c.type)}) AS {_name(c.name)}"
            if c.type != "void"
            else _name(c.name)
            for c in self.columns
        )
        self.world.run(f"CREATE OR REPLACE TEMP TABLE coming AS SELECT {items} FROM {rows}")
        self.world.run(f"CREATE OR REPLACE TABLE {self._rows} AS FROM coming")

    # -- what a program calls ----------------------------------------------------------------

    def changes(
        self, table: str, columns: Sequence[str], meets: Sequence[Meeting] = (), ttl: int = 0
    ) -> Frame:
        """Signed rows of an input: `columns` and `_w`, consolidated unless there is a `ttl`."""
        self._meets[table] = meets
        if not table or table in self.fresh or self.world.unchanged(table):
            return None
        names = ", ".join(_name(column) for column in columns)
        if ttl:
            return self._table(f"SELECT {names}, {WEIGHT} FROM {self.world.lapsing(table, ttl)}")
        return self._table(
            f"SELECT {names}, CAST(sum({WEIGHT}) AS BIGINT) AS {WEIGHT} "
            f"FROM {self.world.changed(table)} GROUP BY {names} HAVING sum({WEIGHT}) <> 0"
        )

    def before(self, table: str, *, met: bool = False, ttl: int = 0) -> Frame:
        """The input as the view last saw it; `met`: only the rows that other changes meet."""
        if ttl:
            return self.world.live(table, "before", ttl)
        if table in self.fresh:
            return self.after(table, met=met)
        return self._met(table, self.world.before(table)) if met else self.world.before(table)

    def after(self, table: str, *, met: bool = False, ttl: int = 0) -> Frame:
        """The input at this barrier; `met` as for `before`."""
        if ttl:
            return self.world.live(table, "after", ttl)
        return self._met(table, self.world.after(table)) if met else self.world.after(table)

    def _met(self, table: str, rows: str) -> Frame:
        moved = {name for name in self.plan.tables if not self.world.unchanged(name)}
        keys = " OR ".join(
            f"{_name(way.column)} IN (SELECT {_name(way.other_column)} "
            f"FROM {self.world.changed(way.other)})"
            for way in asked(table, self._meets[table], moved)
        )
        return f"(SELECT * FROM {rows} WHERE {keys})" if keys else rows

    def stored(self) -> Frame:
        """The rows of the view itself before this epoch."""
        return self._rows

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
        return self._table(to_duck(fill(text, lambda name: str(frames[name]))))

    def union(self, *parts: Frame) -> Frame:
        """UNION ALL of the parts that are not known to be empty."""
        found = [f"SELECT * FROM {part}" for part in parts if part is not None]
        return self._table(" UNION ALL ".join(found)) if found else None

    def together(self, *parts: tuple[Frame, Sequence[str]], key: Sequence[str]) -> Frame:
        """The changes of several branches, one row for each key."""
        found = [(frame, list(columns)) for frame, columns in parts if frame is not None]
        if not found:
            return None
        keys = ", ".join(map(_name, key))
        sides = " UNION ALL BY NAME ".join(
            f"SELECT {', '.join([keys, *map(_name, columns)])} FROM {frame}"
            for frame, columns in found
        )
        every = [name for _, columns in found for name in columns]
        items = ", ".join(f"any_value({_name(name)}) AS {_name(name)}" for name in every)
        made = self._table(f"SELECT {keys}, {items} FROM ({sides}) GROUP BY {keys}")
        self._present[made] = set(every)
        return made

    def collect(self, frame: Frame) -> Frame:
        """The frame, or None when it turns out empty."""
        if frame is None or not self._count(f"SELECT count(*) FROM {frame}"):
            return None
        return frame

    def apply(self, frame: Frame) -> None:
        """Add signed rows to the view; `Mismatch` when they take back what is not there."""
        if frame is None:
            return
        names = ", ".join(_name(column.name) for column in self.plan.columns)
        self.world.run(
            f"CREATE OR REPLACE TEMP TABLE summed AS SELECT {names}, sum(__n) AS __n FROM ("
            f"SELECT {names}, 1 AS __n FROM {self._rows} "
            f"UNION ALL SELECT {names}, {WEIGHT} FROM {frame}) GROUP BY {names} HAVING sum(__n) <> 0"
        )
        if self._count("SELECT count(*) FROM summed WHERE __n < 0"):
            rows = self.world.rows("SELECT * FROM summed WHERE __n < 0 LIMIT 5")
            raise Mismatch(f"rows taken back that are not in the view: {rows}")
        self.writes += 1
        self._store(f"(SELECT {names}, unnest(range(__n::BIGINT)) FROM summed)")

    def replace(
        self, frame: Frame, keys: Frame, key: Sequence[str], *, single: bool = True
    ) -> None:
        """The rows of the view under `keys` become those of `frame`."""
        if frame is None or keys is None:
            return
        names = ", ".join(_name(column.name) for column in self.columns)
        listed = ", ".join(map(_name, key)) or "()"
        counts = f"SELECT count(*) AS n FROM {frame} GROUP BY {listed}"
        most = f"SELECT coalesce(max(n), 0) FROM ({counts})"
        if single and self._count(most) > 1:
            raise Mismatch("several rows for a key that is said to have one")
        kept = f"SELECT {names} FROM {self._rows} t"
        kept += f" ANTI JOIN {keys} k ON {_same(key, 't', 'k')}" if key else " WHERE false"
        self.writes += 1
        self._store(f"({kept} UNION ALL SELECT {names} FROM {frame})")

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
        spec = Fold("", *parts, ttl, *(self.world.of_groups(ttl) if ttl else ()))
        on = " AND ".join(f"s.{quote(c)} <=> t.{quote(c)}" for c in key) or "true"
        values = fold_values(spec, "t", "s")
        names = [column.name for column in self.columns]
        items = ", ".join(f"{values[name]} AS {quote(name)}" for name in names)
        lives = f" WHERE {values[alive]} > 0" if alive else ""
        new = to_duck(f"SELECT {items} FROM {groups} s LEFT JOIN {self._rows} t ON {on}{lives}")
        listed = ", ".join(map(_name, names))
        kept = f"SELECT {listed} FROM {self._rows} t"
        kept += f" ANTI JOIN {groups} s ON {_same(key, 't', 's')}" if key else " WHERE false"
        self.writes += 1
        self._store(f"({kept} UNION ALL SELECT {listed} FROM ({new}))")

    # -- the two ways through a plan ---------------------------------------------------------

    def run(self, *, printed: bool = False) -> None:
        """One epoch, by the steps or by the program that the plan prints."""
        if printed:
            if not self._program:
                exec(compile(self.plan.program, "program", "exec"), self._program)  # noqa: S102
            self._program["advance"](self)
            return
        named: dict[str, Frame] = {"": None}
        for step in self.plan.steps:
            made = DISPATCH[type(step)](self, step, named)
            if hasattr(step, "name"):
                named[step.name] = made

    # -- frames ------------------------------------------------------------------------------

    def _table(self, sql: str) -> str:
        """A temporary table with the rows of a query, in types that Spark has too."""
        name = "f_" + blake2s(sql.encode(), digest_size=6).hexdigest()
        known = self._normal.get(name)
        if known is None:
            described = self.world.rows(f"DESCRIBE {sql}")
            wide = [row[0] for row in described if row[1] in {"HUGEINT", "UHUGEINT"}]
            casts = ", ".join(f"CAST({_name(c)} AS BIGINT) AS {_name(c)}" for c in wide)
            known = f"SELECT * REPLACE ({casts}) FROM ({sql})" if wide else sql
            self._normal[name] = known = f"CREATE OR REPLACE TEMP TABLE {name} AS {known}"
        self.world.run(known)
        return name

    def _count(self, sql: str) -> int:
        return self.world.rows(sql)[0][0]


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _same(columns: Sequence[str], left: str, right: str) -> str:
    terms = (f"{left}.{_name(c)} IS NOT DISTINCT FROM {right}.{_name(c)}" for c in columns)
    return " AND ".join(terms)


def _query(epoch: DuckEpoch, step: steps.Query, named: dict[str, Frame]) -> Frame:
    frames = {name: named[name] for name in holes(step.sql)}
    when, unless = ([named[name] for name in names] for names in (step.when, step.unless))
    return epoch.sql(step.sql, when, unless, **frames)


def _fold(epoch: DuckEpoch, step: Fold, named: dict[str, Frame]) -> None:
    epoch.fold(
        named[step.groups],
        step.key,
        step.alive,
        step.components,
        step.derived,
        step.ttl,
    )


DISPATCH: dict[type, Callable[[DuckEpoch, Any, dict[str, Frame]], Frame | None]] = {
    steps.Changes: lambda epoch, step, named: epoch.changes(
        step.table, step.columns, step.meets, step.ttl
    ),
    steps.State: lambda epoch, step, named: (
        epoch.before if step.moment == "before" else epoch.after
    )(step.table, met=step.met, ttl=step.ttl),
    steps.Stored: lambda epoch, step, named: epoch.stored(),
    steps.Query: _query,
    steps.Union: lambda epoch, step, named: epoch.union(*(named[part] for part in step.parts)),
    steps.Together: lambda epoch, step, named: epoch.together(
        *((named[part.frame], part.columns) for part in step.parts), key=step.key
    ),
    steps.Collect: lambda epoch, step, named: epoch.collect(named[step.frame]),
    steps.Apply: lambda epoch, step, named: epoch.apply(named[step.frame]),
    steps.Replace: lambda epoch, step, named: epoch.replace(
        named[step.frame], named[step.keys], step.key, single=step.single
    ),
    steps.Fold: _fold,
}
"""How each kind of step is run; a kind that is missing is an error."""
