"""A sub-query that names columns of the outer rows, turned into a relation to join with them.

Its correlated expressions become columns, its keys: it is grouped, made distinct and cut to its
first rows within each key value, because every outer row sees one key value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from dbt_streamsql.compiler.binding.aggregate_calls import find_calls
from dbt_streamsql.compiler.binding.scalar import conjuncts
from dbt_streamsql.compiler.lowering import from_clause, group_by, windows
from dbt_streamsql.compiler.lowering.outer_references import (
    in_brackets,
    reaching_here,
    reaching_out,
)
from dbt_streamsql.compiler.lowering.select_block import Block
from dbt_streamsql.compiler.parsing.unsupported import obstacle
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.relational import Aggregate, Node, Output

if TYPE_CHECKING:
    from dbt_streamsql.compiler.lowering.builder import Builder

QUERY = "__query"
"""Alias of a sub-query in conditions over it: no alias of a text may equal it."""

_AFTER_WHERE = ("group", "having", "distinct", "limit", "offset")


@dataclass
class Inner:
    """A sub-query taken apart: its block, its outputs, and its correlated conditions."""

    block: Block
    items: list[exp.Expr]
    reaching: list[exp.Expr]


@dataclass(frozen=True)
class Keys:
    """What a sub-query is correlated on: pairs of its own and the outer expressions.

    `kinds`: `=`, or `<=>` where NULL equals NULL.
    """

    own: list[exp.Expr]
    outer: list[exp.Expr]
    kinds: list[type[exp.Binary]]


def inner_of(builder: Builder, block: Block, query: exp.Expr, purpose: str) -> Inner:
    """The block of a sub-query with its own conditions; an uncorrelated one is one relation."""
    tree = in_brackets(query)
    if not reaching_out(tree):
        return _relation(builder, block, builder.query(tree))
    if isinstance(tree, exp.Select) and tree.args.get("qualify"):
        raise obstacle(tree, "QUALIFY in a correlated sub-query", "not maintained from changes")
    tree = reaching_here(builder, block, tree, by_where=purpose == "LATERAL")
    tree = _needed(tree, purpose)
    inside = from_clause.read(builder, tree, block)
    terms = conjuncts(tree.args["where"].this if tree.args.get("where") else None)
    reaching = [term for term in terms if inside.correlated(term)]
    builder.conditions(inside, [term for term in terms if term not in reaching])
    inner = Inner(inside, [item.unalias() for item in tree.expressions], reaching)
    if any(tree.args.get(key) for key in _AFTER_WHERE):
        return _by_keys(builder, block, inner, tree)
    return inner


def _relation(builder: Builder, block: Block, node: Node) -> Inner:
    inside = builder.block(block)
    inside.add(QUERY, node)
    return Inner(inside, [exp.column(name, table=QUERY) for name in node.columns], [])


def _needed(tree: exp.Select, purpose: str) -> exp.Select:
    """The query without the clauses that do not affect the result for its purpose."""
    skipped: list[str] = []
    cut = tree.args.get("offset") or (tree.args.get("limit") and rows_said(tree, "limit") == 0)
    if purpose == "EXISTS" and not cut:
        # Rows exist before and after grouping, and the first rows are some of them.
        skipped = ["distinct", "order", "limit"]
        if not tree.args.get("having"):
            skipped.append("group")
    elif purpose in {"EXISTS", "IN"} and not tree.args.get("limit") and not cut:
        skipped = ["distinct"]
    return _without(tree, skipped)


def of_one_group(tree: exp.Select) -> exp.Select:
    """An aggregate without GROUP BY (one row), without the clauses that then do nothing."""
    if tree.args.get("offset") or (tree.args.get("limit") and rows_said(tree, "limit") == 0):
        raise obstacle(
            tree.args.get("offset") or tree.args["limit"],
            "LIMIT 0 or OFFSET in a correlated sub-query",
            "it would drop the single row of an aggregate",
            "remove it",
        )
    return _without(tree, ["distinct", "order", "limit"])


def _without(tree: exp.Select, clauses: list[str]) -> exp.Select:
    made = tree.copy() if clauses else tree
    for key in clauses:
        made.set(key, None)
    return made


def rows_said(tree: exp.Expr, key: str) -> int | None:
    """The number of rows in LIMIT or OFFSET."""
    clause = tree.args.get(key)
    if clause is None:
        return None
    value = clause.expression
    if not isinstance(clause, exp.Limit | exp.Offset) or not isinstance(value, exp.Literal):
        raise obstacle(clause, key.upper(), "only a literal number is maintained from changes")
    return int(value.name)


# -- keys ----------------------------------------------------------------------------------------


def keys_of(block: Block, inner: Inner) -> Keys:
    """The keys of a correlated sub-query; they replace its correlated conditions."""
    pairs = [_pair(block, inner, term) for term in inner.reaching]
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs):
        return _domain(block, inner, [])
    return Keys(
        [own for own, _ in known],
        [outer for _, outer in known],
        [type(term) for term in inner.reaching if isinstance(term, exp.Binary)],
    )


def _pair(block: Block, inner: Inner, term: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """The two sides of an equality between the sub-query and the outer rows."""
    if isinstance(term, exp.EQ | exp.NullSafeEQ):
        for here, there in ((term.this, term.expression), (term.expression, term.this)):
            inside = inner.block.free(here) and not inner.block.correlated(here)
            if inside and all(inner.block.find(column) is None for column in block.free(there)):
                return here, there
    return None


def _domain(block: Block, inner: Inner, more: list[exp.Expr]) -> Keys:
    """Any other correlation: the sub-query is joined with the distinct outer values.

    `more` are correlated expressions in addition to its conditions.
    (Neumann and Kemper 2015, "Unnesting Arbitrary Queries".)
    """
    asked = list(
        dict.fromkeys(
            node
            for term in [*inner.reaching, *more]
            for node in block.free(term)
            if inner.block.find(node) is None
        )
    )
    if any(block.find(node) is None for node in asked):
        place = [*inner.reaching, *more][0]
        raise obstacle(place, "correlated sub-query", "it refers to a query two levels out")
    block.close()
    names = tuple(f"d{index}" for index in range(len(asked)))
    outputs = [Output(n, block.expr(node)) for n, node in zip(names, asked, strict=True)]
    alias = inner.block.add("__asked", Aggregate(block.project(outputs), names, ()))
    for name, node in zip(names, asked, strict=True):
        inner.block.swaps[node] = (alias, name)
    inner.block.where += [inner.block.expr(term) for term in inner.reaching]
    return Keys(asked, asked, [exp.NullSafeEQ] * len(asked))


# -- what comes after WHERE ----------------------------------------------------------------------


def _by_keys(builder: Builder, block: Block, inner: Inner, tree: exp.Select) -> Inner:
    """GROUP BY, DISTINCT and LIMIT within each value of the keys."""
    group, order = tree.args.get("group"), tree.args.get("order")
    having = conjuncts(tree.args["having"].this if tree.args.get("having") else None)
    ordered = [_bare(item) for item in order.expressions] if order else []
    groups, sets = group_by.keys_of(tree, group)
    if sets is not None:
        raise obstacle(
            tree, "GROUPING SETS in a correlated sub-query", "Spark does not support them either"
        )
    shown = [item.alias_or_name for item in tree.expressions]
    ordered = [
        inner.items[shown.index(key.name)]
        if isinstance(key, exp.Column) and not key.table and key.name in shown
        else key
        for key in ordered
    ]
    after = [*inner.items, *having, *ordered, *groups]
    outward = [part for part in after if inner.block.correlated(part)]
    keys = _domain(block, inner, outward) if outward else keys_of(block, inner)
    if not keys.own:
        raise obstacle(tree, "correlated sub-query", "the correlation is not in WHERE")
    inside = inner.block
    if group is not None:
        inside = _grouped(builder, inside, [*keys.own, *groups], [*inner.items, *having, *ordered])
    builder.conditions(inside, having)
    builder.values(inside, [*inner.items, *ordered])
    wanted = {f"k{index}": key for index, key in enumerate(keys.own)}
    wanted |= {f"v{index}": item for index, item in enumerate(inner.items)}
    distinct = tree.args.get("distinct") is not None
    if not distinct:
        wanted |= {f"o{index}": key for index, key in enumerate(ordered)}
    elif set(ordered) - set(inner.items):
        raise obstacle(order or tree, "ORDER BY", "it must use columns of the SELECT list")
    node: Node = inside.project([Output(name, inside.expr(e)) for name, e in wanted.items()])
    if distinct:
        node = Aggregate(node, node.columns, ())
    made = _relation(builder, block, node)
    if tree.args.get("limit") or tree.args.get("offset"):
        sorts = [
            f"v{inner.items.index(key)}" if distinct else f"o{index}"
            for index, key in enumerate(ordered)
        ]
        _first(builder, made.block, tree, len(keys.own), sorts)
    made.items = [exp.column(f"v{index}", table=QUERY) for index in range(len(inner.items))]
    made.reaching = [
        kind(this=exp.column(f"k{index}", table=QUERY), expression=outer.copy())
        for index, (kind, outer) in enumerate(zip(keys.kinds, keys.outer, strict=True))
    ]
    return made


def _bare(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Ordered) else item


def _grouped(
    builder: Builder, inside: Block, keys: list[exp.Expr], items: list[exp.Expr]
) -> Block:
    calls = find_calls(items)
    builder.chosen |= any(found.chosen for found in calls.values())
    for found in calls.values():
        builder.values(inside, list(found.args))
    return group_by.calls_over(builder, inside, list(dict.fromkeys(keys)), calls)


def _first(builder: Builder, block: Block, tree: exp.Select, keys: int, sorts: list[str]) -> None:
    """LIMIT and OFFSET for each key value: the rows are numbered within it."""
    order = []
    for name, item in zip(sorts, tree.args["order"].expressions if sorts else [], strict=True):
        made = item.copy() if isinstance(item, exp.Ordered) else exp.Ordered(this=item.copy())
        made.set("this", exp.column(name, table=QUERY))
        order.append(made)
    window = exp.Window(
        this=exp.Anonymous(this="row_number"),
        partition_by=[exp.column(f"k{index}", table=QUERY) for index in range(keys)],
        order=exp.Order(expressions=order) if order else None,
        over="OVER",
    )
    builder.chosen |= windows.windows(builder, block, exp.Select(), [window])
    limit, offset = rows_said(tree, "limit"), rows_said(tree, "offset") or 0
    place = (block.swaps[window],)
    block.where.append(Expr(f"{{0}} > {offset}", place))
    if limit is not None:
        block.where.append(Expr(f"{{0}} <= {offset + limit}", place))
