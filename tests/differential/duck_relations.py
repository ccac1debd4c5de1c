"""The relations of an epoch in DuckDB, and the view's stored rows.

A relation is the name of a table; names follow from the text that fills them, so that every epoch
runs the same statements and they are translated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2s

from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.program import steps
from dbt_streamsql.plan.program.fold_values import folded_rows
from dbt_streamsql.plan.program.steps import Fold, Lookup, Meeting, asked
from dbt_streamsql.quoting import quote
from tests.differential.duck_dialect import to_duck, to_duck_type
from tests.differential.duck_world import DuckWorld
from tests.support.product import Column, Frame, Known, consolidated


class Mismatch(AssertionError):
    """A change takes back rows that the view does not hold."""


class DuckRelations:
    """Those of one view, whose rows are the table `lake.v.<name>`, in all of its epochs."""

    def __init__(self, world: DuckWorld, plan: CompiledPlan, name: str) -> None:
        self.world = world
        self.plan = plan
        self.rows = f"lake.v.{name}"
        self.columns = (*plan.columns, *plan.hidden)
        self.fresh: frozenset[str] = frozenset()
        """Inputs that the stored rows are made of as they are now."""
        self.writes = 0
        self._statements: dict[str, str] = {}
        self._meets: dict[str, Sequence[Meeting]] = {}

    def store(self, rows: str) -> None:
        """The stored rows become `rows`, in the types that the plan promises."""
        items = ", ".join(
            f"CAST({_name(c.name)} AS {to_duck_type(c.type)}) AS {_name(c.name)}"
            if c.type != "void"
            else _name(c.name)
            for c in self.columns
        )
        self.world.run(f"CREATE OR REPLACE TEMP TABLE coming AS SELECT {items} FROM {rows}")
        self.world.run(f"CREATE OR REPLACE TABLE {self.rows} AS FROM coming")

    # -- inputs ------------------------------------------------------------------------------

    def expect(self, changes: Sequence[steps.Changes], lookups: Sequence[Lookup]) -> None:
        """There is one way to read them."""

    def looked_up(self, lookup: Lookup, rows: str, asking: str) -> str:
        """Only the rows that are asked for."""
        own, key = f"r.{quote(lookup.column)}", f"k.{quote(lookup.key)}"
        same = f"{own} IS NOT DISTINCT FROM {key}" if lookup.nulls else f"{own} = {key}"
        return self.relation(
            f"SELECT * FROM {rows} r WHERE EXISTS (SELECT 1 FROM {asking} k WHERE {same})"
        )

    def size(self, table: str) -> int:
        """The rows that the table has now."""
        return self._count(f"SELECT count(*) FROM {self.world.after(table)}")

    def changes(
        self, table: str, columns: Sequence[str], meets: Sequence[Meeting], known: Known
    ) -> Frame:
        """What `DuckWorld.advance` has found, over some of the columns."""
        self._meets[table] = meets
        if self._still(table):
            return None
        names = ", ".join(map(quote, columns))
        signed = f"SELECT {names}, {WEIGHT} FROM {self.world.changed(table)}"
        typed = [Column(name, "") for name in columns]
        return self.relation(f"SELECT * FROM {consolidated(signed, typed)}")

    def lapsing(self, table: str, columns: Sequence[str], ttl: int) -> Frame:
        """What the world says has come, and has gone before it expired."""
        if self._still(table):
            return None
        names = ", ".join(map(quote, columns))
        return self.relation(f"SELECT {names}, {WEIGHT} FROM {self.world.lapsing(table, ttl)}")

    def _still(self, table: str) -> bool:
        return table in self.fresh or self.world.unchanged(table)

    def before(self, table: str, *, met: bool, ttl: int) -> str:
        """The table as it was; `met`: only the rows that other changes meet."""
        if ttl:
            return self.world.live(table, "before", ttl)
        if table in self.fresh:
            return self.after(table, met=met, ttl=0)
        rows = self.world.before(table)
        return self._met(table, rows) if met else rows

    def after(self, table: str, *, met: bool, ttl: int) -> str:
        """The table as it is; `met` as for `before`."""
        if ttl:
            return self.world.live(table, "after", ttl)
        rows = self.world.after(table)
        return self._met(table, rows) if met else rows

    def _met(self, table: str, rows: str) -> str:
        moved = {name for name in self.plan.tables if not self.world.unchanged(name)}
        keys = " OR ".join(
            f"{quote(way.column)} IN (SELECT {quote(way.other_column)} "
            f"FROM {self.world.changed(way.other)})"
            for way in asked(table, self._meets[table], moved)
        )
        return self.relation(f"SELECT * FROM {rows} WHERE {keys}") if keys else rows

    # -- queries -----------------------------------------------------------------------------

    def stored(self) -> str:
        """The rows of the view itself before this epoch."""
        return self.rows

    def suited(self, text: str) -> str:
        """DuckDB has no hints, which `to_duck` leaves out, and no files to skip."""
        return text

    def relation(self, sql: str) -> str:
        """A temporary table with the rows of a query, in types that Spark has too."""
        translated = to_duck(sql)
        name = "f_" + blake2s(translated.encode(), digest_size=6).hexdigest()
        known = self._statements.get(name)
        if known is None:
            described = self.world.rows(f"DESCRIBE {translated}")
            wide = [row[0] for row in described if row[1] in {"HUGEINT", "UHUGEINT"}]
            casts = ", ".join(f"CAST({_name(c)} AS BIGINT) AS {_name(c)}" for c in wide)
            known = f"SELECT * REPLACE ({casts}) FROM ({translated})" if wide else translated
            self._statements[name] = known = f"CREATE OR REPLACE TEMP TABLE {name} AS {known}"
        self.world.run(known)
        return name

    def keep(self, relation: str) -> tuple[str, int]:
        """It is a table already."""
        return relation, self._count(f"SELECT count(*) FROM {relation}")

    def of_groups(self, ttl: int) -> tuple[int, int]:
        """By the clock of the world."""
        return self.world.of_groups(ttl)

    # -- the view ----------------------------------------------------------------------------

    def apply(self, change: str) -> None:
        """Add signed rows; `Mismatch` when they take back what is not there."""
        names = ", ".join(_name(column.name) for column in self.plan.columns)
        self.world.run(
            f"CREATE OR REPLACE TEMP TABLE summed AS SELECT {names}, sum(__n) AS __n FROM ("
            f"SELECT {names}, 1 AS __n FROM {self.rows} "
            f"UNION ALL SELECT {names}, {WEIGHT} FROM {change}) "
            f"GROUP BY {names} HAVING sum(__n) <> 0"
        )
        if self._count("SELECT count(*) FROM summed WHERE __n < 0"):
            rows = self.world.rows("SELECT * FROM summed WHERE __n < 0 LIMIT 5")
            raise Mismatch(f"rows taken back that are not in the view: {rows}")
        self.writes += 1
        self.store(f"(SELECT {names}, unnest(range(__n::BIGINT)) FROM summed)")

    def replace(self, rows: str, keys: str, key: tuple[str, ...], *, single: bool) -> None:
        """Exchange the rows under `keys`; `Mismatch` when a `single` one is there twice."""
        listed = ", ".join(map(_name, key)) or "()"
        counts = f"SELECT count(*) AS n FROM {rows} GROUP BY {listed}"
        most = f"SELECT coalesce(max(n), 0) FROM ({counts})"
        if single and self._count(most) > 1:
            raise Mismatch("several rows for a key that is said to have one")
        self._exchange(keys, key, rows)

    def fold(self, groups: str, spec: Fold) -> None:
        """Exchange the rows of the changed groups."""
        names = [column.name for column in self.columns]
        new = to_duck(folded_rows(spec, names, groups, self.rows))
        self._exchange(groups, spec.key, f"({new})")

    def _exchange(self, keys: str, key: tuple[str, ...], rows: str) -> None:
        """The rows under `keys`, or without a key all of them, become `rows`."""
        names = ", ".join(_name(column.name) for column in self.columns)
        same = " AND ".join(f"t.{_name(c)} IS NOT DISTINCT FROM k.{_name(c)}" for c in key)
        kept = f"SELECT {names} FROM {self.rows} t"
        kept += f" ANTI JOIN {keys} k ON {same}" if key else " WHERE false"
        self.writes += 1
        self.store(f"({kept} UNION ALL SELECT {names} FROM {rows})")

    def _count(self, sql: str) -> int:
        return self.world.rows(sql)[0][0]


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
