"""Filter, projection and N-way inner join.

Filter and projection are linear: the change of the result is the result over the change. The
inner join is multilinear, so its change is a telescoping sum over the inputs in one fixed order
(DBSP, Theorem 3.4; checked on random bags):

    d(R1 ⋈ … ⋈ Rn) = Σ_i  R1' ⋈ … ⋈ R(i-1)' ⋈ dRi ⋈ R(i+1) ⋈ … ⋈ Rn

with `R` before and `R'` after the epoch. There is no minus sign, a self-join is two inputs that
share one change, and a term whose change is empty is never planned.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

from dbt_streamsql.compiler.emit import Emitter
from dbt_streamsql.compiler.render import aliased, relation, select, term
from dbt_streamsql.compiler.restrict import Link, restrict
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.compiler.rules import single
from dbt_streamsql.plan.expression import Expr, Ref, dotted, escape, ident
from dbt_streamsql.plan.relational import (
    Aggregate,
    Constant,
    Input,
    Match,
    Node,
    Scan,
    Select,
    Window,
    walk,
)
from dbt_streamsql.plan.schema import WEIGHT

_SMALL = "small"
"""Alias of the part of a join term that holds the change, joined so far."""


def delta(node: Select, emitter: Emitter) -> str:
    """Signed rows of an inner join block."""
    changed = [delta_of(child.node, emitter) for child in node.inputs]
    if len(node.inputs) == 1:
        if _is_narrowing(node):
            return changed[0]
        alias = node.inputs[0].alias
        sql = select(node, [f"{{{changed[0]}}} {escape(ident(alias))}"], _weight(alias))
        return emitter.query("changed", sql)
    terms = []
    for index, frame in enumerate(changed):
        if isinstance(node.inputs[index].node, Constant):
            continue
        after = frozenset(child.alias for child in node.inputs[:index])
        flipped = single.other(node, index)
        if flipped is None:
            terms.append(_term(node, index, frame, after, emitter))
            continue
        rest, start = single.without(node, index), node.inputs[flipped]
        source = emitter.after if start.alias in after else emitter.before
        rows = single.flips(node, index, start, frame, source, emitter)
        if len(rest.inputs) == 1:
            alias = escape(ident(start.alias))
            sql = select(rest, [f"{{{rows}}} {alias}"], _weight(start.alias))
            terms.append(emitter.query("changed", sql))
        else:
            terms.append(_term(rest, rest.inputs.index(start), rows, after, emitter))
    return emitter.union("joined", terms)


def _is_narrowing(node: Select) -> bool:
    """Nothing but a choice of columns under their own names."""
    return not node.where and all(
        output.expr.as_column is not None and output.expr.refs[0][1] == output.name
        for output in node.outputs
    )


def _weight(alias: str) -> str:
    return f"{escape(ident(alias))}.{WEIGHT}"


def _term(node: Select, index: int, frame: str, after: frozenset[str], emitter: Emitter) -> str:
    """One summand: the change of input `index` joined with the others, nearest first.

    Those with an alias in `after` are read as they are after the epoch.
    """
    start = node.inputs[index]
    order = _by_connection(node, index)
    sides = {
        child.alias: _side(child, child.alias in after, start, frame, node, emitter)
        for position, child in enumerate(node.inputs)
        if position != index
    }
    rest = list(node.where)
    have = {start.alias}
    small = f"{{{frame}}} {escape(ident(start.alias))}"
    names: dict[Ref, str] = {}

    def resolve(ref: Ref) -> str:
        return names.get(ref) or dotted(ref)

    shown = list(dict.fromkeys(ref for output in node.outputs for ref in output.expr.refs))

    def needed(rest: list[Expr], have: set[str]) -> Iterable[Ref]:
        """The columns of the joined inputs that a later predicate or an output still uses."""
        refs = chain((ref for expr in rest for ref in expr.refs), shown)
        return (ref for ref in refs if ref[0] in have)

    weight, hint = _weight(start.alias), escape(ident(start.alias))
    for position, child in enumerate(order):
        have.add(child.alias)
        ready = [expr for expr in rest if expr.aliases <= have]
        rest = [expr for expr in rest if not expr.aliases <= have]
        on = " AND ".join(term(expr, resolve) for expr in ready)
        from_ = f"{small}\n{'JOIN' if on else 'CROSS JOIN'} {sides[child.alias]}"
        from_ += f" ON {on}" if on else ""
        if position == len(order) - 1:
            items = [aliased(output.expr.render(resolve), output.name) for output in node.outputs]
            items.append(aliased(weight, WEIGHT))
        else:
            carried = dict.fromkeys(needed(rest, have))
            items = [f"{resolve(ref)} AS {_carried(ref)}" for ref in carried]
            items.append(aliased(weight, WEIGHT))
        sql = f"SELECT /*+ BROADCAST({hint}) */ {', '.join(items)}\nFROM {from_}"
        if position < len(order) - 1:
            # Not indented: the text of a long chain would be copied for each of its joins.
            small = f"(\n{sql}\n) {_SMALL}"
            names = {ref: f"{_SMALL}.{_carried(ref)}" for ref in carried}
            weight, hint = f"{_SMALL}.{WEIGHT}", _SMALL
    return emitter.query(f"from_{start.alias}" if start.alias.isidentifier() else "term", sql)


@lru_cache(maxsize=8192)
def _carried(ref: Ref) -> str:
    """What a column is called inside a join term (a template)."""
    return escape(ident(f"{ref[0]}__{ref[1]}"))


def _by_connection(node: Select, index: int) -> list[Input]:
    """The other inputs, each preferably sharing a predicate with those before it."""
    have = {node.inputs[index].alias}
    rest = [child for position, child in enumerate(node.inputs) if position != index]
    order: list[Input] = []
    links = [expr.aliases for expr in node.where if len(expr.aliases) > 1]
    while rest:
        left = [link - have for link in links]
        links = [link for link, new in zip(links, left, strict=True) if new]
        near = {alias for new in left if len(new) == 1 for alias in new}
        nearest = next((child for child in rest if child.alias in near), rest[0])
        rest.remove(nearest)
        order.append(nearest)
        have.add(nearest.alias)
    return order


def _side(
    child: Input, after: bool, start: Input, frame: str, node: Select, emitter: Emitter
) -> str:
    """An unchanged side of a term; what is costly is computed only for what the change meets."""
    if isinstance(child.node, Scan):
        return relation(child, emitter.met_after if after else emitter.met_before)
    source = emitter.after if after else emitter.before
    cut: Node = child.node
    if any(isinstance(part, Aggregate | Window | Match) for part in walk(child.node)):
        links = {
            own: Link(other, "=", same=False) for own, other in _equal_keys(node, child, start)
        }
        cut = restrict(child.node, frame, links)
    return relation(Input(child.alias, cut), source)


def _equal_keys(node: Select, child: Input, start: Input) -> list[tuple[str, str]]:
    """Pairs (column of `child`, column of `start`) that a conjunct `a = b` makes equal."""
    pairs: list[tuple[str, str]] = []
    for expr in node.where:
        if expr.template == "{0} = {1}" and expr.aliases == {child.alias, start.alias}:
            first, second = expr.refs
            own, other = (first, second) if first[0] == child.alias else (second, first)
            pairs.append((own[1], other[1]))
    return pairs
