"""Whether two relations have the same rows, up to names and to columns that one of them lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from dbt_streamsql.plan.algebra.expression import Expr, Ref
from dbt_streamsql.plan.algebra.relational import (
    Aggregate,
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
)


class NotEquivalentError(Exception):
    """Why stored rows do not answer a query."""


def match_columns(new: Node, old: Node, *, lacking: bool = False) -> dict[str, str]:
    """The column of `old` for each of `new`, if both have the same rows up to other columns.

    `lacking`: ignore aggregates that only `new` has.
    """
    if type(new) is not type(old):
        raise NotEquivalentError("the query has a different structure")
    found = _SAME[type(new)](new, old)
    missing = [name for name in new.columns if name not in found]
    if missing and not (lacking and isinstance(new, Aggregate)):
        raise NotEquivalentError(f"{missing[0]} is not stored")
    return found


def _scan(new: Scan, old: Scan) -> dict[str, str]:
    if new.table != old.table:
        raise NotEquivalentError(f"{new.table} is read instead of {old.table}")
    return {name: name for name in new.columns if name in old.columns}


def _constant(new: Constant, old: Constant) -> dict[str, str]:
    if new != old:
        raise NotEquivalentError("it reads different constant rows")
    return {name: name for name in new.columns}


def _block(new: Select, old: Select) -> dict[str, str]:
    if len(new.inputs) != len(old.inputs):
        raise NotEquivalentError("it joins different relations")
    at: dict[Ref, Expr] = {}
    for child, known in zip(new.inputs, old.inputs, strict=True):
        at |= _columns(child, known)
    _equal(new.where, old.where, at, "a condition below the stored rows is different")
    if row_makers(new, at) != row_makers(old):
        raise NotEquivalentError("its time windows multiply the rows differently")
    return _outputs(new.outputs, old.outputs, at)


def _match(new: Match, old: Match) -> dict[str, str]:
    if new.kind != old.kind:
        raise NotEquivalentError(f"a {new.kind} join replaces a {old.kind} join")
    at = _columns(new.left, old.left) | _columns(new.right, old.right)
    _equal(new.on, old.on, at, "the join condition is different")
    return _outputs(new.outputs, old.outputs, at)


def _aggregate(new: Aggregate, old: Aggregate) -> dict[str, str]:
    names = match_columns(new.input, old.input)
    if {names[key] for key in new.keys} != set(old.keys):
        raise NotEquivalentError("the groups are different")
    found = {key: names[key] for key in new.keys}
    if new.session is not None or old.session is not None:
        if new.session is None or old.session is None or new.session.gap != old.session.gap:
            raise NotEquivalentError("the sessions are different")
        if names[new.session.time] != old.session.time:
            raise NotEquivalentError("the sessions are different")
        found[new.session.name] = old.session.name
    calls: dict[Call, str] = {}
    for call in old.calls:
        calls.setdefault(replace(call, name=""), call.name)
    for call in new.calls:
        was = calls.get(call_in_words_of(call, names))
        if was is not None:
            found[call.name] = was
    return found


def call_in_words_of(call: Call, names: Mapping[str, str]) -> Call:
    """A call with the names of the old relation, without its own name."""
    arg = None if call.arg is None else names[call.arg]
    return replace(call, name="", arg=arg, args=tuple(names[name] for name in call.args))


def _window(new: Window, old: Window) -> dict[str, str]:
    names = match_columns(new.input, old.input)
    at = {("i", name): Expr.column("i", was) for name, was in names.items()}
    if {names[name] for name in new.partition} != set(old.partition):
        raise NotEquivalentError("the partitions are different")
    known: dict[Any, str] = {}
    for over in old.overs:
        ties = (old.sortable, old.unlike) if over.ties else None
        key = (normalize_refs(over.call), tuple(map(normalize_refs, over.order)), over.frame, ties)
        known.setdefault(key, over.name)
    found = dict(names)
    for over in new.overs:
        ties = _ties(new, names) if over.ties else None
        order = tuple(normalize_refs(rename_refs(expr, at)) for expr in over.order)
        was = known.get((normalize_refs(rename_refs(over.call, at)), order, over.frame, ties))
        if was is not None:
            found[over.name] = was
    return found


def _limit(new: Limit, old: Limit) -> dict[str, str]:
    names = match_columns(new.input, old.input)
    at = {("i", name): Expr.column("i", was) for name, was in names.items()}
    order = tuple(normalize_refs(rename_refs(expr, at)) for expr in new.order)
    asked = (order, new.limit, new.offset, _ties(new, names))
    ties = (old.sortable, old.unlike)
    if asked != (tuple(map(normalize_refs, old.order)), old.limit, old.offset, ties):
        raise NotEquivalentError("the LIMIT is different")
    return names


def _ties(
    new: Window | Limit, names: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The tie-breakers, with the names of the old relation."""
    unlike = ((names[name], kind) for name, kind in new.unlike)
    return tuple(names[name] for name in new.sortable), tuple(unlike)


def _generate(new: Generate, old: Generate) -> dict[str, str]:
    names = match_columns(new.input, old.input)
    at = {("i", name): Expr.column("i", was) for name, was in names.items()}
    if (normalize_refs(rename_refs(new.call, at)), new.outer) != (
        normalize_refs(old.call),
        old.outer,
    ):
        raise NotEquivalentError("the generator is different")
    return names | dict(zip(new.names, old.names, strict=True))


def _union(new: UnionAll, old: UnionAll) -> dict[str, str]:
    if len(new.inputs) != len(old.inputs):
        raise NotEquivalentError("a different number of queries is combined")
    places: set[tuple[int, ...]] = set()
    for child, known in zip(new.inputs, old.inputs, strict=True):
        found = match_columns(child, known)
        places.add(tuple(known.columns.index(found[name]) for name in child.columns))
    if len(places) != 1:
        raise NotEquivalentError("the columns are combined differently")
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
    found = match_columns(new.node, old.node)
    return {(new.alias, name): Expr.column(old.alias, was) for name, was in found.items()}


def _outputs(
    new: Iterable[Output], old: Iterable[Output], at: Mapping[Ref, Expr]
) -> dict[str, str]:
    known: dict[Expr, list[str]] = {}
    for output in old:
        known.setdefault(normalize_refs(output.expr), []).append(output.name)
    found = {}
    for output in new:
        names = known.get(normalize_refs(rename_refs(output.expr, at)), ())
        if names:
            # Among equal columns, the operators above use the one with this name.
            found[output.name] = output.name if output.name in names else names[0]
    return found


def _equal(
    new: Iterable[Expr], old: Iterable[Expr], at: Mapping[Ref, Expr], otherwise: str
) -> None:
    if {normalize_refs(rename_refs(expr, at)) for expr in new} != {
        normalize_refs(expr) for expr in old
    }:
        raise NotEquivalentError(otherwise)


def row_makers(select: Select, at: Mapping[Ref, Expr] | None = None) -> set[Expr]:
    """The outputs of a projection that turn one row into several."""
    made = [o.expr for o in select.outputs if "window(" in o.expr.template.lower()]
    return {normalize_refs(expr if at is None else rename_refs(expr, at)) for expr in made}


def rename_refs(expr: Expr, at: Mapping[Ref, Expr]) -> Expr:
    """An expression with the names of the old relation."""
    for ref in expr.refs:
        if ref not in at:
            raise NotEquivalentError(f"{ref[1]} is not stored")
    return expr.over(at)


def normalize_refs(expr: Expr) -> Expr:
    """The expression with its columns numbered in order of appearance."""
    return expr.over({})
