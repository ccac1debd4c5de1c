"""The operators of a view, each with its changelog, key, state and strategy, for `explain`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from dbt_streamsql.compiler.lowering.view import View, top
from dbt_streamsql.compiler.rules import fold, grouped_sums, limit
from dbt_streamsql.compiler.rules.match import by_key
from dbt_streamsql.compiler.state.ttl import slots
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Branches,
    Constant,
    Generate,
    Keyed,
    Limit,
    Match,
    Node,
    Scan,
    Select,
    UnionAll,
    Window,
    children,
    is_join,
    keys_of,
    scans,
)
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.operators import APPEND, RETRACT, UPSERT, Operator
from dbt_streamsql.plan.sink_reuse import index_paths
from dbt_streamsql.plan.state import State, StateTtl

_FROM_SNAPSHOTS = "none: the inputs' snapshots before and after"


def describe(
    view: View, hidden: tuple[Column, ...], wanted: StateTtl | None
) -> tuple[Operator, ...]:
    """All operators, parents first. `view` has been planned, `hidden` are its hidden columns,
    `wanted` is the state TTL of its config."""
    found = top(view.root)
    best = found[0] if found is not None and view.strategy != "rows" else None
    states: dict[int, list[State]] = {}
    for slot in slots(view.root, wanted):
        states.setdefault(slot.id, []).append(slot.state)
    # In the order of the numbers, except for branches, which are not nodes.
    numbers = count(1)
    return tuple(
        operator
        if operator.name.startswith("branch ")
        else replace(operator, id=number, states=tuple(states.get(number, ())))
        for operator in _walk(view.root, 0, best, view, hidden)
        for number in [0 if operator.name.startswith("branch ") else next(numbers)]
    )


def _walk(
    node: Node, depth: int, best: Keyed | None, view: View, hidden: tuple[Column, ...]
) -> Iterator[Operator]:
    if isinstance(node, Branches):
        yield from _branches(node, depth, view, hidden)
        return
    if best is not None and node is best:
        yield _stored(best, depth, view, hidden)
    else:
        yield _operator(node, depth)
    for child in children(node):
        yield from _walk(child, depth + 1, best, view, hidden)


def _branches(
    node: Branches, depth: int, view: View, hidden: tuple[Column, ...]
) -> Iterator[Operator]:
    """The wide row, and the sink that each branch would be without the other branches."""
    state = ", ".join(column.name for column in hidden)
    written = "one writer for all branches" if node.reuse else "a writer for each branch"
    how = f"{written}; only the columns of changed branches are computed"
    detail = f"of {len(node.inputs)}" + (f", the keys of {node.anchor}" if node.anchor else "")
    every = [path for each in node.targets for path in each]
    yield Operator(depth, "wide table", detail, UPSERT, view.key, state, how)
    for child, targets in zip(node.inputs, node.targets, strict=True):
        columns = ", ".join((*node.keys, *targets))
        paths = index_paths(node.columns, every, (*node.keys, *targets))
        how = f"target columns {paths}"
        name, keys = f"branch {child.alias}", node.keys
        yield Operator(depth + 1, name, f"({columns})", UPSERT, keys, "", how)
        yield from _walk(child.node, depth + 2, None, view, hidden)


def _stored(node: Keyed, depth: int, view: View, hidden: tuple[Column, ...]) -> Operator:
    """The operator whose rows are the view's own."""
    name, detail = _title(node)
    state = ", ".join(column.name for column in hidden) or "none: the view's own rows"
    if view.strategy == "fold":
        how = "the changes of the aggregates are added to the stored groups"
        return Operator(depth, name, detail, UPSERT, view.key, state, how)
    found = top(view.root)
    forgets = any(scan.ttl for scan in scans(node))
    if found is not None and limit.applies(*found) and not forgets:
        how = "stored and changed rows are merged; recomputed when too few are left"
        return Operator(depth, name, detail, RETRACT, (), state, how)
    if not keys_of(node):
        how = "recomputed when its input changes; only the difference is written"
        return Operator(depth, name, detail, RETRACT, (), state, how)
    why = fold.obstacle_to(node, view) if isinstance(node, Aggregate) else ""
    how = "the affected keys are recomputed and compared with the stored rows"
    single = isinstance(node, Aggregate) and node.session is None
    mode = UPSERT if single else RETRACT
    return Operator(depth, name, detail, mode, view.key, state, how + (f" ({why})" if why else ""))


def _operator(node: Node, depth: int) -> Operator:
    name, detail = _title(node)
    state = "" if isinstance(node, Scan | Constant | Generate | UnionAll) else _FROM_SNAPSHOTS
    if isinstance(node, Select) and len(node.inputs) == 1:
        state = ""
    return Operator(depth, name, detail, _changelog(node), _keys(node), state, _strategy(node))


def _title(node: Node) -> tuple[str, str]:
    if isinstance(node, Scan):
        return ("clock", "") if node.table == CLOCK else ("scan", node.table)
    if is_join(node):
        return "inner join", f"of {len(node.inputs)}"
    if isinstance(node, Select):
        return ("filter" if node.where else "project"), ""
    if isinstance(node, Match):
        return f"{node.kind} join", ""
    if isinstance(node, Aggregate):
        calls = ", ".join(
            dict.fromkeys(_called(call.function, call.template) for call in node.calls)
        )
        return ("group", calls) if calls else ("distinct", "")
    if isinstance(node, Window):
        return "window", ", ".join(
            dict.fromkeys(o.call.template.split("(")[0] for o in node.overs)
        )
    if isinstance(node, Limit):
        return "limit", str(node.limit if node.limit is not None else f"offset {node.offset}")
    if isinstance(node, Generate):
        return "generate", node.call.template.split("(")[0].lower()
    return (
        ("union all", f"of {len(node.inputs)}") if isinstance(node, UnionAll) else ("values", "")
    )


def _called(function: str, template: str) -> str:
    return (function or template.split("(", maxsplit=1)[0]).lower()


def _changelog(node: Node) -> str:
    """`append` if append-only inputs give an append-only result."""
    if isinstance(node, Scan):
        return RETRACT if node.table == CLOCK else APPEND
    if isinstance(node, Window | Limit):
        return RETRACT
    if isinstance(node, Aggregate) and node.calls:
        return RETRACT
    if isinstance(node, Match) and node.kind != "semi":
        return RETRACT
    below = {_changelog(child) for child in children(node)}
    return RETRACT if RETRACT in below else APPEND


def _keys(node: Node) -> tuple[str, ...]:
    """Columns that identify a row of the result, as far as the query alone shows."""
    if isinstance(node, Aggregate) and node.session is None:
        return node.keys
    if isinstance(node, Select) and len(node.inputs) == 1:
        child = node.inputs[0]
        shown = {o.expr.as_column: o.name for o in node.outputs if o.expr.as_column is not None}
        names = [shown.get((child.alias, key)) for key in _keys(child.node)]
        return tuple(name for name in names if name) if all(names) else ()
    return ()


def _strategy(node: Node) -> str:
    if isinstance(node, Scan):
        return "the time of the barrier" if node.table == CLOCK else "its changes, once per epoch"
    if isinstance(node, Constant):
        return "never changes"
    if is_join(node):
        return (
            "each input's change is joined with the other inputs, earlier ones in their new state"
        )
    if isinstance(node, Match):
        first = "counts of partners by key" if by_key(node) else "counts of partners by row"
        what = (
            "changed rows looked up"
            if node.kind in {"semi", "anti"}
            else "inner join, and padding"
        )
        return f"{what}; {first} show which rows gain their first or lose their last"
    if isinstance(node, Aggregate) and grouped_sums.applies(node):
        return "old values are computed once for the affected groups, then the change is added"
    if isinstance(node, Aggregate | Window):
        if keys_of(node):
            return "the affected keys are computed before and after the change"
        return "computed before and after the change when its input changes"
    if isinstance(node, Limit):
        return "computed before and after the change when its input changes"
    return "run over the changed rows"
