"""Sub-queries that name columns of the outer rows below their own WHERE.

A derived table, a side of a set operation, an ON or a nested sub-query may be correlated. The
distinct outer values, D, become one more relation of the sub-query, and each correlated part
reads D instead. What remains is correlated in its WHERE alone, by `<=>` with D.

    A ∪ B  over the values of D  =  (D ⋈ A) ∪ (D ⋈ B)        ∩ and − likewise

(Neumann and Kemper 2015, "Unnesting Arbitrary Queries".)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dbt_streamsql.compiler.lowering.select_block import Block
from dbt_streamsql.compiler.parsing.unsupported import obstacle
from dbt_streamsql.plan.algebra.relational import Aggregate, Output

if TYPE_CHECKING:
    from dbt_streamsql.compiler.lowering.builder import Builder

_SIDE, _BOTH = "__side", "__both"


def reaching_out(tree: exp.Expr) -> list[exp.Column]:
    """The columns that a sub-query uses from relations that it does not read itself."""
    read: dict[int, set[str]] = {}
    return [c for c in tree.find_all(exp.Column) if c.table and not _is_inside(c, tree, read)]


def _is_inside(column: exp.Column, tree: exp.Expr, read: dict[int, set[str]]) -> bool:
    """Whether a SELECT of `tree` around a column reads its relation; `read` is a cache."""
    part: exp.Expr = column
    sees = True
    while True:
        if isinstance(part, exp.Select):
            if id(part) not in read:
                read[id(part)] = _relations(part)
            if sees and column.table in read[id(part)]:
                return True
            sees = True
        if part is tree or part.parent is None:
            return False
        # A derived table and a CTE do not see the relations next to them.
        sees &= not _is_alone(part)
        part = part.parent


def _is_alone(part: exp.Expr) -> bool:
    """Whether a part is the query of a derived table or of a CTE."""
    holder = part.parent
    if not isinstance(holder, exp.Subquery) or part.arg_key != "this":
        return isinstance(holder, exp.CTE)
    around = holder.parent
    in_from = isinstance(around, exp.From | exp.Join) and holder.arg_key == "this"
    named = isinstance(around, exp.Subquery) and bool(holder.alias)
    # Joins in parentheses hang on the first of their relations.
    return isinstance(part, exp.Query) and not part.args.get("joins") and (in_from or named)


def _relations(tree: exp.Select) -> set[str]:
    """The names of the relations that a SELECT reads, also in parentheses."""
    from_ = tree.args.get("from_")
    places = [from_, *(tree.args.get("joins") or []), *(tree.args.get("laterals") or [])]
    return {
        part.alias_or_name
        for place in places
        if place is not None
        for part in place.walk(prune=lambda node: isinstance(node, exp.Select | exp.SetOperation))
        if isinstance(part, exp.Table | exp.Subquery | exp.Lateral | exp.Values)
    }


def in_brackets(tree: exp.Expr) -> exp.Expr:
    """The query in parentheses, which no clause may follow."""
    while isinstance(tree, exp.Subquery):
        if any(tree.args.get(key) for key in ("limit", "offset", "order", "with_")):
            raise obstacle(tree, "clause after parentheses", "put it inside the parentheses")
        tree = tree.this
    return tree


def reaching_here(builder: Builder, block: Block, tree: exp.Expr, *, by_where: bool) -> exp.Select:
    """A correlated sub-query rewritten to be correlated in its own clauses alone, not below them.

    `by_where`: in its WHERE alone, not in its outputs either.
    """
    tree = _without_ctes(tree)
    if isinstance(tree, exp.SetOperation):
        return _of_both(builder, block, tree)
    if not isinstance(tree, exp.Select):
        raise obstacle(
            tree, f"correlated {tree.key.upper()}", "only SELECT and set operations are supported"
        )
    if all(_is_fit(column, tree, by_where=by_where) for column in reaching_out(tree)):
        return tree
    return _beside_asked(builder, block, tree)


def _is_fit(column: exp.Column, tree: exp.Select, *, by_where: bool) -> bool:
    part: exp.Expr = column
    while part.parent is not tree:
        assert part.parent is not None
        part = part.parent
        if isinstance(part, exp.Query | exp.From | exp.Join | exp.Lateral):
            return False
    return isinstance(part, exp.Where) or not by_where


def _without_ctes(tree: exp.Expr) -> exp.Expr:
    """The query with each use of its CTEs replaced by their text."""
    with_ = tree.args.get("with_")
    if with_ is None:
        return tree
    if with_.recursive:
        raise obstacle(tree, "WITH RECURSIVE in a correlated sub-query", "not maintained")
    made = tree.copy()
    ctes = [*made.args["with_"].expressions]
    made.set("with_", None)
    names = [cte.alias for part in [made, *ctes] for cte in part.find_all(exp.CTE)]
    if len(set(names)) < len(names):
        raise obstacle(tree, "WITH in a correlated sub-query", "two CTEs have one name")
    for at, cte in enumerate(ctes):
        for place in [*(later.this for later in ctes[at + 1 :]), made]:
            for table in list(place.find_all(exp.Table)):
                if table.name == cte.alias and not table.args.get("db"):
                    alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
                    if not alias.args.get("columns"):
                        named = cte.args["alias"].args.get("columns") or []
                        alias.set("columns", [column.copy() for column in named])
                    joins = table.args.get("joins")
                    table.replace(exp.Subquery(this=cte.this.copy(), alias=alias, joins=joins))
    return made


def _beside_asked(builder: Builder, block: Block, tree: exp.Select) -> exp.Select:
    """`tree` with D first in its FROM; derived tables that read D become lateral."""
    made = tree.copy()
    joins = made.args.get("joins") or []
    if any(join.side in ("RIGHT", "FULL") for join in joins):
        raise obstacle(tree, "correlated sub-query", "it contains a RIGHT or FULL JOIN")
    asked, columns = _asked(builder, block, made)
    sources = [join.this for join in joins]
    from_ = made.args.get("from_")
    if from_ is not None:
        sources.insert(0, from_.this)
        joins = [exp.Join(this=from_.this, kind="CROSS"), *joins]
    for join, source in zip(joins, sources, strict=True):
        if not isinstance(source, exp.Subquery):
            continue
        named = {column.table for column in reaching_out(source.this)}
        if named == {asked}:
            below = exp.Subquery(this=source.this)
            join.set("this", exp.Lateral(this=below, alias=source.args["alias"]))
        elif asked in named:
            # Only a lateral one may read the relations next to it.
            raise obstacle(source, "correlated sub-query", "it gives a name two meanings")
    made.set("from_", exp.From(this=exp.to_table(asked)))
    made.set("joins", joins)
    return _for_values(made, asked, columns)


def _of_both(builder: Builder, block: Block, tree: exp.SetOperation) -> exp.Select:
    """A set operation over D: each side is read for each value of D."""
    if tree.args.get("limit") or tree.args.get("offset"):
        raise obstacle(tree, "LIMIT of a correlated set operation", "not maintained from changes")
    made = tree.copy()
    made.set("order", None)
    names = made.named_selects
    asked, columns = _asked(builder, block, made)
    values = [exp.column(f"d{index}", table=asked) for index in range(len(columns))]
    for key in ("this", "expression"):
        places = [exp.to_identifier(f"c{index}") for index in range(len(names))]
        alias = exp.TableAlias(this=exp.to_identifier(_SIDE), columns=places)
        side = exp.Lateral(this=exp.Subquery(this=in_brackets(made.args[key])), alias=alias)
        read = [*values, *(exp.column(place.name, table=_SIDE) for place in places)]
        shown = [exp.alias_(column.copy(), column.name) for column in read]
        whole = exp.Select(expressions=shown)
        whole.set("from_", exp.From(this=exp.to_table(asked)))
        whole.set("joins", [exp.Join(this=side, kind="CROSS")])
        made.set(key, whole)
    shown = [
        exp.alias_(exp.column(f"c{index}", table=_BOTH), name) for index, name in enumerate(names)
    ]
    whole = exp.Select(expressions=shown)
    alias = exp.TableAlias(this=exp.to_identifier(_BOTH))
    whole.set("from_", exp.From(this=exp.Subquery(this=made, alias=alias)))
    return _for_values(whole, _BOTH, columns)


def _asked(builder: Builder, block: Block, tree: exp.Query) -> tuple[str, list[exp.Column]]:
    """Let `tree` read D where it was correlated; returns the name of D, and the outer columns."""
    places = reaching_out(tree)
    columns = list(dict.fromkeys(places))
    if any(block.find(column) is None for column in columns):
        raise obstacle(tree, "correlated sub-query", "it refers to a query two levels out")
    name = f"__asked{len(builder.ctes)}"
    for place in places:
        place.replace(exp.column(f"d{columns.index(place)}", table=name))
    block.close()
    outputs = [Output(f"d{index}", block.expr(column)) for index, column in enumerate(columns)]
    rows = block.project(outputs)
    builder.ctes[name] = Aggregate(rows, rows.columns, ())
    return name, [column.copy() for column in columns]


def _for_values(tree: exp.Select, asked: str, columns: list[exp.Column]) -> exp.Select:
    """`tree` restricted to the values of the outer row."""
    for index, column in enumerate(columns):
        own = exp.column(f"d{index}", table=asked)
        tree.where(exp.NullSafeEQ(this=own, expression=column), copy=False)
    return tree
