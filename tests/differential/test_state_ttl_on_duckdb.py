"""Views that forget are what `docs/state_ttl.md` says: the compiler's plans, run on DuckDB.

The oracle keeps every row with the time of its last write, and applies the definition:

- a view of rows gains Q(S') − Q(S), S and S' being what is remembered before and after the epoch;
- a group that is touched starts anew when it was not written for its TTL, and gains the same;
- what is computed again for the touched keys is Q(S') of those keys.

`STREAMSQL_DUCK_TTL` is the number of epochs, `STREAMSQL_SEED` the first seed.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest
from duck_ages import AgedWorld
from duck_catalog import DuckCatalog
from duck_dialect import to_duck
from duck_epoch import DuckEpoch

from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.compiler.ttl_oracle import difference
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.fold_values import WRITTEN
from dbt_streamsql.plan.moments import AFTER, BEFORE, Moments
from dbt_streamsql.plan.state import StateTtl
from dbt_streamsql.quoting import TableName, quote

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
AGAIN = [
    View(
        "SELECT o.k, count(DISTINCT o.x) AS d, count(*) AS n FROM {o} o GROUP BY o.k", "o", key=0
    ),
    View(
        "SELECT k, x FROM (SELECT o.k, o.x, row_number() OVER (PARTITION BY o.k ORDER BY o.x DESC NULLS LAST)"
        " AS rn FROM {o} o) r WHERE rn = 1",
        "o",
        key=0,
    ),
    View(
        "SELECT k, x, p FROM (SELECT o.k, o.x, rank() OVER (PARTITION BY o.k ORDER BY o.x NULLS FIRST) AS p "
        "FROM {o} o) r WHERE p <= 2",
        "o",
        key=0,
    ),
    View("SELECT o.k, sum(o.x) OVER (PARTITION BY o.k) AS t FROM {o} o", "o", key=0),
    View("SELECT o.k, o.x FROM {o} o ORDER BY o.x DESC NULLS LAST, o.k NULLS FIRST LIMIT 3", "o"),
    View("SELECT count(DISTINCT o.x) AS d FROM {o} o", "o"),
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
            to_duck(f"SELECT {shown}, sum(_w) FROM ({signed}) GROUP BY ALL HAVING sum(_w) <> 0")
        )


def plain(sql: str) -> str:
    return sql.format(o="lake.s.o", s="lake.s.s", u="lake.s.u")


def seeds() -> range:
    return range(SEED, SEED + max(1, EPOCHS // ROUNDS // 3))


def test_a_view_of_rows_gains_what_its_remembered_rows_make(capsys):
    for seed in seeds():
        player = Player(seed)
        view = player.random.choice(ROWS)
        ttls = {name: player.random.choice(TTLS) for name in view.forgets}
        again = "lake.s.o b" in view.sql
        named = {"a" if again else name: ttl for name, ttl in ttls.items()}
        stored = player.compiled(plain(view.sql), StateTtl(inputs=named))
        meant = player.shown(stored)
        for number in range(ROUNDS):
            player.step(stored)
            meant.update(player.over(view.sql, "after", ttls))
            meant.subtract(player.over(view.sql, "before", ttls))
            assert min(meant.values(), default=0) >= 0
            found = player.shown(stored)
            assert found == +meant, f"seed {seed}, epoch {number}: {player.script}"
        player.world.close()
    with capsys.disabled():
        print(f"\nviews of rows that forget, on DuckDB: {len(seeds()) * ROUNDS} epochs")


def test_a_group_starts_anew_when_it_was_not_written_for_its_ttl(capsys):
    for seed in seeds():
        player = Player(seed)
        rows, source, told, forgets = player.random.choice(GROUPS)
        ttls = {name: player.random.choice(TTLS) for name in forgets}
        own = player.random.choice([ttl for ttl in TTLS if ttl])
        known = [ttl for ttl in ttls.values() if ttl]
        if forgets == "o" and "JOIN" not in source:
            ttls = {"o": own}
        elif not known or own < min(known):
            own = 0
        keyed = player.random.random() < 0.8
        items = f"g, {CALLS}" if keyed else CALLS
        sql = f"SELECT {items} FROM (SELECT {rows} FROM {source}) r" + " GROUP BY g" * keyed
        inner = f"SELECT {rows}, {told} FROM {source}"
        inputs = {} if ttls == {"o": own} and "JOIN" not in source else ttls
        wanted = StateTtl(kinds={"aggregates": own}, inputs=inputs)
        stored = player.compiled(plain(sql), wanted)
        oracle = Groups(player, inner, ttls, own, keyed)
        for number in range(ROUNDS):
            player.step(stored)
            oracle.step(player.written(stored) if own else {})
            found = player.shown(stored)
            assert found == oracle.rows(), f"seed {seed}, epoch {number}: {player.script}"
        player.world.close()
    with capsys.disabled():
        print(f"\ngroups that forget, on DuckDB: {len(seeds()) * ROUNDS} epochs")


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


def test_what_is_computed_again_is_computed_from_what_is_remembered(capsys):
    for seed in seeds():
        player = Player(seed)
        view = player.random.choice(AGAIN)
        ttls = {"o": player.random.choice(TTLS)}
        stored = player.compiled(plain(view.sql), StateTtl(default=ttls["o"]))
        meant = player.shown(stored)
        for number in range(ROUNDS):
            player.step(stored)
            sides = [
                Counter(player.over("SELECT k, _id, _at FROM {o} o", moment, ttls))
                for moment in ("before", "after")
            ]
            touched = {row[0] for row in (sides[0] - sides[1]) + (sides[1] - sides[0])}
            whole = view.key < 0 and bool(touched)
            new = Counter(player.over(view.sql, "after", ttls))
            kept = {
                r: n
                for r, n in meant.items()
                if not whole and (view.key < 0 or r[0] not in touched)
            }
            came = {r: n for r, n in new.items() if whole or (view.key >= 0 and r[0] in touched)}
            meant = Counter(kept) + Counter(came)
            found = player.shown(stored)
            assert found == meant, f"seed {seed}, epoch {number}: {player.script}"
        player.world.close()
    with capsys.disabled():
        print(f"\nrecomputed views that forget, on DuckDB: {len(seeds()) * ROUNDS} epochs")


@pytest.fixture
def catalog():
    world = AgedWorld()
    yield DuckCatalog(world.connection, world.tables)
    world.close()
