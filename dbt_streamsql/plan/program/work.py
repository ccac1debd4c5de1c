"""The work for Spark to bring a view up to date, as far as its plan shows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dbt_streamsql.plan.algebra.expression import every_hole
from dbt_streamsql.plan.program import steps
from dbt_streamsql.plan.program.steps import Step

_WRITES = {steps.Apply: 2, steps.Replace: 3, steps.Fold: 3}
"""Statements of a write by the driver: the change, the matching stored rows, new groups."""

_CUT = re.compile(r"\{(\w+)\} r\s+LEFT SEMI JOIN ")
"""The rows of a table of which only those for some keys are taken."""

OF_CUT = 0.25
"""The cost of a row that is read but not taken, relative to one that is taken."""


@dataclass(frozen=True)
class Work:
    """Statements, the characters of their texts with all frames expanded, and the table rows that
    they read."""

    statements: int = 0
    characters: int = 0
    rows: float = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.statements + other.statements,
            self.characters + other.characters,
            self.rows + other.rows,
        )


_NOTHING = Work()


def of_program(
    program: Sequence[Step],
    moved: Collection[str],
    tables: Mapping[str, int],
    *,
    at_hand: bool = False,
) -> Work:
    """The work of a program when the tables `moved` have changed; `tables`: their numbers of rows.
    `at_hand`: an `Apply` needs no statement to find the stored rows that it removes.
    """
    frames: dict[str, Work] = {}
    done = _NOTHING
    for step in program:
        work = _frame(step, frames, moved, tables)
        if work is None:
            continue
        if isinstance(step, steps.Collect):
            done, work = done + work + Work(1), _NOTHING
        elif isinstance(step, steps.Apply | steps.Replace | steps.Fold):
            found = at_hand and isinstance(step, steps.Apply)
            done += work + Work(_WRITES[type(step)] - found)
            continue
        frames[step.name] = work
    return done


def _frame(
    step: Step, frames: Mapping[str, Work], moved: Collection[str], tables: Mapping[str, int]
) -> Work | None:
    """The work to compute a frame; None when it is known to be empty."""
    if isinstance(step, steps.Changes):
        return _NOTHING if step.table in moved else None
    if isinstance(step, steps.State):
        rows = tables.get(step.table, 0)
        return Work(rows=rows * OF_CUT if step.met else rows)
    if isinstance(step, steps.Lookup):
        found_by_key = OF_CUT if step.by else 1
        return Work(rows=frames[step.rows].rows * found_by_key)
    if isinstance(step, steps.Stored):
        return _NOTHING
    if isinstance(step, steps.Query):
        used = every_hole(step.sql)
        if any(name not in frames for name in (*used, *step.when)):
            return None
        cut = sum(frames[name].rows for name in _CUT.findall(step.sql))
        whole = sum((frames[name] for name in used), Work(characters=len(step.sql)))
        return whole + Work(rows=-cut * (1 - OF_CUT))
    if isinstance(step, steps.Union | steps.Together):
        parts = step.parts if isinstance(step, steps.Union) else [p.frame for p in step.parts]
        found = [frames[part] for part in parts if part in frames]
        return sum(found, _NOTHING) if found else None
    frame = step.groups if isinstance(step, steps.Fold) else step.frame
    if frame not in frames:
        return None
    keys = frames.get(step.keys, _NOTHING) if isinstance(step, steps.Replace) else _NOTHING
    return frames[frame] + keys
