"""Sub-queries in FROM that read the relations before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dbt_streamsql.compiler.binding.aggregate_calls import find_calls
from dbt_streamsql.compiler.binding.scalar import conjuncts
from dbt_streamsql.compiler.lowering import from_clause
from dbt_streamsql.compiler.lowering.correlated import inner_of, of_one_group
from dbt_streamsql.compiler.lowering.outer_references import in_brackets, reaching_out
from dbt_streamsql.compiler.lowering.select_block import Block
from dbt_streamsql.compiler.lowering.subqueries import scalar
from dbt_streamsql.compiler.parsing.unsupported import obstacle
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.relational import Output

if TYPE_CHECKING:
    from dbt_streamsql.compiler.lowering.builder import Builder


def lateral_join(builder: Builder, block: Block, join: exp.Join, how: str) -> None:
    """A sub-query in FROM that reads the relations before it."""
    lateral = join.this
    query, alias = lateral.this, lateral.alias
    on = conjuncts(join.args.get("on"))
    tree = in_brackets(query)
    having = tree.args.get("having") if isinstance(tree, exp.Select) else None
    single = isinstance(tree, exp.Select) and tree.args.get("group") is None
    single = single and (having is not None or bool(find_calls(list(tree.expressions))))
    columns = [column.name for column in lateral.args["alias"].args.get("columns") or []]
    names = columns or (tree.named_selects if isinstance(tree, exp.Query) else [])
    if isinstance(tree, exp.Select) and single and reaching_out(tree):
        tree = of_one_group(tree)
        if having is not None and how == "inner":
            there = tree.copy()
            there.set("expressions", [having.this.copy()])
            kept = exp.Subquery(this=there)
            scalar(builder, block, kept)
            block.where.append(block.expr(kept))
        for name, item in zip(names, tree.expressions, strict=True):
            one = tree.copy()
            one.set("expressions", [item.copy()])
            value = exp.Subquery(this=one)
            scalar(builder, block, value)
            block.names[alias, name] = block.swaps.pop(value)
        for term in on:
            if how == "left" and term != exp.true():
                raise obstacle(join, "LEFT JOIN LATERAL … ON", "put the condition into the query")
            block.where.append(block.expr(term))
        return
    inner = inner_of(builder, block, query, "LATERAL")
    right = inner.block
    outputs = {name: right.expr(item) for name, item in zip(names, inner.items, strict=True)}
    if how == "inner":
        _join_inner(block, right, inner.reaching, outputs, alias)
        block.where += [block.expr(term) for term in on]
        return
    if [term for term in on if term != exp.true()]:
        raise obstacle(join, "LEFT JOIN LATERAL … ON", "put the condition into the sub-query")
    right.close([Output(f"__out_{name}", value) for name, value in outputs.items()])
    moved = from_clause.match(builder, block, "left", right, inner.reaching)
    for name in names:
        block.names[alias, name] = ("b", moved[f"__out_{name}"])


def _join_inner(
    block: Block,
    right: Block,
    reaching: list[exp.Expr],
    outputs: dict[str, Expr],
    alias: str,
) -> None:
    """An inner lateral join is an inner join: its conditions can move."""
    right.close([Output(f"__out_{name}", value) for name, value in outputs.items()])
    old = dict(block.names)
    inside = block.add("__lateral", right.only)
    hidden = {name: (inside, ref[1]) for name, ref in right.names.items()}
    block.names = {**old, **hidden}
    block.where += [block.expr(term) for term in reaching]
    block.names = {**old, **{(alias, name): (inside, f"__out_{name}") for name in outputs}}
