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
from itertools import chain

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.equal_columns import equal_columns, pairs_through
from dbt_streamsql.compiler.codegen.render_sql import (
    aliased,
    relation,
    select,
    term,
)
from dbt_streamsql.compiler.codegen.restrict_to_keys import Link, restrict
from dbt_streamsql.compiler.passes.merge_projections import flattened, is_costly
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.compiler.rules import single
from dbt_streamsql.plan.algebra.expression import (
    Expr,
    Ref,
    dotted,
    escape,
)
from dbt_streamsql.plan.algebra.relational import (
    Constant,
    Input,
    Node,
    Scan,
    Select,
)
from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.quoting import quote

_SMALL = "small"
"""Alias of the part of a join term that contains the change, joined so far."""


def delta(node: Select, emitter: Emitter) -> str:
    """Signed rows of an inner join block."""
    changed = [delta_of(child.node, emitter) for child in node.inputs]
    if len(node.inputs) == 1:
        return changed[0] if _is_narrowing(node) else linear(node, changed[0], emitter)
    terms = []
    for index, frame in enumerate(changed):
        if isinstance(node.inputs[index].node, Constant):
            continue
        after = frozenset(child.alias for child in node.inputs[:index])
        flipped = single.other(node, index)
        if flipped is None:
            terms.append(summand(node, index, frame, after, emitter))
            continue
        rest, start = single.without(node, index), node.inputs[flipped]
        source = emitter.after if start.alias in after else emitter.before
        rows = single.flips(node, index, start, frame, source, emitter)
        if len(rest.inputs) == 1:
            terms.append(linear(rest, rows, emitter))
        else:
            terms.append(summand(rest, rest.inputs.index(start), rows, after, emitter))
    return emitter.union("joined", terms)


def linear(node: Select, frame: str, emitter: Emitter, wanted: str = "changed") -> str:
    """A filter and projection of the signed rows `frame`."""
    alias = node.inputs[0].alias
    sql = select(node, [f"{{{frame}}} {escape(quote(alias))}"], _weight(alias))
    return emitter.query(wanted, sql)


def _is_narrowing(node: Select) -> bool:
    """Whether the node only selects columns under their own names."""
    return not node.where and all(
        output.expr.as_column is not None and output.expr.refs[0][1] == output.name
        for output in node.outputs
    )


def _weight(alias: str) -> str:
    return f"{escape(quote(alias))}.{WEIGHT}"


def summand(node: Select, index: int, frame: str, after: frozenset[str], emitter: Emitter) -> str:
    """One summand: the change of input `index` joined with the other inputs, nearest first.

    Inputs with an alias in `after` are read after the epoch.
    """
    start = node.inputs[index]
    node, origins = flattened(node, start.alias)
    index = node.inputs.index(start)
    order = _by_connection(node, index)
    later = frozenset(alias for alias, origin in origins.items() if origin in after)
    sides = _sides(node, start, frame, order, later, emitter)
    waiting = _Waiting(node, start.alias)
    shown: dict[str, dict[Ref, None]] = {}
    for ref in (ref for output in node.outputs for ref in output.expr.refs):
        shown.setdefault(ref[0], {})[ref] = None
    small = f"{{{frame}}} {escape(quote(start.alias))}"
    names: dict[Ref, str] = {}

    def resolve(ref: Ref) -> str:
        return names.get(ref) or dotted(ref)

    taken: set[str] = set()

    def carried(alias: str) -> dict[Ref, str]:
        """The columns of an input that a later predicate or an output uses, by their names
        in the term."""
        refs = chain(waiting.refs(alias), shown.get(alias, ()))
        return {ref: _carried(ref, taken) for ref in dict.fromkeys(refs)}

    weight, hint = _weight(start.alias), escape(quote(start.alias))
    for position, child in enumerate(order):
        ready = waiting.ready(child.alias)
        on = " AND ".join(term(expr, resolve) for expr in ready)
        from_ = f"{small}\n{'JOIN' if on else 'CROSS JOIN'} {sides[child.alias]}"
        from_ += f" ON {on}" if on else ""
        if position == len(order) - 1:
            items = [aliased(output.expr.render(resolve), output.name) for output in node.outputs]
            items.append(aliased(weight, WEIGHT))
        else:
            new = carried(child.alias)
            if position:
                # Columns already joined stay unchanged. Spark drops unused ones.
                items = [f"{_SMALL}.*"]
            else:
                new = {**carried(start.alias), **new}
                items = [aliased(weight, WEIGHT)]
            items += [f"{dotted(ref)} AS {name}" for ref, name in new.items()]
        sql = f"SELECT /*+ BROADCAST({hint}) */ {', '.join(items)}\nFROM {from_}"
        if position < len(order) - 1:
            # Not indented: the text of a long chain would be copied for each of its joins.
            small = f"(\n{sql}\n) {_SMALL}"
            names |= {ref: f"{_SMALL}.{name}" for ref, name in new.items()}
            weight, hint = f"{_SMALL}.{WEIGHT}", _SMALL
    return emitter.query(f"from_{start.alias}" if start.alias.isidentifier() else "term", sql)


class _Waiting:
    """The predicates of a join, each held until all of its inputs are joined."""

    def __init__(self, node: Select, start: str) -> None:
        self._left = {at: set(expr.aliases - {start}) for at, expr in enumerate(node.where)}
        self._where = node.where
        self._of: dict[str, list[int]] = {}
        for at, expr in enumerate(node.where):
            for alias in expr.aliases:
                self._of.setdefault(alias, []).append(at)
        self._alone = [at for at, left in self._left.items() if not left]

    def ready(self, alias: str) -> list[Expr]:
        """The predicates that become ready when an input is joined, in order."""
        found, self._alone = self._alone, []
        for at in self._of.get(alias, ()):
            self._left[at].discard(alias)
            if not self._left[at]:
                found.append(at)
        for at in found:
            del self._left[at]
        return [self._where[at] for at in sorted(found)]

    def refs(self, alias: str) -> list[Ref]:
        """The columns of an input in the predicates that still wait."""
        waiting = (self._where[at] for at in self._of.get(alias, ()) if at in self._left)
        return [ref for expr in waiting for ref in expr.refs if ref[0] == alias]


def _carried(ref: Ref, taken: set[str]) -> str:
    """The name of a column inside a join term (a template): none of those that are `taken`, which
    Spark distinguishes case-insensitively."""
    name = f"{ref[0]}__{ref[1]}"
    while name.lower() in taken:
        name += "_"
    taken.add(name.lower())
    return escape(quote(name))


def _by_connection(node: Select, index: int) -> list[Input]:
    """The other inputs, each preferably sharing a predicate with those before it."""
    joined = node.inputs[index].alias
    rest = [child for position, child in enumerate(node.inputs) if position != index]
    order: list[Input] = []
    left = [set(expr.aliases) for expr in node.where if len(expr.aliases) > 1]
    of: dict[str, list[set[str]]] = {}
    for link in left:
        for alias in link:
            of.setdefault(alias, []).append(link)
    near: set[str] = set()
    while rest:
        for link in of.get(joined, ()):
            link.discard(joined)
            if len(link) == 1:
                near |= link
        nearest = next((child for child in rest if child.alias in near), rest[0])
        rest.remove(nearest)
        order.append(nearest)
        joined = nearest.alias
    return order


def _sides(
    node: Select,
    start: Input,
    frame: str,
    order: Iterable[Input],
    after: frozenset[str],
    emitter: Emitter,
) -> dict[str, str]:
    """The unchanged sides of a term, by their aliases, as they are joined: of a table the rows
    that are asked for, by the change or by rows that were looked up before; costly nodes only for
    rows that the change joins."""
    equal = equal_columns(node, start.alias, emitter.tables)
    sides: dict[str, str] = {}
    found: dict[str, str] = {}
    for child in order:
        pairs, is_after = equal.get(child.alias, ()), child.alias in after
        if isinstance(child.node, Scan):
            asking = frame
            if not pairs:
                pairs, through = pairs_through(node, child.alias, found)
                asking = through or frame
            moment = "after" if is_after else "before"
            rows = emitter.state(child.node, moment, pairs, asking)
            if looked_up := emitter.looked_up(rows):
                found[child.alias] = looked_up
            sides[child.alias] = _of_rows(child, rows)
            continue
        cut: Node = child.node
        if is_costly(child.node):
            links = {own: Link(other, operator, same=False) for own, operator, other in pairs}
            cut = restrict(child.node, frame, links)
        source = emitter.after if is_after else emitter.before
        sides[child.alias] = relation(Input(child.alias, cut), source)
    return sides


def _of_rows(child: Input, rows: str) -> str:
    return relation(child, lambda _: rows)
