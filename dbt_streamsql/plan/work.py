"""What Spark is asked for when a view is brought up to date, as far as its plan tells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dbt_streamsql.plan import steps
from dbt_streamsql.plan.expression import every_hole
from dbt_streamsql.plan.steps import Step

_WRITES = {steps.Apply: 2, steps.Replace: 3, steps.Fold: 3}
"""Statements of a write by the driver: the change, the stored rows that it meets, new groups."""


@dataclass(frozen=True)
class Work:
    """Statements, and the characters of their texts, all frames written out."""

    statements: int
    characters: int


def of_program(program: Sequence[Step], moved: Collection[str]) -> Work:
    """The work of a program when the tables `moved` have changed."""
    sizes: dict[str, int] = {}
    statements = characters = 0
    for step in program:
        size = _size(step, sizes, moved)
        if size is None:
            continue
        if isinstance(step, steps.Collect):
            statements, characters, size = statements + 1, characters + size, 0
        elif isinstance(step, steps.Apply | steps.Replace | steps.Fold):
            statements, characters = statements + _WRITES[type(step)], characters + size
            continue
        sizes[step.name] = size
    return Work(statements, characters)


def _size(step: Step, sizes: dict[str, int], moved: Collection[str]) -> int | None:
    """The characters of a frame's text; None when the frame is known to be empty."""
    if isinstance(step, steps.Changes):
        return 0 if step.table in moved else None
    if isinstance(step, steps.State | steps.Stored):
        return 0
    if isinstance(step, steps.Query):
        used = every_hole(step.sql)
        if any(name not in sizes for name in (*used, *step.when)):
            return None
        return len(step.sql) + sum(sizes[name] for name in used)
    if isinstance(step, steps.Union | steps.Together):
        parts = step.parts if isinstance(step, steps.Union) else [p.frame for p in step.parts]
        found = [sizes[part] for part in parts if part in sizes]
        return sum(found) if found else None
    frame = step.groups if isinstance(step, steps.Fold) else step.frame
    if frame not in sizes:
        return None
    return sizes[frame] + (sizes.get(step.keys, 0) if isinstance(step, steps.Replace) else 0)
