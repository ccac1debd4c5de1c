"""Random views that forget, and what they are meant to be, on DuckDB."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from random import Random

from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.moments import AFTER, BEFORE, Moments
from dbt_streamsql.plan.program.fold_values import WRITTEN
from dbt_streamsql.plan.state import StateTtl
from dbt_streamsql.quoting import TableName, quote
from tests.differential.duck_ages import AgedWorld
from tests.differential.duck_catalog import DuckCatalog
from tests.differential.duck_dialect import to_duck
from tests.differential.duck_epoch import DuckEpoch
from tests.support.product import compile_view, symbol

difference = symbol("difference", beside="Moments")

EPOCHS = int(os.environ.get("STREAMSQL_DUCK_TTL", "600"))


SEED = int(os.environ.get("STREAMSQL_SEED", "1000"))


ROUNDS = 20


TTLS = (0, 2000, 4000, 7000, 12000)


@dataclass(frozen=True)
class View:
    """A query with the tables of which it may forget rows as `{o}`, `{s}`, `{u}`.

    `inner`, of a grouping, gives its rows: the key, the argument, and what tells rows apart.
    """

    sql: str
    forgets: str
    inner: str = ""
    key: int = -1
    """Of what is computed again key by key, the position of the key (-1: there is none)."""


JOINED = "{o} o JOIN {s} s ON o.k = s.k"


ROWS = [
    View(f"SELECT o.k, o.x, s.y FROM {JOINED}", "os"),
    View(f"SELECT o.x + s.y AS v FROM {JOINED} WHERE o.x > 1 AND s.y < 5", "os"),
    View(f"SELECT o.x, s.y, u.z FROM {JOINED} JOIN {{u}} u ON u.k = s.k", "osu"),
    View("SELECT o.x, u.z FROM {o} o JOIN {u} u ON o.k < u.k", "ou"),
    View("SELECT a.x, b.x AS w FROM {o} a JOIN lake.s.o b ON a.k = b.k", "o"),
    View("SELECT o.k, o.x, s.y FROM {o} o LEFT JOIN lake.s.s s ON o.k = s.k", "o"),
    View("SELECT o.x FROM {o} o WHERE EXISTS (SELECT 1 FROM lake.s.s s WHERE s.k = o.k)", "o"),
    View("SELECT o.x FROM {o} o WHERE NOT EXISTS (SELECT 1 FROM lake.s.s s WHERE s.k = o.k)", "o"),
    View(
        "SELECT o.k, s.y FROM (SELECT k, x FROM {o} WHERE x > 0) o JOIN {s} s ON o.k = s.k", "os"
    ),
]


CALLS = "count(*) AS n, count(v) AS c, sum(v) AS t, min(v) AS least, max(v) AS most"


GROUPS = [
    ("o.k AS g, o.x AS v", "{o} o", "o._id, o._at", "o"),
    ("o.k AS g, s.y AS v", JOINED, "o._id, o._at, s._id, s._at", "os"),
    ("s.y AS g, o.x AS v", f"{JOINED} WHERE o.x > 0", "o._id, o._at, s._id, s._at", "os"),
    (
        "o.x AS g, s.y AS v",
        "{o} o LEFT JOIN lake.s.s s ON o.k = s.k",
        "o._id, o._at, s._id, s._at",
        "o",
    ),
]


class Player:
    """One view, one random history, and what the view is meant to be."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = AgedWorld()
        self.catalog = DuckCatalog(self.world.connection, self.world.tables)
        for _ in range(3):
            self.world.turn(self.random)
        self.script = ""

    def compiled(self, sql: str, wanted: StateTtl) -> DuckEpoch:
        plan = compile_view(sql, self.catalog, table="lake.v.v", state_ttl=wanted)
        assert plan.mode == "incremental", plan.reasons
        assert CompiledPlan.from_stored(plan.to_stored()) == plan
        self.script = f"{sql} with {wanted}"
        view = DuckEpoch(self.world, plan, "v")
        view.fill()
        return view

    def over(self, sql: str, moment: str, ttls: dict[str, int]) -> list[tuple]:
        """The rows of a query over what is remembered."""
        tables = {n: f"({self.world.remembered(n, moment, ttls.get(n, 0))})" for n in "osu"}
        if moment == "before":
            sql = sql.replace("lake.s.", "lake.old.")
        return self.world.rows(sql.format(**tables))

    def shown(self, view: DuckEpoch) -> Counter:
        names = ", ".join(f'"{column.name}"' for column in view.plan.columns)
        return Counter(self.world.rows(f"SELECT {names} FROM {view.stored()}"))

    def written(self, view: DuckEpoch) -> dict:
        key = view.plan.key[0] if view.plan.key else "NULL"
        rows = self.world.rows(f"SELECT {key}, {WRITTEN} // 1000 FROM {view.stored()}")
        return dict(rows)

    def step(self, view: DuckEpoch) -> None:
        self.world.turn(self.random)
        self.world.run(f"CREATE OR REPLACE TABLE lake.v.earlier AS FROM {view.stored()}")
        view.run(printed=bool(self.random.getrandbits(1)))
        assert self.differing(view) == [], self.script

    def differing(self, view: DuckEpoch) -> list[tuple]:
        """What `verify` says of the view."""

        def remembered(moment: str, place: int) -> str:
            table, ttl = view.plan.reads[place]
            return f"({self.world.remembered(TableName.parse(table).table, moment, ttl)})"

        stored = {BEFORE: "lake.v.earlier", AFTER: str(view.stored())}
        moments = Moments(remembered, str, stored.__getitem__, self.world.clock * 1000)
        names, signed = difference(view.plan, moments)
        shown = ", ".join(map(quote, names))
        return self.world.rows(
            to_duck(
                f"SELECT {shown}, sum(_streamsql_w) FROM ({signed}) GROUP BY ALL HAVING sum(_streamsql_w) <> 0"
            )
        )


def plain(sql: str) -> str:
    return sql.format(o="lake.s.o", s="lake.s.s", u="lake.s.u")


class Groups:
    """Groups by key: [count, count of values, sum, least, greatest, when written]."""

    def __init__(
        self, player: Player, inner: str, ttls: dict[str, int], ttl: int, keyed: bool
    ) -> None:
        self.player, self.inner, self.ttls, self.ttl, self.keyed = player, inner, ttls, ttl, keyed
        self.groups: dict = {} if keyed else {None: [0, 0, None, None, None, player.world.clock]}
        for row in player.world.rows(plain(inner)):
            self._add(row, 1, player.world.clock)
            self._widen(row)

    def _key(self, row: tuple) -> object:
        return row[0] if self.keyed else None

    def _add(self, row: tuple, weight: int, clock: int) -> None:
        group = self.groups.setdefault(self._key(row), [0, 0, None, None, None, clock])
        group[0] += weight
        if row[1] is not None:
            group[1] += weight
            group[2] = (group[2] or 0) + weight * row[1]
        if not group[1]:
            group[2] = None

    def _widen(self, row: tuple) -> None:
        group = self.groups[self._key(row)]
        if row[1] is not None:
            group[3] = row[1] if group[3] is None else min(group[3], row[1])
            group[4] = row[1] if group[4] is None else max(group[4], row[1])

    def step(self, written: dict) -> None:
        """`written`: when each stored group was written, in milliseconds."""
        clock = self.player.world.clock
        old = Counter(self.player.over(self.inner, "before", self.ttls))
        new = Counter(self.player.over(self.inner, "after", self.ttls))
        moved = Counter(new)
        moved.subtract(old)
        moved = Counter({row: weight for row, weight in moved.items() if weight})
        touched = {self._key(row) for row in moved}
        for key in touched:
            group = self.groups.get(key)
            if group is not None and self.ttl and clock - group[5] > self.ttl:
                self.groups[key] = [0, 0, None, None, None, clock]
        self._take(moved, new, clock)
        for key in touched:
            self.groups[key][5] = clock
            if self.keyed and self.groups[key][0] <= 0:
                del self.groups[key]

        for key in self.groups.keys() - touched:
            # Rows that came and went at once may count as a write, but never wake a group.
            group = self.groups[key]
            if self.ttl and written.get(key) == clock and clock - group[5] <= self.ttl:
                group[5] = clock

    def _take(self, moved: Counter, new: Counter, clock: int) -> None:
        net: Counter = Counter()
        for row, weight in moved.items():
            self._add(row, weight, clock)
            net[row[:2]] += weight
        lost = {self._key(row) for row, n in net.items() if n < 0 and row[1] is not None}
        for row, weight in net.items():
            if weight > 0:
                self._widen(row)
        for key in lost:
            self.groups[key][3] = self.groups[key][4] = None
        for row in new:
            if self._key(row) in lost:
                self._widen(row)

    def rows(self) -> Counter:
        keys = ((key,) if self.keyed else () for key in self.groups)
        return Counter(
            (*key, *group[:5]) for key, group in zip(keys, self.groups.values(), strict=True)
        )
