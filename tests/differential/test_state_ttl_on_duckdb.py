"""Views that forget are what `docs/state_ttl.md` says: the compiler's plans, run on DuckDB.

The oracle keeps every row with the time of its last write, and applies the definition:

- a view of rows gains Q(S') − Q(S), S and S' being what is remembered before and after the epoch;
- a group that is touched starts anew when it was not written for its TTL, and gains the same;
- what is computed again for the touched keys is Q(S') of those keys.

`STREAMSQL_DUCK_TTL` is the number of epochs, `STREAMSQL_SEED` the first seed.
"""

from __future__ import annotations

from collections import Counter

import pytest

from dbt_streamsql.plan.state import StateTtl
from tests.differential.duck_ages import AgedWorld
from tests.differential.duck_catalog import DuckCatalog
from tests.differential.duck_ttl import (
    CALLS,
    EPOCHS,
    GROUPS,
    ROUNDS,
    ROWS,
    SEED,
    TTLS,
    Groups,
    Player,
    View,
    plain,
)

pytestmark = [pytest.mark.hunts, pytest.mark.long]

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
