"""Whether the rows of a new definition follow from those that are stored for the old one.

Both definitions are compared as relational trees. The stored rows are a projection

    S = π_e σ_p (A ⋈ B ⋈ …)        (e: all stored columns, the hidden ones too)

and a query, or a part of it, π_f σ_q (A ⋈ B ⋈ …) over the same relations follows from S when each
conjunct of p is one of q, and f and the rest of q need nothing but columns among e. Relations are
the same when they differ in names and in columns that the new definition does not use, and in
nothing else: what cannot be seen to be the same is computed from the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from dbt_streamsql.compiler.emit import Emitter
from dbt_streamsql.compiler.incrementalize import incrementalize
from dbt_streamsql.compiler.render import render
from dbt_streamsql.compiler.rules.components import ALL, Components, formula, unfolded
from dbt_streamsql.compiler.rules.view import View
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan import relational
from dbt_streamsql.plan.catalog import Catalog
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.expression import Expr, Ref, escape, fill, ident, refill
from dbt_streamsql.plan.redefinition import (
    APPEND,
    COMPATIBLE,
    METADATA,
    SHADOW,
    STORED,
    Redefinition,
)
from dbt_streamsql.plan.relational import (
    CLOCK,
    Aggregate,
    Branches,
    Call,
    Constant,
    Generate,
    Input,
    Limit,
    Match,
    Node,
    Output,
    Scan,
    Select,
    UnionAll,
    Window,
    children,
    with_children,
)
from dbt_streamsql.plan.schema import HIDDEN_PREFIX, Column

_S = f"{HIDDEN_PREFIX}stored"
"""The alias of the stored rows."""


class _Differs(Exception):
    """Why stored rows do not answer a query."""


def redefinition(old: CompiledPlan, new: CompiledPlan, catalog: Catalog) -> Redefinition:
    """The verdict on a new definition; both plans are of this compiler and of the same inputs."""
    try:
        made = _made(old, new)
        sql = _typed(render(made, lambda _: _read(old)), (*new.columns, *new.hidden))
        empty = ", ".join(_cast("NULL", column) for column in (*old.columns, *old.hidden))
        catalog.schema(fill(sql, lambda _: f"(SELECT {fill(empty, str)})"))
    except _Differs as why:
        return Redefinition(SHADOW, f"the definition changed: {why}")
    except StreamSqlError as error:
        text = f"over the stored rows the query is not valid: {error.message}"
        return Redefinition(SHADOW, f"the definition changed: {text}")
    stays = _stays(made)
    now, before = (*new.columns, *new.hidden), (*old.columns, *old.hidden)
    if now == before and stays >= {column.name for column in now}:
        return Redefinition(METADATA, "the stored rows are those of the new query")
    first, more = new.columns[: len(old.columns)], new.columns[len(old.columns) :]
    if more and first == old.columns and stays >= {column.name for column in first}:
        names = ", ".join(column.name for column in more)
        return Redefinition(APPEND, f"{names} follows from what is stored", sql)
    return Redefinition(COMPATIBLE, "the new rows follow from the stored ones", sql)


def _made(old: CompiledPlan, new: CompiledPlan) -> Node:
    """All columns of the new version over the stored rows of the old one."""
    for plan, which in ((old, "old"), (new, "new")):
        if plan.mode != "incremental":
            raise _Differs(f"the {which} query is always computed in full")
        if CLOCK in plan.tables:
            raise _Differs("the time of the barrier is read")
    if set(old.tables) != set(new.tables):
        raise _Differs("other tables are read")
    return _over(_stored(new), _stored(old))


def _stored(plan: CompiledPlan) -> Select:
    """What is stored for a view: its columns, the hidden ones too, over what its query reads."""
    root = _node(plan.tree)
    if isinstance(root, Branches):
        raise _Differs("a wide table is put together in another way")
    view = incrementalize(View(root, plan.columns), (), Emitter(root))
    if view.full is not None:
        select = _select(view.full)
    else:
        shown = zip(_select(root).outputs, plan.columns, strict=True)
        outputs = tuple(Output(column.name, output.expr) for output, column in shown)
        select = replace(_select(root), outputs=outputs)
    return _once(select)


def _once(select: Select) -> Select:
    """Of aggregates that are the same only the first is named."""
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
    except _Differs as why:
        below = children(node)
        if not below:
            raise
        try:
            return with_children(node, tuple(_over(child, old) for child in below))
        except _Differs:
            # What is wrong with the whole says more than what is wrong with a table of it.
            raise why from None


def _answer(new: Select, old: Select) -> Select:
    """A block over the stored rows, when it reads what they were made of."""
    if len(new.inputs) != len(old.inputs):
        raise _Differs("other relations are joined")
    shown = {_plain(output.expr): output.name for output in old.outputs}
    at: dict[Ref, Expr] = {}
    for child, known in zip(new.inputs, old.inputs, strict=True):
        found = _same(child.node, known.node, lacking=True)
        at |= {(child.alias, name): Expr.column(known.alias, was) for name, was in found.items()}
        if isinstance(child.node, Aggregate) and isinstance(known.node, Aggregate):
            added = _added(child.node, Input(known.alias, known.node), found, shown)
            at |= {(child.alias, name): expr for name, expr in added.items()}
            for call in child.node.calls:
                if (child.alias, call.name) not in at:
                    name = (call.function or call.template.split("(")[0]).lower()
                    of = f"{'distinct ' if call.distinct else ''}{call.arg or '*'}"
                    what = f"{name}({'…' if call.template else of})"
                    raise _Differs(f"{what} is not stored")
    had = {_plain(expr) for expr in old.where}
    asked = [_plain(_moved(expr, at)) for expr in new.where]
    if not had <= set(asked):
        raise _Differs("rows that the old condition left out are not stored")
    if _row_makers(new, at) != _row_makers(old):
        raise _Differs("time windows multiply the rows in another way")

    def value(expr: Expr) -> Expr:
        if expr in shown:
            return Expr.column(_S, shown[expr])
        stored = {ref: shown.get(Expr.column(*ref)) for ref in expr.refs if ref[0] != _S}
        for ref, name in stored.items():
            if name is None:
                raise _Differs(f"{ref[1]} is not stored")
        return expr.over({ref: Expr.column(_S, str(name)) for ref, name in stored.items()})

    rows = Input(_S, Scan(STORED, tuple(output.name for output in old.outputs)))
    rest = tuple(value(expr) for expr in asked if expr not in had)
    outputs = tuple(
        Output(output.name, value(_plain(_moved(output.expr, at)))) for output in new.outputs
    )
    return Select((rows,), rest, outputs)


def _added(
    new: Aggregate, old: Input, found: Mapping[str, str], shown: Mapping[Expr, str]
) -> dict[str, Expr]:
    """The aggregates that were not asked for, and that follow from others that are stored."""
    assert isinstance(old.node, Aggregate)
    names = _same(new.input, old.node.input)
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
        text = formula(_call(call, names), state, alive, bool(new.keys))
        if not state.hidden:
            refs: list[Ref] = []

            def number(hole: str, refs: list[Ref] = refs) -> str:
                refs.append((_S, columns[hole]))
                return f"{{{len(refs) - 1}}}"

            text = refill(f"CAST({text} AS {call.type})", number)
            added[call.name] = _plain(Expr(text, tuple(refs)))
    return added


# -- the same relation -------------------------------------------------------------------------


def _same(new: Node, old: Node, *, lacking: bool = False) -> dict[str, str]:
    """The column of `old` for each of `new`, both having the same rows up to other columns.

    `lacking`: aggregates that only `new` has are left out.
    """
    if type(new) is not type(old):
        raise _Differs("the query is built in another way")
    found = _SAME[type(new)](new, old)
    missing = [name for name in new.columns if name not in found]
    if missing and not (lacking and isinstance(new, Aggregate)):
        raise _Differs(f"{missing[0]} is not stored")
    return found


def _scan(new: Scan, old: Scan) -> dict[str, str]:
    if new.table != old.table:
        raise _Differs(f"{new.table} is read in the place of {old.table}")
    return {name: name for name in new.columns if name in old.columns}


def _constant(new: Constant, old: Constant) -> dict[str, str]:
    if new != old:
        raise _Differs("other constant rows are read")
    return {name: name for name in new.columns}


def _block(new: Select, old: Select) -> dict[str, str]:
    if len(new.inputs) != len(old.inputs):
        raise _Differs("other relations are joined")
    at: dict[Ref, Expr] = {}
    for child, known in zip(new.inputs, old.inputs, strict=True):
        at |= _columns(child, known)
    _equal(new.where, old.where, at, "another condition below what is stored")
    if _row_makers(new, at) != _row_makers(old):
        raise _Differs("time windows multiply the rows in another way")
    return _outputs(new.outputs, old.outputs, at)


def _match(new: Match, old: Match) -> dict[str, str]:
    if new.kind != old.kind:
        raise _Differs(f"a {new.kind} join in the place of a {old.kind} join")
    at = _columns(new.left, old.left) | _columns(new.right, old.right)
    _equal(new.on, old.on, at, "another join condition")
    return _outputs(new.outputs, old.outputs, at)


def _aggregate(new: Aggregate, old: Aggregate) -> dict[str, str]:
    names = _same(new.input, old.input)
    if {names[key] for key in new.keys} != set(old.keys):
        raise _Differs("other groups")
    found = {key: names[key] for key in new.keys}
    if new.session is not None or old.session is not None:
        if new.session is None or old.session is None or new.session.gap != old.session.gap:
            raise _Differs("other sessions")
        if names[new.session.time] != old.session.time:
            raise _Differs("other sessions")
        found[new.session.name] = old.session.name
    calls: dict[Call, str] = {}
    for call in old.calls:
        calls.setdefault(replace(call, name=""), call.name)
    for call in new.calls:
        was = calls.get(_call(call, names))
        if was is not None:
            found[call.name] = was
    return found


def _call(call: Call, names: Mapping[str, str]) -> Call:
    """A call in the words of the old relation, without its name."""
    arg = None if call.arg is None else names[call.arg]
    return replace(call, name="", arg=arg, args=tuple(names[name] for name in call.args))


def _window(new: Window, old: Window) -> dict[str, str]:
    names = _same(new.input, old.input)
    at = {("i", name): Expr.column("i", was) for name, was in names.items()}
    if {names[name] for name in new.partition} != set(old.partition):
        raise _Differs("other partitions")
    known: dict[Any, str] = {}
    for over in old.overs:
        ties = old.sortable if over.ties else None
        key = (_plain(over.call), tuple(map(_plain, over.order)), over.frame, ties)
        known.setdefault(key, over.name)
    found = dict(names)
    for over in new.overs:
        ties = tuple(names[name] for name in new.sortable) if over.ties else None
        order = tuple(_plain(_moved(expr, at)) for expr in over.order)
        was = known.get((_plain(_moved(over.call, at)), order, over.frame, ties))
        if was is not None:
            found[over.name] = was
    return found


def _limit(new: Limit, old: Limit) -> dict[str, str]:
    names = _same(new.input, old.input)
    at = {("i", name): Expr.column("i", was) for name, was in names.items()}
    order = tuple(_plain(_moved(expr, at)) for expr in new.order)
    ties = tuple(names[name] for name in new.sortable)
    asked = (order, new.limit, new.offset, ties)
    if asked != (tuple(map(_plain, old.order)), old.limit, old.offset, old.sortable):
        raise _Differs("another LIMIT")
    return names


def _generate(new: Generate, old: Generate) -> dict[str, str]:
    names = _same(new.input, old.input)
    at = {("i", name): Expr.column("i", was) for name, was in names.items()}
    if (_plain(_moved(new.call, at)), new.outer) != (_plain(old.call), old.outer):
        raise _Differs("another generator")
    return names | dict(zip(new.names, old.names, strict=True))


def _union(new: UnionAll, old: UnionAll) -> dict[str, str]:
    if len(new.inputs) != len(old.inputs):
        raise _Differs("another number of queries is put together")
    places: set[tuple[int, ...]] = set()
    for child, known in zip(new.inputs, old.inputs, strict=True):
        found = _same(child, known)
        places.add(tuple(known.columns.index(found[name]) for name in child.columns))
    if len(places) != 1:
        raise _Differs("columns are put together in another way")
    return {name: old.columns[at] for name, at in zip(new.columns, places.pop(), strict=True)}


_SAME: dict[type[Any], Callable[[Any, Any], dict[str, str]]] = {
    Scan: _scan,
    Constant: _constant,
    Select: _block,
    Match: _match,
    Aggregate: _aggregate,
    Window: _window,
    Limit: _limit,
    Generate: _generate,
    UnionAll: _union,
}


def _columns(new: Input, old: Input) -> dict[Ref, Expr]:
    found = _same(new.node, old.node)
    return {(new.alias, name): Expr.column(old.alias, was) for name, was in found.items()}


def _outputs(
    new: Iterable[Output], old: Iterable[Output], at: Mapping[Ref, Expr]
) -> dict[str, str]:
    known: dict[Expr, list[str]] = {}
    for output in old:
        known.setdefault(_plain(output.expr), []).append(output.name)
    found = {}
    for output in new:
        names = known.get(_plain(_moved(output.expr, at)), ())
        if names:
            # Of columns that are the same, what is above names the one that has this name.
            found[output.name] = output.name if output.name in names else names[0]
    return found


def _equal(
    new: Iterable[Expr], old: Iterable[Expr], at: Mapping[Ref, Expr], otherwise: str
) -> None:
    if {_plain(_moved(expr, at)) for expr in new} != {_plain(expr) for expr in old}:
        raise _Differs(otherwise)


def _row_makers(select: Select, at: Mapping[Ref, Expr] | None = None) -> set[Expr]:
    """The outputs of a projection that make several rows of one."""
    made = [o.expr for o in select.outputs if "window(" in o.expr.template.lower()]
    return {_plain(expr if at is None else _moved(expr, at)) for expr in made}


def _moved(expr: Expr, at: Mapping[Ref, Expr]) -> Expr:
    """An expression in the words of the old relation."""
    for ref in expr.refs:
        if ref not in at:
            raise _Differs(f"{ref[1]} is not stored")
    return expr.over(at)


def _plain(expr: Expr) -> Expr:
    """The expression with its columns numbered in the order in which they stand there."""
    return expr.over({})


# -- as data and as SQL ------------------------------------------------------------------------


def _node(tree: Any) -> Any:
    """The relational tree that a plan holds as JSON data."""
    if isinstance(tree, list | tuple):
        return tuple(map(_node, tree))
    if not isinstance(tree, dict):
        return tree
    if isinstance(tree["node"], dict):  # the field of that name hides what it is
        return Input(tree["alias"], _node(tree["node"]))
    kind = Expr if tree["node"] == "Expr" else getattr(relational, tree["node"])
    return kind(**{field.name: _node(tree[field.name]) for field in fields(kind)})


def _read(old: CompiledPlan) -> str:
    """The stored rows with the types that the query gave them: the table may have wider ones."""
    columns = (*old.columns, *old.hidden)
    items = ", ".join(_cast(escape(ident(column.name)), column) for column in columns)
    return f"(SELECT {items} FROM {{{STORED}}})"


def _typed(sql: str, columns: tuple[Column, ...]) -> str:
    items = ", ".join(_cast(escape(ident(column.name)), column) for column in columns)
    return f"SELECT {items} FROM (\n{sql}\n)"


def _cast(value: str, column: Column) -> str:
    return f"CAST({value} AS {column.type}) AS {escape(ident(column.name))}"


def _stays(made: Node) -> set[str]:
    """The columns that are the stored ones, in rows that are all the stored ones."""
    if not isinstance(made, Select) or made.where or made.inputs[0].alias != _S:
        return set()
    return {o.name for o in made.outputs if o.expr == Expr.column(_S, o.name)}
