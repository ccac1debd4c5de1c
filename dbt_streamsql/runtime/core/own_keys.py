"""Which columns of maintained tables are unique by the way their rows are kept.

A grouped view has one row for each group, a streaming table one for each key. An epoch may
conclude from that what it need not look up, if it holds for the rows that the view saw last and
for those that it sees now.
"""

from __future__ import annotations

from collections.abc import Mapping

from dbt_streamsql.meta import Job, TableVersion
from dbt_streamsql.meta.model.stored_definition import known_plan
from dbt_streamsql.plan.compiled import CompiledPlan, OwnKey
from dbt_streamsql.plan.program.steps import Replace
from dbt_streamsql.runtime.core.epoch_state import OWN_KEYS, EpochState


def unique_columns(table: str, jobs: Mapping[str, Job]) -> tuple[str, ...]:
    """The columns in which no two rows of a maintained table have the same value, NULLs aside."""
    job = jobs.get(table)
    plan = known_plan(job) if job is not None else None
    if plan is None or len(plan.key) != 1 or not _one_row_for_each_key(plan):
        return ()
    return tuple(column.name for column in plan.columns if column.name == plan.key[0])


def held(epoch: EpochState, plan: CompiledPlan) -> tuple[OwnKey, ...]:
    """The own keys of a plan that hold for the rows of this epoch."""
    return tuple(
        (table, column)
        for table, column in plan.own_keys
        if _is_of_its_definition(epoch, table)
        and column.lower() in map(str.lower, unique_columns(table, epoch.jobs))
    )


def relied(epoch: EpochState, plan: CompiledPlan, previous: TableVersion) -> frozenset[OwnKey]:
    """Those that held for the rows of the version before, too."""
    if epoch.replay is not None:
        return frozenset()
    before = [tuple(key) for key in previous.stats.get(OWN_KEYS, ())]
    return frozenset(key for key in held(epoch, plan) if key in before)


def _one_row_for_each_key(plan: CompiledPlan) -> bool:
    """Whether the rows are kept by the key. A group that was forgotten may begin again."""
    if plan.remembers:
        return False
    replaced = any(isinstance(step, Replace) and step.single for step in plan.steps)
    return plan.strategy in {"fold", "upsert"} or (plan.strategy == "replace" and replaced)


def _is_of_its_definition(epoch: EpochState, table: str) -> bool:
    """Whether the rows of a table are those of its current definition."""
    return table not in epoch.definitions or table in epoch.done
