"""Stored parts of queries on DuckDB: a state table is a view, and an input of those that read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from dbt_streamsql.plan.compiled import CompiledPlan
from tests.differential.duck_campaign import BIG, Tally, advance, verify
from tests.differential.duck_catalog import DuckCatalog
from tests.differential.duck_epoch import DuckEpoch
from tests.differential.duck_grammar import TABLES, VIEWS, Scenario
from tests.differential.duck_world import DuckWorld
from tests.support.product import StoredPart, compile_view, without_qualify

_KEPT = ("strategy", "key", "columns", "hidden", "tree")
"""What two plans of a query have in common if they keep the same rows."""
CHANGED = 0.3
"""How often another choice of parts is stored of a view, in an epoch."""


class StateTables:
    """The state tables of a world, which its views share. Parts are stored at random."""

    def __init__(self, world: DuckWorld, random: Random, uses: Counter[str]) -> None:
        self.world, self.random, self.uses = world, random, uses
        self._kept: dict[str, DuckEpoch] = {}
        """By part; what a state table reads is before it."""

    def compiled(self, sql: str, name: str) -> CompiledPlan:
        """A view, some of whose parts are stored."""
        catalog = DuckCatalog(self.world.connection, self.world.tables)
        plan: CompiledPlan = compile_view(sql, catalog, table=name, place=self._place)
        return plan

    def advance(self) -> None:
        """One epoch of all state tables."""
        for part, epoch in self._kept.items():
            advance(epoch)
            self.world.bring(_name(part), _rows(epoch))

    def _place(self, parts: Sequence[StoredPart]) -> dict[str, str]:
        found: dict[str, str] = {}
        for part in parts:
            if part.is_within(found) or self.random.random() < 0.5:
                continue
            if part.id in self._kept or self._define(part):
                kinds = {"copy": part.copy, "keys": part.keys, "join": part.join}
                self.uses[next((kind for kind, is_so in kinds.items() if is_so), "rows")] += 1
                found[part.id] = f"lake.s.{_name(part.id)}"
        return found

    def _define(self, part: StoredPart) -> bool:
        plan = self.compiled(part.sql, f"lake.s.{_name(part.id)}")
        if plan.mode != "incremental":
            return False
        epoch = DuckEpoch(self.world, plan, f"kept_{part.id}")
        if self.world.rows(f"SELECT count(*) FROM ({epoch.full})")[0][0] > BIG:
            return False
        epoch.fill()
        self._kept[part.id] = epoch
        self.world.add(_name(part.id), plan.columns, _rows(epoch))
        return True


def play(chosen: Scenario, tally: Tally, uses: Counter[str]) -> None:
    """Run a scenario whose views store parts of their queries, and change which ones.

    Raises `Difference` for the first view or state table that is not its query.
    """
    world, random = DuckWorld(TABLES, VIEWS), Random(chosen.seed)
    states = StateTables(world, random, uses)
    world.advance(chosen.create, quiet=True)
    running: list[DuckEpoch] = []
    for number, view in enumerate(chosen.views):
        plan = states.compiled(without_qualify(view.sql), f"lake.v.v{number}")
        if plan.mode == "full":
            tally.note(view, "full", plan.reasons[0])
            continue
        epoch = DuckEpoch(world, plan, f"v{number}")
        if world.rows(f"SELECT count(*) FROM ({epoch.full})")[0][0] > BIG:
            tally.note(view, "too big")
            continue
        tally.note(view, "incremental")
        epoch.fill()
        verify(epoch)
        running.append(epoch)
    for statements in chosen.epochs:
        world.advance(statements, quiet=chosen.quiet)
        states.advance()
        for at, epoch in enumerate(running):
            advance(epoch, tally=tally, printed=chosen.printed)
            if random.random() < CHANGED:
                running[at] = _again(states, epoch, uses)
    world.close()


def _again(states: StateTables, old: DuckEpoch, uses: Counter[str]) -> DuckEpoch:
    """The view with another choice of what is stored, from the next epoch on."""
    plan = states.compiled(old.plan.sql, old.plan.table)
    new = DuckEpoch(states.world, plan, old.plan.table.rpartition(".")[2])
    if all(getattr(plan, part) == getattr(old.plan, part) for part in _KEPT):
        uses["another choice"] += 1
    else:
        uses["another choice, filled again"] += 1
        new.fill()
    verify(new)
    return new


def _name(part: str) -> str:
    return f"__streamsql_state_{part}"


def _rows(epoch: DuckEpoch) -> str:
    """The rows that readers see."""
    names = ", ".join(f'"{column.name}"' for column in epoch.plan.columns)
    return f"SELECT {names} FROM {epoch.stored()}"
