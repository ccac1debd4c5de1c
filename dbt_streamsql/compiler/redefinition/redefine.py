"""Whether the rows of a new definition follow from the stored rows of the old one.

Both definitions are compared as relational trees. The stored rows are a projection

    S = π_e σ_p (A ⋈ B ⋈ …)        (e: all stored columns, including hidden ones)

and a query, or a part of it, π_f σ_q (A ⋈ B ⋈ …) over the same relations follows from S when each
conjunct of p is one of q, and f and the rest of q need only columns among e. Relations are the
same when they differ only in names and in columns that the new definition does not use: anything
that cannot be shown to be the same is computed from the sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.render_sql import render
from dbt_streamsql.compiler.lowering.view import View
from dbt_streamsql.compiler.redefinition.equivalence import (
    NotEquivalentError,
    call_in_words_of,
    match_columns,
    normalize_refs,
    rename_refs,
    row_makers,
)
from dbt_streamsql.compiler.redefinition.other_branches import rebranched
from dbt_streamsql.compiler.rules import fold
from dbt_streamsql.compiler.rules.components import ALL, Components, formula, unfolded
from dbt_streamsql.compiler.rules.incrementalize import incrementalize
from dbt_streamsql.compiler.state.ttl import forgets_all
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.algebra.catalog import Catalog
from dbt_streamsql.plan.algebra.expression import (
    Expr,
    Ref,
    escape,
    fill,
    refill,
)
from dbt_streamsql.plan.algebra.relational import (
    CLOCK,
    Aggregate,
    Branches,
    Call,
    Constant,
    Input,
    Node,
    Output,
    Scan,
    Select,
    children,
    with_children,
)
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, Column
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.redefinition import (
    APPEND,
    COMPATIBLE,
    METADATA,
    NOW,
    SHADOW,
    STORED,
    Redefinition,
)
from dbt_streamsql.plan.program.fold_values import WRITTEN
from dbt_streamsql.plan.state import State
from dbt_streamsql.plan.tree_json import node_of
from dbt_streamsql.quoting import quote

_S = f"{HIDDEN_PREFIX}stored"
"""The alias of the stored rows."""


def redefinition(old: CompiledPlan, new: CompiledPlan, catalog: Catalog) -> Redefinition:
    """The verdict on a new definition; both plans have this compiler and the same inputs."""
    try:
        wide = _wide(old, new)
        if wide is not None:
            return wide
        made = _made(old, new)
        sql = _typed(render(made, lambda _: _read(old)), (*new.columns, *new.hidden), made.columns)
        empty = ", ".join(_cast("NULL", column) for column in (*old.columns, *old.hidden))
        nothing = f"(SELECT {fill(empty, str)})"
        catalog.schema(fill(sql, lambda hole: "0L" if hole == NOW else nothing))
    except NotEquivalentError as why:
        return Redefinition(SHADOW, f"the definition changed: {why}")
    except StreamSqlError as error:
        text = f"the query is not valid over the stored rows: {error.message}"
        return Redefinition(SHADOW, f"the definition changed: {text}")
    stays = _stays(made)
    now, before = (*new.columns, *new.hidden), (*old.columns, *old.hidden)
    if now == before and stays >= {column.name for column in now}:
        reason = _lasting(old, new) or "the stored rows are those of the new query"
        return Redefinition(METADATA, reason)
    first, more = new.columns[: len(old.columns)], new.columns[len(old.columns) :]
    if more and first == old.columns and stays >= {column.name for column in first}:
        names = ", ".join(column.name for column in more)
        return Redefinition(APPEND, f"{names} can be computed from the stored rows", sql)
    reason = _lasting(old, new) or "the new rows can be computed from the stored ones"
    return Redefinition(COMPATIBLE, reason, sql)


def _wide(old: CompiledPlan, new: CompiledPlan) -> Redefinition | None:
    """The verdict on two wide tables; None if neither is."""
    if not old.is_wide and not new.is_wide:
        return None
    _check(old, new)
    before, now = node_of(old.tree), node_of(new.tree)
    if not isinstance(before, Branches) or not isinstance(now, Branches):
        raise NotEquivalentError("a view became a wide table, or a wide table became a view")
    found = rebranched(now, before, new.tables, _read(old))
    if found.stays:
        return Redefinition(METADATA, "the stored rows are those of the new branches")
    read = f"only {', '.join(found.lacking)} is read" if found.lacking else "nothing is read"
    columns = (*new.columns, *new.hidden)
    sql = _typed(found.sql, columns, [column.name for column in columns])
    return Redefinition(COMPATIBLE, f"the branches that stay are stored; {read}", sql)


def _check(old: CompiledPlan, new: CompiledPlan) -> None:
    for plan, which in ((old, "old"), (new, "new")):
        if plan.mode != "incremental":
            raise NotEquivalentError(f"the {which} query is always computed in full")
        if CLOCK in plan.tables:
            raise NotEquivalentError("it reads the time of the barrier")


def _made(old: CompiledPlan, new: CompiledPlan) -> Node:
    """All columns of the new version over the stored rows of the old one."""
    _check(old, new)
    if set(old.tables) != set(new.tables):
        raise NotEquivalentError("it reads different tables")
    if not forgets_all(node_of(new.tree), node_of(old.tree)):
        raise NotEquivalentError(
            "it looks up state that the view has forgotten in a different way"
        )
    wanted, known = _stored(new), _stored(old)
    kept = (Output(WRITTEN, Expr(WRITTEN)),) if WRITTEN in known.columns else ()
    bare = _ageless(known)
    made = _over(_ageless(wanted), replace(bare, outputs=(*bare.outputs, *kept)))
    if WRITTEN not in wanted.columns:
        return made
    if WRITTEN in known.columns and isinstance(made, Select) and made.inputs[0].alias == _S:
        # The groups are the stored ones, and keep their age.
        return replace(made, outputs=(*made.outputs, Output(WRITTEN, Expr.column(_S, WRITTEN))))
    return made


def _ageless(select: Select) -> Select:
    """The stored columns, without the time at which a group was written."""
    inputs = tuple(child for child in select.inputs if child.alias != fold.CLOCK_ALIAS)
    outputs = tuple(output for output in select.outputs if output.name != WRITTEN)
    return replace(select, inputs=inputs, outputs=outputs)


def _lasting(old: CompiledPlan, new: CompiledPlan) -> str:
    """Which states differ in their TTL, if nothing else differs ('' = something else does)."""
    if _without_ttls(old.tree) != _without_ttls(new.tree):
        return ""
    before = {(part.id, s.index): s for part in old.operators for s in part.states}
    now = {(part.id, s.index): s for part in new.operators for s in part.states}
    return "; ".join(
        f"{state.name} of node {key[0]} is kept {_for(state)}, not {_for(before[key])}"
        for key, state in now.items()
        if key in before and before[key].ttl != state.ttl
    )


def _for(state: State) -> str:
    return f"for {state.lasts}" if state.ttl else state.lasts


def _without_ttls(tree: Any) -> Any:
    """A tree as data without its TTLs."""
    if isinstance(tree, dict):
        return {name: _without_ttls(part) for name, part in tree.items() if name != "ttl"}
    return [_without_ttls(part) for part in tree] if isinstance(tree, list | tuple) else tree


def _stored(plan: CompiledPlan) -> Select:
    """What is stored for a view: its columns, including hidden ones, over its query's inputs."""
    root = node_of(plan.tree)
    view = incrementalize(View(root, plan.columns), (), Emitter(root))
    if view.full is not None:
        select = _select(view.full)
    else:
        shown = zip(_select(root).outputs, plan.columns, strict=True)
        outputs = tuple(Output(column.name, output.expr) for output, column in shown)
        select = replace(_select(root), outputs=outputs)
    return _once(select)


def _once(select: Select) -> Select:
    """Only the first of several equal aggregates keeps its name."""
    same: dict[Ref, Expr] = {}
    for child in select.inputs:
        first: dict[Call, str] = {}
        for call in child.node.calls if isinstance(child.node, Aggregate) else ():
            name = first.setdefault(replace(call, name=""), call.name)
            same[child.alias, call.name] = Expr.column(child.alias, name)
    outputs = tuple(Output(output.name, output.expr.over(same)) for output in select.outputs)
    return Select(select.inputs, tuple(expr.over(same) for expr in select.where), outputs)


def _select(node: Node) -> Select:
    if isinstance(node, Select):
        return node
    outputs = tuple(Output(name, Expr.column("v", name)) for name in node.columns)
    return Select((Input("v", node),), (), outputs)


# -- a query over the stored rows --------------------------------------------------------------


def _over(node: Node, old: Select) -> Node:
    """The node with every table below it replaced by the stored rows."""
    if isinstance(node, Constant):
        return node
    try:
        return _answer(_select(node), old)
    except NotEquivalentError as why:
        below = children(node)
        if not below:
            raise
        try:
            return with_children(node, tuple(_over(child, old) for child in below))
        except NotEquivalentError:
            # The reason for the whole is more helpful than the reason for one of its tables.
            raise why from None


def _answer(new: Select, old: Select) -> Select:
    """A block over the stored rows, if it reads the relations that they were made from."""
    if len(new.inputs) != len(old.inputs):
        raise NotEquivalentError("it joins different relations")
    shown = {normalize_refs(output.expr): output.name for output in old.outputs}
    at: dict[Ref, Expr] = {}
    for child, known in zip(new.inputs, old.inputs, strict=True):
        found = match_columns(child.node, known.node, lacking=True)
        at |= {(child.alias, name): Expr.column(known.alias, was) for name, was in found.items()}
        if isinstance(child.node, Aggregate) and isinstance(known.node, Aggregate):
            added = _added(child.node, Input(known.alias, known.node), found, shown)
            at |= {(child.alias, name): expr for name, expr in added.items()}
            for call in child.node.calls:
                if (child.alias, call.name) not in at:
                    name = (call.function or call.template.split("(")[0]).lower()
                    of = f"{'distinct ' if call.distinct else ''}{call.arg or '*'}"
                    what = f"{name}({'…' if call.template else of})"
                    raise NotEquivalentError(f"{what} is not stored")
    had = {normalize_refs(expr) for expr in old.where}
    asked = [normalize_refs(rename_refs(expr, at)) for expr in new.where]
    if not had <= set(asked):
        raise NotEquivalentError("rows that the old condition excluded are not stored")
    if row_makers(new, at) != row_makers(old):
        raise NotEquivalentError("its time windows multiply the rows differently")

    def value(expr: Expr) -> Expr:
        if expr in shown:
            return Expr.column(_S, shown[expr])
        stored = {ref: shown.get(Expr.column(*ref)) for ref in expr.refs if ref[0] != _S}
        for ref, name in stored.items():
            if name is None:
                raise NotEquivalentError(f"{ref[1]} is not stored")
        return expr.over({ref: Expr.column(_S, str(name)) for ref, name in stored.items()})

    rows = Input(_S, Scan(STORED, tuple(output.name for output in old.outputs)))
    rest = tuple(value(expr) for expr in asked if expr not in had)
    outputs = tuple(
        Output(output.name, value(normalize_refs(rename_refs(output.expr, at))))
        for output in new.outputs
    )
    return Select((rows,), rest, outputs)


def _added(
    new: Aggregate, old: Input, found: Mapping[str, str], shown: Mapping[Expr, str]
) -> dict[str, Expr]:
    """The aggregates that are not stored, but follow from other stored ones."""
    assert isinstance(old.node, Aggregate)
    names = match_columns(new.input, old.node.input)
    columns: dict[str, str] = {}
    known: dict[Call, str] = {}
    for call in old.node.calls:
        column = shown.get(Expr.column(old.alias, call.name))
        if column is not None:
            columns[f"c{len(columns)}"] = column
            known[replace(call, name="")] = f"c{len(columns) - 1}"
    added: dict[str, Expr] = {}
    for call in new.calls:
        if call.name in found or unfolded(call):
            continue
        state = Components(dict(known))
        alive = state.component(ALL, "add")
        text = formula(call_in_words_of(call, names), state, alive, bool(new.keys))
        if not state.hidden:
            refs: list[Ref] = []

            def number(hole: str, refs: list[Ref] = refs) -> str:
                refs.append((_S, columns[hole]))
                return f"{{{len(refs) - 1}}}"

            text = refill(f"CAST({text} AS {call.type})", number)
            added[call.name] = normalize_refs(Expr(text, tuple(refs)))
    return added


# -- as data and as SQL ------------------------------------------------------------------------


def _read(old: CompiledPlan) -> str:
    """The stored rows with the types of the query: the table may have wider ones."""
    columns = (*old.columns, *old.hidden)
    items = ", ".join(_cast(escape(quote(column.name)), column) for column in columns)
    return f"(SELECT {items} FROM {{{STORED}}})"


def _typed(sql: str, columns: tuple[Column, ...], made: Sequence[str]) -> str:
    """The columns of a query; a group without a recorded write time is written now."""
    items = ", ".join(
        _cast(
            f"{{{NOW}}}" if c.name == WRITTEN and c.name not in made else escape(quote(c.name)), c
        )
        for c in columns
    )
    return f"SELECT {items} FROM (\n{sql}\n)"


def _cast(value: str, column: Column) -> str:
    return f"CAST({value} AS {column.type}) AS {escape(quote(column.name))}"


def _stays(made: Node) -> set[str]:
    """The columns that are the stored ones, if the rows are exactly the stored rows."""
    if not isinstance(made, Select) or made.where or made.inputs[0].alias != _S:
        return set()
    return {o.name for o in made.outputs if o.expr == Expr.column(_S, o.name)}
