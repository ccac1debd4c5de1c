"""FROM: tables, sub-queries, VALUES, joins of every kind, generators and lateral sub-queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dbt_streamsql.compiler.binding.scalar import conjuncts, filters
from dbt_streamsql.compiler.codegen.equal_columns import EQUALITIES
from dbt_streamsql.compiler.lowering.select_block import Block, fresh
from dbt_streamsql.compiler.lowering.view import refuse_incomparable
from dbt_streamsql.compiler.parsing.dialect import to_sql
from dbt_streamsql.compiler.parsing.unsupported import Reason, Unsupported, obstacle
from dbt_streamsql.plan.algebra.expression import Expr, Ref
from dbt_streamsql.plan.algebra.relational import (
    Constant,
    Generate,
    Input,
    Match,
    Node,
    Output,
    Scan,
    Select,
)
from dbt_streamsql.plan.algebra.schema import are_one_to_one
from dbt_streamsql.quoting import TableName

if TYPE_CHECKING:
    from dbt_streamsql.compiler.lowering.builder import Builder

_KINDS = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi",
    ("", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
    ("", "ANTI"): "anti",
}


def read(builder: Builder, tree: exp.Select, outer: Block | None) -> Block:
    """The FROM clause of a block; without one, it is one row without columns."""
    block = builder.block(outer)
    from_ = tree.args.get("from_")
    if from_ is None:
        block.add("nothing", Constant("SELECT 1 AS one", ("one",)))
        return block
    if isinstance(from_.this, exp.Lateral):
        raise obstacle(from_.this, "LATERAL", "there is no relation before it")
    _read(builder, block, from_.this)
    for join in tree.args.get("joins") or []:
        _join(builder, block, join)
    for view in tree.args.get("laterals") or []:
        _generator(builder, block, view, bool(view.args.get("outer")))
    return block


def _read(builder: Builder, block: Block, source: exp.Expr) -> None:
    """Read a relation, or joins in parentheses, whose tables keep their names; and its joins."""
    inside = _bracketed(source)
    if inside is None:
        block.add(source.alias_or_name, _relation(builder, source))
    else:
        _read(builder, block, inside)
    for join in source.args.get("joins") or []:
        _join(builder, block, join)


def _bracketed(source: exp.Expr) -> exp.Expr | None:
    """The first relation of joins in parentheses, which holds the other ones; otherwise None."""
    if not isinstance(source, exp.Subquery) or source.alias:
        return None
    inside: exp.Expr = source.this
    joined = isinstance(inside, exp.Subquery) and inside.args.get("joins")
    return inside if joined or not isinstance(inside, exp.Query) else None


def _relation(builder: Builder, source: exp.Expr) -> Node:
    _refuse_modifiers(source)
    alias = source.args.get("alias")
    columns = [column.name for column in (alias.args.get("columns") or [])] if alias else []
    if isinstance(source, exp.Subquery):
        return renamed(builder.query(source.this), columns)
    if isinstance(source, exp.Values):
        return renamed(builder.constant(exp.select("*").from_(source.copy())), columns)
    if not isinstance(source, exp.Table):
        raise obstacle(
            source, source.key.upper(), "so far only tables and sub-queries can be read"
        )
    if not isinstance(source.this, exp.Identifier):
        raise obstacle(source, "table function", "not maintained from changes yet")
    if not source.args.get("db") and source.name in builder.ctes:
        return renamed(builder.ctes[source.name], columns)
    name = str(TableName(source.catalog, source.db, source.name))
    rows = builder.bound.constants.get(name)
    if rows is not None:
        return renamed(rows.node, columns)
    info = builder.bound.tables.get(name)
    if info is None:
        raise obstacle(source, name, "the table could not be resolved")
    if not info.versioned:
        raise obstacle(
            source,
            name,
            info.unversioned or "the table has no snapshots to read changes from",
            "store it as an Iceberg table",
        )
    return renamed(Scan(name, tuple(column.name.lower() for column in info.columns)), columns)


def _refuse_modifiers(source: exp.Expr) -> None:
    for key, operator in (
        ("sample", "TABLESAMPLE"),
        ("pivots", "PIVOT"),
        ("laterals", "LATERAL VIEW"),
        ("version", "time travel"),
        ("when", "time travel"),
        ("hints", "hint"),
    ):
        if source.args.get(key):
            raise obstacle(source, operator, "not maintained from changes")


def _join(builder: Builder, block: Block, join: exp.Join) -> None:
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    method = (join.args.get("method") or "").upper()
    how = _KINDS.get((side, kind))
    if how is None or (method and method != "NATURAL"):
        operator = " ".join(word for word in (method, side, kind, "JOIN") if word)
        raise obstacle(join, operator, "this join is not maintained from changes")
    if join.args.get("using"):
        raise obstacle(join, "JOIN USING", "write the condition with ON")
    if isinstance(join.this, exp.Lateral):
        _lateral(builder, block, join, how)
        return
    on = filters(join.args.get("on"))
    alone = _bracketed(join.this) is None and not join.this.args.get("joins")
    if how == "inner" and alone:
        _read(builder, block, join.this)
        builder.conditions(block, on)
        return
    right = builder.block(None)
    _read(builder, right, join.this)
    if how == "inner":
        block.take(right)
        builder.conditions(block, on)
        return
    match(builder, block, how, right, builder.in_on(block, right, on))


def match(
    builder: Builder, left: Block, how: str, right: Block, on: list[exp.Expr]
) -> dict[str, str]:
    """Join the relations of two blocks by a join that is not inner; `left` is the result.

    `on` is a conjunction over both; a name known to both belongs to the right side. Returns the
    result columns of the right side, by their names once that is closed.
    """
    terms: list[exp.Expr] = []
    pairs: list[Expr] = []
    computed: dict[str, list[Output]] = {"l": [], "r": []}
    for term in on:
        owners = _owners(left, right, term)
        if owners <= {"r"} and how in {"left", "semi", "anti"}:
            right.where.append(right.expr(term))
        elif owners == {"l"} and how in {"right", "semi"}:
            left.where.append(left.expr(term))
        elif (sides := _sides(left, right, term)) is not None:
            name = f"__key_{len(pairs)}"
            computed["l"].append(Output(name, left.expr(sides[0])))
            computed["r"].append(Output(name, right.expr(sides[1])))
            operator = "=" if isinstance(term, exp.EQ) else "<=>"
            pairs.append(Expr(f"{{0}} {operator} {{1}}", (("l", name), ("r", name))))
        else:
            terms.append(term)
    if not pairs and not any(len(_owners(left, right, term)) > 1 for term in terms):
        for extra in computed.values():
            extra.append(Output("__one", Expr("1")))
        pairs.append(Expr("{0} = {1}", (("l", "__one"), ("r", "__one"))))
    sides_of = {"l": left.close(computed["l"]).node, "r": right.close(computed["r"]).node}
    both = builder.block(None)
    for side, block in (("l", left), ("r", right)):
        both.names.update({name: (side, ref[1]) for name, ref in block.names.items()})
        both.swaps.update({part: (side, ref[1]) for part, ref in block.swaps.items()})
    rest = [both.expr(term) for term in terms]
    if rest:
        # The columns in the conditions distinguish the rows that match.
        columns = {(s, c.name): c for s, node in sides_of.items() for c in builder.schema(node)}
        read = (columns[ref] for expr in rest for ref in expr.refs)
        refuse_incomparable(read, "a condition of an outer join")
    conditions = (*pairs, *rest)
    return _matched(builder, left, right, how, sides_of, conditions)


def _matched(
    builder: Builder,
    left: Block,
    right: Block,
    how: str,
    nodes: dict[str, Node],
    on: tuple[Expr, ...],
) -> dict[str, str]:
    shown = ("l",) if how in {"semi", "anti"} else ("l", "r")
    taken: set[str] = set()
    moved: dict[Ref, str] = {}
    for side in shown:
        for column in nodes[side].columns:
            if not column.startswith("__key_") and column != "__one":
                moved[side, column] = fresh(column, taken)
    outputs = tuple(Output(name, Expr.column(*ref)) for ref, name in moved.items())
    kinds = {(side, c.name): c for side, node in nodes.items() for c in builder.schema(node)}
    types: list[tuple[Ref, str]] = []
    for side in shown[:-1] if how == "right" else shown[1:] if how == "left" else shown:
        if how not in {"semi", "anti"}:
            types += [(ref, column.type) for ref, column in kinds.items() if ref[0] == side]
    equal = (expr.refs for expr in on if expr.template in EQUALITIES)
    exact = all(are_one_to_one(kinds[own], kinds[its]) for own, its in equal)
    one, other = Input("l", nodes["l"]), Input("r", nodes["r"])
    if how == "right":
        how, one, other = "left", other, one
    node = Match(how, one, other, on, outputs, tuple(types), exact=exact)
    of_right = {name: ref for name, ref in right.names.items() if ("r", ref[1]) in moved}
    left.become(node, {("b", c): ("b", name) for (side, c), name in moved.items() if side == "l"})
    left.names.update({n: ("b", moved["r", ref[1]]) for n, ref in of_right.items()})
    return {c: name for (side, c), name in moved.items() if side == "r"}


def _owners(left: Block, right: Block, node: exp.Expr) -> set[str]:
    found = set()
    for column in left.free(node):
        known = right.find(column) is not None
        if not known and left.find(column) is None:
            raise obstacle(column, to_sql(column), "the column is not visible here")
        found.add("r" if known else "l")
    return found


def _sides(left: Block, right: Block, term: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """The expressions that an equality compares, left one first, when one is not a bare column."""
    if not isinstance(term, exp.EQ | exp.NullSafeEQ):
        return None
    first, second = term.this.unnest(), term.expression.unnest()
    if isinstance(first, exp.Column) and isinstance(second, exp.Column):
        return None
    owners = (_owners(left, right, first), _owners(left, right, second))
    if owners == ({"l"}, {"r"}):
        return first, second
    return (second, first) if owners == ({"r"}, {"l"}) else None


# -- generators and lateral sub-queries ----------------------------------------------------------


def _lateral(builder: Builder, block: Block, join: exp.Join, how: str) -> None:
    lateral = join.this
    if how not in {"inner", "left"}:
        raise obstacle(join, f"{how} JOIN LATERAL", "this join is not maintained from changes")
    if isinstance(lateral.this, exp.Subquery):
        builder.lateral_join(block, join, how)
        return
    on = [term for term in conjuncts(join.args.get("on")) if term != exp.true()]
    if on and how == "left":
        raise obstacle(join, "LEFT JOIN LATERAL … ON", "put the condition into a sub-query")
    _generator(builder, block, lateral, how == "left")
    block.where += [block.expr(term) for term in on]


def _generator(builder: Builder, block: Block, view: exp.Lateral, outer: bool) -> None:
    alias = view.args["alias"]
    columns = [column.name for column in alias.args.get("columns") or []]
    made = generate(builder, block, view.this, columns, outer)
    label = alias.name
    block.names.update(
        {(label, name): ("b", inside) for name, inside in zip(columns or made, made, strict=True)}
    )


def generate(
    builder: Builder, block: Block, call: exp.Expr, columns: list[str], outer: bool
) -> list[str]:
    """Apply a generator to the rows of the block; returns the new columns."""
    call = call.copy()
    for part in list(call.iter_expressions()):
        if isinstance(part, exp.Kwarg):  # LATERAL VIEW does not support named arguments
            part.replace(part.expression)
    block.close()
    taken = set(block.only.columns)
    expr = block.expr_of_generator(call).over(
        {("b", name): Expr.column("i", name) for name in block.only.columns}
    )
    if not columns:
        columns = builder.generated(block.only, expr)
    names = tuple(fresh(name, taken) for name in columns)
    block.keep(Generate(block.only, expr, names, outer))
    return list(names)


def renamed(node: Node, names: list[str]) -> Node:
    """The node under other column names ('[]' keeps them)."""
    if not names or tuple(names) == node.columns:
        return node
    if len(names) != len(node.columns):
        raise Unsupported(
            Reason("column aliases", "their number differs from the number of columns")
        )
    pairs = zip(names, node.columns, strict=True)
    return Select(
        (Input("s", node),), (), tuple(Output(new, Expr.column("s", old)) for new, old in pairs)
    )
