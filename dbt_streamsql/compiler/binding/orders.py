"""ORDER BY where it has an effect: next to the LIMIT or OFFSET that it selects rows for."""

from __future__ import annotations

from sqlglot import exp

from dbt_streamsql.compiler.binding.aggregate_calls import find_calls
from dbt_streamsql.compiler.parsing.unsupported import obstacle

_MIXED = ("joins", "laterals", "group", "having", "distinct", "pivots")
"""Clauses after which the rows of a sub-query are no longer ordered."""


def settle_orders(tree: exp.Expr) -> None:
    """Move the order of a sub-query to the LIMIT around it, and drop all other orders."""
    # The innermost first: an order moves up through all blocks that preserve it.
    for select in reversed(list(tree.find_all(exp.Select))):
        if not select.args.get("order"):
            _take_order(select)
    for query in list(tree.find_all(exp.Select, exp.SetOperation)):
        holder: exp.Expr | None = query
        while isinstance(holder, exp.Query) and not _cuts(holder):
            # A clause after parentheses belongs to the query inside them.
            holder = holder.parent if isinstance(holder.parent, exp.Subquery) else None
        if holder is None:
            query.set("order", None)


def _cuts(query: exp.Expr) -> bool:
    return bool(query.args.get("limit") or query.args.get("offset"))


def _take_order(select: exp.Select) -> None:
    """Order a block like its input, since Spark preserves that order."""
    from_ = select.args.get("from_")
    relation: exp.Expr = from_.this if from_ is not None else exp.Null()
    inner = _query_of(relation)
    order = inner.args.get("order") if inner is not None else None
    if inner is None or order is None or _cuts(inner):
        return
    if any(select.args.get(clause) for clause in _MIXED) or find_calls(select.expressions):
        return
    if not relation.alias_or_name:
        relation.set("alias", exp.TableAlias(this=exp.to_identifier("__ordered")))
    made = []
    for item in order.expressions:
        column = item.this if isinstance(item, exp.Ordered) else item
        name = _shown_as(column, inner)
        if not name:
            if not _cuts(select):
                return
            raise obstacle(
                item,
                "LIMIT over a sub-query with an order",
                "it is ordered by something that it does not select",
                "move the ORDER BY next to the LIMIT",
            )
        ordered = item.copy() if isinstance(item, exp.Ordered) else exp.Ordered(this=item.copy())
        ordered.set("this", exp.column(name, table=relation.alias_or_name))
        made.append(ordered)
    select.set("order", exp.Order(expressions=made))


def _shown_as(column: exp.Expr, inner: exp.Query) -> str:
    """The name under which a query returns the column that orders it; '' when unknown."""
    if not isinstance(column, exp.Column):
        return ""
    name, table = column.name.lower(), column.table.lower()
    # `t.a` is an input column, whatever output is named `a`.
    if not table and name in {each.lower() for each in inner.named_selects}:
        return name
    for item in inner.selects:
        read = item.unalias()
        if not isinstance(read, exp.Column) or read.name.lower() != name:
            continue
        if not table or read.table.lower() in ("", table):
            return item.alias_or_name.lower()
    return name if inner.is_star else ""


def _query_of(relation: exp.Expr) -> exp.Query | None:
    """The query that a relation is: a sub-query, or a CTE by its name."""
    if isinstance(relation, exp.Subquery):
        inner = relation.this
        return inner if isinstance(inner, exp.Select | exp.SetOperation) else None
    if not isinstance(relation, exp.Table) or relation.args.get("db"):
        return None
    holder = relation.parent
    while holder is not None:
        with_ = holder.args.get("with_")
        for cte in with_.expressions if isinstance(with_, exp.With) else []:
            if cte.alias.lower() == relation.name.lower():
                return cte.this if isinstance(cte.this, exp.Query) else None
        holder = holder.parent
    return None
