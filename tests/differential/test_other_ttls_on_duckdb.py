"""Views whose TTLs change in the middle of their history: what has expired stays so, on DuckDB.

The oracle is that of `test_state_ttl_on_duckdb.py`, which now also keeps the latest time before
which rows of a table have ever expired. `STREAMSQL_DUCK_TTL` and `STREAMSQL_SEED` as there.
"""

from __future__ import annotations

import pytest

from dbt_streamsql.plan.definition.redefinition import COMPATIBLE, METADATA
from dbt_streamsql.plan.program.fold_values import WRITTEN
from dbt_streamsql.plan.state import KEPT, StateTtl
from tests.differential.duck_epoch import DuckEpoch
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
    plain,
)
from tests.support.product import compile_view, redefinition

pytestmark = pytest.mark.long

EVERY = 4
"""Epochs after which the TTLs are others."""


def seeds() -> range:
    return range(SEED, SEED + max(1, EPOCHS // ROUNDS // 4))


def redefined(player: Player, old: DuckEpoch, wanted: StateTtl, place: str) -> DuckEpoch:
    """The view with other TTLs, at the epoch that has just begun."""
    plan = compile_view(
        old.plan.sql,
        player.catalog,
        table="lake.v.v",
        state_ttl=wanted,
        before=old.plan.tree,
    )
    new = DuckEpoch(player.world, plan, "v")
    if plan.fingerprint == old.plan.fingerprint:
        return new
    found = redefinition(old.plan, plan, player.catalog)
    gains = plan.hidden != old.plan.hidden
    assert found.verdict == (COMPATIBLE if gains else METADATA), f"{place}: {found.reason}"
    if gains:
        new.follow(old, found.sql)
    return new


def forget(player: Player, ttls: dict[str, int]) -> None:
    """What has expired by the end of an epoch has expired for ever."""
    world = player.world
    for name, ttl in ttls.items():
        if ttl:
            world.floors[name] = max(world.floors.get(name, 0), world.clock - ttl)


def after(old: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    """What the oracle reads by: a table that had a TTL and has none keeps what it has."""
    return {name: ttl or (KEPT if old[name] else 0) for name, ttl in new.items()}


def test_a_view_of_rows_takes_nothing_back_that_had_expired_under_another_ttl(capsys):
    for seed in seeds():
        player = Player(seed)
        view = player.random.choice(ROWS)
        again = "lake.s.o b" in view.sql

        def drawn(player=player, view=view):
            return {name: player.random.choice(TTLS) for name in view.forgets}

        def said(ttls, again=again):
            return StateTtl(inputs={"a" if again else name: ttl for name, ttl in ttls.items()})

        ttls = drawn()
        stored = player.compiled(plain(view.sql), said(ttls))
        meant = player.shown(stored)
        for number in range(ROUNDS):
            place = f"seed {seed}, epoch {number}: {player.script}"
            player.world.turn(player.random)
            if number % EVERY == EVERY - 1:
                new = drawn()
                stored = redefined(player, stored, said(new), place)
                ttls = after(ttls, new)
            stored.run(printed=bool(player.random.getrandbits(1)))
            meant.update(player.over(view.sql, "after", ttls))
            meant.subtract(player.over(view.sql, "before", ttls))
            assert min(meant.values(), default=0) >= 0, place
            assert player.shown(stored) == +meant, place
            forget(player, ttls)
        player.world.close()
    with capsys.disabled():
        print(f"\nviews of rows whose TTLs change, on DuckDB: {len(seeds()) * ROUNDS} epochs")


def test_groups_go_on_from_what_is_stored_under_another_ttl(capsys):
    rows, source, told, _ = GROUPS[0]
    sql = plain(f"SELECT g, {CALLS} FROM (SELECT {rows} FROM {source}) r GROUP BY g")
    inner = f"SELECT {rows}, {told} FROM {source}"
    for seed in seeds():
        player = Player(seed)
        ttl = player.random.choice(TTLS)
        stored = player.compiled(sql, StateTtl(kinds={"aggregates": ttl}))
        oracle = Groups(player, inner, {"o": ttl}, ttl, keyed=True)
        for number in range(ROUNDS):
            place = f"seed {seed}, epoch {number}: {player.script}"
            player.world.turn(player.random)
            if number % EVERY == EVERY - 1:
                new = player.random.choice(TTLS)
                old = stored
                stored = redefined(player, old, StateTtl(kinds={"aggregates": new}), place)
                oracle.ttls = after(oracle.ttls, {"o": new})
                oracle.ttl = oracle.ttls["o"]
                if stored.plan.hidden != old.plan.hidden:
                    for group in oracle.groups.values():
                        group[5] = player.world.clock
            stored.run(printed=bool(player.random.getrandbits(1)))
            aged = WRITTEN in {column.name for column in stored.plan.hidden}
            oracle.step(player.written(stored) if aged else {})
            assert player.shown(stored) == oracle.rows(), place
            forget(player, oracle.ttls)
        player.world.close()
    with capsys.disabled():
        print(f"\ngroups whose TTLs change, on DuckDB: {len(seeds()) * ROUNDS} epochs")
