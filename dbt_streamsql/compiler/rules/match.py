"""Outer, semi and anti joins.

With m(l) = whether the row l of L has a partner in R, before and (') after the epoch,

    d(L ▷ R) = dL ▷ R' − Σ_{l ∈ L} (m'(l) − m(l))
    d(L ⋉ R) = dL ⋉ R' + Σ_{l ∈ L} (m'(l) − m(l))
    d(L ⟕ R) = d(L ⋈ R) + pad(d(L ▷ R))                  full: the same from both sides

(Griffin and Kumar 1998; checked on random bags with NULL keys, duplicates, residual predicates.)
Only rows that have a partner in dR can gain their first or lose their last one. dR gives the
change n in the number of partners, so one read of R' gives both counts: c = c' − n.

Where L is a join, these few rows are found from the keys of dR on: the join of whole tables is
never computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbt_streamsql.compiler.codegen.emitter import Emitter
from dbt_streamsql.compiler.codegen.equal_columns import EQUALITIES
from dbt_streamsql.compiler.codegen.render_sql import (
    Source,
    indent,
    listed,
    relation,
    term,
)
from dbt_streamsql.compiler.codegen.restrict_to_keys import Link, restrict
from dbt_streamsql.compiler.rules import delta as delta_of
from dbt_streamsql.compiler.rules import select
from dbt_streamsql.plan.algebra.expression import (
    Expr,
    Ref,
    columns_of,
    escape,
)
from dbt_streamsql.plan.algebra.relational import (
    Input,
    Match,
    Node,
    Output,
    Scan,
    Select,
    is_join,
)
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, WEIGHT
from dbt_streamsql.quoting import quote

_NET = f"{HIDDEN_PREFIX}net"
_NOW = f"{HIDDEN_PREFIX}now"
_FLIP = f"{HIDDEN_PREFIX}flip"


@dataclass(frozen=True)
class _Side:
    """One side whose rows look for partners on the other.

    `pairs`: (column of the rows, column of the partners, operator) that are equal.
    """

    rows: Input
    partners: Input
    on: tuple[Expr, ...]
    pairs: tuple[tuple[str, str, str], ...]
    exact: bool
    """`Match.exact`."""
    simple: bool
    """Whether the `pairs` and the row itself decide if a row has a partner."""


def delta(node: Match, emitter: Emitter) -> str:
    """Signed rows of the join."""
    if node.kind in {"semi", "anti"}:
        rows = _lonely(_side(node, node.left, node.right), node.kind, emitter)
        return _shown(node, rows, emitter)
    inner = Select((node.left, node.right), node.on, node.outputs)
    parts = [select.delta(inner, emitter)]
    for one, other in sides(node):
        alone = _lonely(_side(node, one, other), "anti", emitter)
        parts.append(emitter.query("padded", _padded(node, one, alone)))
    return emitter.union("outer_joined", parts)


def _shown(node: Match, rows: str, emitter: Emitter) -> str:
    """The outputs of a semi or anti join of the rows of its left side that it keeps."""
    return select.linear(Select((node.left,), (), node.outputs), rows, emitter, node.kind)


def padded(node: Match, rows: Input) -> tuple[Output, ...]:
    """The outputs of a row of one side that has no partner."""
    missing: dict[Ref, Expr] = {
        ref: Expr(f"CAST(NULL AS {escape(kind)})")
        for ref, kind in node.types
        if ref[0] != rows.alias
    }
    return tuple(Output(each.name, each.expr.over(missing)) for each in node.outputs)


def _padded(node: Match, rows: Input, alone: str) -> str:
    outputs = padded(node, rows)
    items = [f"{output.expr.render()} AS {escape(quote(output.name))}" for output in outputs]
    alias = escape(quote(rows.alias))
    return f"SELECT {', '.join(items)}, {alias}.{WEIGHT}\nFROM {{{alone}}} {alias}"


def by_key(node: Match) -> bool:
    """Whether equal columns decide which rows have partners, in every direction that is needed."""
    return all(_side(node, rows, partners).simple for rows, partners in sides(node))


def sides(node: Match) -> tuple[tuple[Input, Input], ...]:
    """The sides whose rows look for partners, each with the side where these are."""
    one = node.left, node.right
    return (one, one[::-1]) if node.kind == "full" else (one,)


def partner_columns(node: Match, rows: Input, partners: Input) -> tuple[str, ...]:
    """The columns of `partners` that decide which of the `rows` have partners; () where others
    do, too."""
    side = _side(node, rows, partners)
    return tuple(dict.fromkeys(other for _, other, _ in side.pairs)) if side.simple else ()


def _side(node: Match, rows: Input, partners: Input) -> _Side:
    pairs = []
    rest = []
    for expr in node.on:
        operator = EQUALITIES.get(expr.template)
        if operator and expr.aliases == {rows.alias, partners.alias}:
            own, other = sorted(expr.refs, key=lambda ref: ref[0] != rows.alias)
            pairs.append((own[1], other[1], operator))
        else:
            rest.append(expr)
    simple = bool(pairs) and node.exact and all(expr.aliases <= {rows.alias} for expr in rest)
    return _Side(rows, partners, node.on, tuple(pairs), node.exact, simple)


def _lonely(side: _Side, kind: str, emitter: Emitter) -> str:
    """The change of `rows ▷ partners` (or of `rows ⋉ partners`): all columns of `rows`."""
    changed = delta_of(side.rows.node, emitter)
    partners = delta_of(side.partners.node, emitter)
    come = _with_partners(side, kind, changed, emitter.after, emitter)
    if side.simple:
        flips = _flips_by_key(side, partners, kind, emitter)
        own_conditions = tuple(expr for expr in side.on if expr.aliases <= {side.rows.alias})
        flip = _rows_of(side.rows, flips, side.pairs, own_conditions, emitter)
    else:
        flip = _flipped_by_row(side, partners, kind, emitter)
    return emitter.union(f"{kind}_change", [come, flip])


def _with_partners(side: _Side, kind: str, frame: str, source: Source, emitter: Emitter) -> str:
    """Of some rows: those with a partner (`semi`), or without one (`anti`)."""
    own = side.rows.node.columns
    mine, theirs = (escape(quote(child.alias)) for child in (side.rows, side.partners))
    return emitter.query(
        f"{kind}_rows",
        f"SELECT {listed(own, mine)}, {mine}.{WEIGHT}\nFROM {{{frame}}} {mine}\n"
        f"LEFT {kind.upper()} JOIN {_met(side, frame, source)} {theirs} ON {_on(side.on)}",
    )


def _rows_of(
    rows: Input,
    keys: str,
    pairs: tuple[tuple[str, str, str], ...],
    on: tuple[Expr, ...],
    emitter: Emitter,
) -> str:
    """The rows before the epoch that match a row of the frame `keys`, with its weight.

    `pairs`: (column of the rows, column of the keys, operator).
    """
    columns = rows.node.columns
    outputs = tuple(Output(column, Expr.column(rows.alias, column)) for column in columns)
    below = _rows_below(rows.node, keys, pairs, emitter)
    if below:
        return select.linear(Select((rows,), on, outputs), below, emitter, "rows") if on else below
    alias = "keys" if rows.alias.lower() != "keys" else "k"
    start = Input(alias, Scan("", tuple(dict.fromkeys(key for _, key, _ in pairs))))
    equal = tuple(
        Expr(f"{{0}} {operator} {{1}}", ((rows.alias, own), (alias, key)))
        for own, key, operator in pairs
    )
    node = Select((start, rows), (*equal, *on), outputs)
    return select.summand(node, 0, keys, frozenset(), emitter)


def _rows_below(
    node: Node, keys: str, pairs: tuple[tuple[str, str, str], ...], emitter: Emitter
) -> str:
    """The same of a semi or anti join, from the rows of its left side that match, and of a
    projection of one; '' of any other node."""
    if not isinstance(node, Select | Match) or not _is_matched(node):
        return ""
    child = node.left if isinstance(node, Match) else node.inputs[0]
    refs = {output.name: output.expr.as_column for output in node.outputs}
    below = []
    for own, key, operator in pairs:
        ref = refs[own]
        if ref is None:
            return ""
        below.append((ref[1], key, operator))
    rows = _rows_of(child, keys, tuple(below), (), emitter)
    if isinstance(node, Select):
        return select.linear(node, rows, emitter, "rows")
    side = _side(node, node.left, node.right)
    found = emitter.collect("found", rows)
    return _shown(node, _with_partners(side, node.kind, found, emitter.before, emitter), emitter)


def _is_matched(node: Node) -> bool:
    """Whether it is a semi or anti join, or a projection of one."""
    if isinstance(node, Select):
        return len(node.inputs) == 1 and _is_matched(node.inputs[0].node)
    return isinstance(node, Match) and node.kind in {"semi", "anti"}


def _met(side: _Side, changed: str, source: Source) -> str:
    """The partners that changed rows can have, each combination of their columns once."""
    used = sorted(columns_of(side.on, side.partners.alias))
    met = {other: Link(own, op, same=False) for own, other, op in side.pairs}
    partners = _cut(side.partners, changed, met)
    mine, theirs = (escape(quote(child.alias)) for child in (side.rows, side.partners))
    return (
        f"(\n  SELECT /*+ BROADCAST({mine}) */ DISTINCT {listed(used, theirs)}\n"
        f"{indent('  FROM ' + relation(partners, source))}\n"
        f"  LEFT SEMI JOIN {{{changed}}} {mine} ON {_on(side.on)}\n)"
    )


def _flips_by_key(side: _Side, partners: str, kind: str, emitter: Emitter) -> str:
    """Keys of the partners for which the first one was added or the last one removed."""
    keys = tuple(dict.fromkeys(other for _, other, _ in side.pairs))
    known = [f"{_col('d', other)} IS NOT NULL" for _, other, op in side.pairs if op == "="]
    where = f"WHERE {' AND '.join(dict.fromkeys(known))}\n" if known else ""
    net = emitter.collect(
        "net",
        emitter.query(
            "net_rows",
            f"SELECT {listed(keys, 'd')}, sum(d.{WEIGHT}) AS {_NET}\nFROM {{{partners}}} d\n"
            f"{where}GROUP BY {listed(keys, 'd')}\nHAVING sum(d.{WEIGHT}) <> 0",
        ),
    )
    theirs = escape(quote(side.partners.alias))
    on = " AND ".join(f"{_col(theirs, key)} <=> {_col('n', key)}" for key in keys)
    found = _cut(side.partners, net, {key: Link(key) for key in keys})
    there = (
        f"(\n  SELECT /*+ BROADCAST(n) */ {listed(keys, theirs)}, count(*) AS {_NOW}\n"
        f"{indent('  FROM ' + relation(found, emitter.after))}\n"
        f"  LEFT SEMI JOIN {{{net}}} n ON {on}\n  GROUP BY {listed(keys, theirs)}\n)"
    )
    return _flips(net, there, keys, kind, emitter)


def _flipped_by_row(side: _Side, partners: str, kind: str, emitter: Emitter) -> str:
    """The rows that gain their first partner or lose their last one, by any condition."""
    asked = _asked(side)
    node = side.rows.node
    if not side.pairs or not side.exact or not (is_join(node) or _is_matched(node)):
        flips = _flips_by_row(
            side, partners, _candidate_rows(side, partners, emitter), kind, emitter
        )
        same = tuple((name, name, "<=>") for name in asked)
        return _rows_of(side.rows, flips, same, (), emitter)
    keys = tuple(dict.fromkeys(other for _, other, _ in side.pairs))
    distinct = emitter.query(
        "partner_key_rows",
        f"SELECT DISTINCT {listed(keys, 'd')}, 1L AS {WEIGHT}\nFROM {{{partners}}} d",
    )
    distinct = emitter.collect("partner_keys", distinct)
    found = emitter.collect("found", _rows_of(side.rows, distinct, side.pairs, (), emitter))
    candidates = emitter.query("candidates", f"SELECT DISTINCT {listed(asked)}\nFROM {{{found}}}")
    flips = _flips_by_row(side, partners, candidates, kind, emitter)
    mine = escape(quote(side.rows.alias))
    on = " AND ".join(f"{_col(mine, name)} <=> {_col(_FLIP, name)}" for name in asked)
    return emitter.query(
        "flipped",
        f"SELECT {listed(node.columns, mine)}, {_FLIP}.{WEIGHT}\n"
        f"FROM {{{found}}} {mine}\nJOIN {{{flips}}} {_FLIP} ON {on}",
    )


def _candidate_rows(side: _Side, partners: str, emitter: Emitter) -> str:
    """What the rows before the epoch that match some changed partner ask for."""
    mine, theirs = (escape(quote(child.alias)) for child in (side.rows, side.partners))
    seen = {own: Link(other, op, same=False) for own, other, op in side.pairs}
    return emitter.collect(
        "candidates",
        emitter.query(
            "candidate_rows",
            f"SELECT /*+ BROADCAST({theirs}) */ DISTINCT {listed(_asked(side), mine)}\n"
            f"FROM {relation(_cut(side.rows, partners, seen), emitter.before)}\n"
            f"LEFT SEMI JOIN {{{partners}}} {theirs} ON {_on(side.on)}",
        ),
    )


def _flips_by_row(side: _Side, partners: str, candidates: str, kind: str, emitter: Emitter) -> str:
    """What such rows ask for whose first partner was added or whose last one was removed."""
    asked = _asked(side)
    mine, theirs = (escape(quote(child.alias)) for child in (side.rows, side.partners))
    on = _on(side.on)
    net = emitter.collect(
        "net",
        emitter.query(
            "net_rows",
            f"SELECT {listed(asked, mine)}, sum({theirs}.{WEIGHT}) AS {_NET}\n"
            f"FROM {{{candidates}}} {mine}\nJOIN {{{partners}}} {theirs} ON {on}\n"
            f"GROUP BY {listed(asked, mine)}\nHAVING sum({theirs}.{WEIGHT}) <> 0",
        ),
    )
    found = _cut(side.partners, net, {k: Link(own, op, same=False) for own, k, op in side.pairs})
    there = (
        f"(\n  SELECT /*+ BROADCAST({mine}) */ {listed(asked, mine)}, count(*) AS {_NOW}\n"
        f"  FROM {{{net}}} {mine}\n"
        f"{indent('  JOIN ' + relation(found, emitter.after))} ON {on}\n"
        f"  GROUP BY {listed(asked, mine)}\n)"
    )
    return _flips(net, there, asked, kind, emitter)


def _flips(net: str, there: str, keys: tuple[str, ...], kind: str, emitter: Emitter) -> str:
    """The keys whose rows get their first partner or lose their last one, with the weight of their
    rows in the change."""
    on = " AND ".join(f"{_col('n', key)} <=> {_col('c', key)}" for key in keys)
    now = f"coalesce(c.{_NOW}, 0)"
    signs = "-1L, 1L" if kind == "anti" else "1L, -1L"
    return emitter.collect(
        "flips",
        emitter.query(
            "flip_rows",
            f"SELECT {listed(keys, 'n')}, IF({now} > 0, {signs}) AS {WEIGHT}\n"
            f"FROM {{{net}}} n\nLEFT JOIN {there} c ON {on}\n"
            f"WHERE ({now} > 0) <> ({now} - n.{_NET} > 0)",
        ),
    )


def _cut(child: Input, frame: str, links: dict[str, Link]) -> Input:
    return Input(child.alias, restrict(child.node, frame, links))


def _asked(side: _Side) -> tuple[str, ...]:
    """The columns of a row that determine its partners."""
    return tuple(sorted(columns_of(side.on, side.rows.alias)))


def _on(on: tuple[Expr, ...]) -> str:
    return " AND ".join(term(expr) for expr in on)


def _col(alias: str, name: str) -> str:
    return f"{alias}.{escape(quote(name))}"
