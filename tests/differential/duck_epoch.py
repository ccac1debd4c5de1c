"""A view on DuckDB: its plan, its stored rows, and the epochs that they go through.

What its steps mean is the product's own `ProgramRunner`, over relations in DuckDB.
"""

from __future__ import annotations

from typing import Any

from dbt_streamsql.plan.algebra.expression import fill
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.redefinition import NOW, STORED
from tests.differential.duck_dialect import to_duck
from tests.differential.duck_relations import DuckRelations
from tests.differential.duck_world import DuckWorld
from tests.support.product import ProgramRunner


class DuckEpoch:
    """One view over the inputs of `world`."""

    def __init__(self, world: DuckWorld, plan: CompiledPlan, name: str) -> None:
        self.world = world
        self.plan = plan
        self.relations = DuckRelations(world, plan, name)
        self.columns = self.relations.columns
        self._program: dict[str, Any] = {}

    @property
    def full(self) -> str:
        """The query that fills the view with its hidden columns, for DuckDB."""
        if not self.plan.full_sql:
            return to_duck(self.plan.sql)
        return to_duck(self.plan.filled(self.world.now))

    def fill(self) -> None:
        """A full refresh."""
        self.relations.store(f"({self.full})")

    def follow(self, old: DuckEpoch, sql: str) -> None:
        """The stored rows follow from those of an old definition, as a redefinition says."""

        def read(hole: str) -> str:
            if hole == STORED:
                return old.stored()
            if hole == NOW:
                return str(self.world.of_groups(0)[1])
            table = self.plan.tables[int(hole.removeprefix("t"))]
            return (
                self.world.before(table) if table in old.plan.tables else self.world.after(table)
            )

        self.relations.fresh = frozenset(self.plan.tables) - frozenset(old.plan.tables)
        self.relations.store(f"({to_duck(fill(sql, read))})")

    def stored(self) -> str:
        """The table of the stored rows."""
        return self.relations.rows

    def run(self, *, printed: bool = False) -> None:
        """One epoch, by the steps or by the program that the plan prints."""
        runner = ProgramRunner(self.relations)
        if not printed:
            runner.run(self.plan)
            return
        if not self._program:
            exec(compile(self.plan.program, "program", "exec"), self._program)  # noqa: S102
        self._program["advance"](runner)
