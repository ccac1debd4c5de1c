"""GROUP BY at the top of a view: the change of the aggregates folds into the stored groups.

Anything that is not a visible column is stored in hidden ones. DISTINCT is the case without
aggregates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.lowering.view import (
    Key,
    View,
    keyed_view,
    top,
)
from dbt_streamsql.compiler.rules.components import (
    ALL,
    Components,
    formula,
    group_changes,
    unfolded,
)
from dbt_streamsql.plan.algebra.expression import Expr, hole
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Call,
    Input,
    Output,
    Scan,
    Select,
)
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX
from dbt_streamsql.plan.program.fold_values import WRITTEN
from dbt_streamsql.plan.program.steps import Derived, Fold

CLOCK_ALIAS = f"{HIDDEN_PREFIX}clock"
"""The alias of the barrier's time in a full refresh of groups that may expire."""


def applies(node: Aggregate, select: Select) -> bool:
    """Whether all aggregates fold: exact types, no DISTINCT, and no HAVING that hides groups."""
    return not _obstacle(node, select)


def obstacle_to(node: Aggregate, view: View) -> str:
    """Why the groups at the top of a view do not fold ('' when they do)."""
    found = top(view.root)
    return _obstacle(node, found[1]) if found is not None else ""


def _obstacle(node: Aggregate, select: Select) -> str:
    if select.where:
        return "HAVING hides groups"
    if node.session is not None:
        return "sessions can split and merge"
    return next((why for call in node.calls if (why := unfolded(call))), "")


@dataclass(frozen=True)
class FoldedGroups:
    """The groups at the top of a view: how they are stored, and what is visible of them.

    `alive` is the component that counts the rows of a group.
    """

    node: Aggregate
    select: Select
    key: Key
    state: Components
    alive: str
    derived: tuple[Derived, ...]


def folded_groups(view: View) -> FoldedGroups:
    """How a view for which `applies` holds is stored."""
    node, select, key = keyed_view(view)
    assert isinstance(node, Aggregate)
    state = Components(_stored(node, select, view))
    alive = state.component(ALL, "add")
    formulas = {call.name: formula(call, state, alive, bool(node.keys)) for call in node.calls}
    keys = dict(zip(node.keys, key.columns, strict=True))
    derived = _derived(select, view, formulas, keys, state)
    return FoldedGroups(node, select, key, state, alive, derived)


def plan(view: View, emitter: Emitter) -> View:
    """Emit the steps of a fold; returns the view with its hidden columns."""
    found = folded_groups(view)
    node, select, key, state = found.node, found.select, found.key, found.state
    groups = group_changes(node, key.columns, state, emitter)
    parts = tuple(state.components)
    lives = found.alive if node.keys else ""
    emitter.steps.append(Fold(groups, key.columns, parts, found.derived, lives, ttl=node.ttl))
    calls = (*node.calls, *(call for _, call in state.hidden))
    alias = select.inputs[0].alias
    shown = zip(select.outputs, view.columns, strict=True)
    outputs = (
        *(Output(column.name, output.expr) for output, column in shown),
        *key.hidden,
        *(Output(column.name, Expr.column(alias, column.name)) for column, _ in state.hidden),
    )
    inputs: tuple[Input, ...] = (Input(alias, Aggregate(node.input, node.keys, calls)),)
    if node.ttl:
        # All groups of a full refresh are written at its barrier.
        inputs += (Input(CLOCK_ALIAS, Scan(CLOCK, ("now",))),)
        outputs += (Output(WRITTEN, Expr("unix_micros({0})", ((CLOCK_ALIAS, "now"),))),)
    full = Select(inputs, (), outputs)
    hides = bool(key.hidden or state.hidden or node.ttl)
    return replace(view, strategy="fold", key=key.columns, full=full if hides else None)


def _stored(node: Aggregate, select: Select, view: View) -> dict[Call, str]:
    """Calls that a visible column holds unchanged, by the call without its name."""
    calls = {call.name: call for call in node.calls}
    stored: dict[Call, str] = {}
    for output, column in zip(select.outputs, view.columns, strict=True):
        ref = output.expr.as_column
        if ref is not None and ref[1] in calls:
            stored.setdefault(replace(calls[ref[1]], name=""), column.name)
    return stored


def _derived(
    select: Select,
    view: View,
    formulas: dict[str, str],
    keys: dict[str, str],
    state: Components,
) -> tuple[Derived, ...]:
    stored = {component.column for component in state.components} | set(keys.values())

    def value(ref: tuple[str, str]) -> str:
        return formulas[ref[1]] if ref[1] in formulas else hole(keys[ref[1]])

    return tuple(
        Derived(column.name, f"CAST({output.expr.render(value)} AS {column.type})")
        for output, column in zip(select.outputs, view.columns, strict=True)
        if column.name not in stored
    )
