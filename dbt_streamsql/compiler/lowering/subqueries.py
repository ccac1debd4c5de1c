"""Sub-queries in expressions become joins, so that one set of rules covers all of them.

EXISTS and IN as conditions are semi joins, NOT EXISTS an anti join, NOT IN an anti join after its
two special cases (no rows at all; a NULL among them). A sub-query used as a value is joined: an
uncorrelated one is a relation of one row, a correlated one is grouped by its correlation keys and
left joined (Kim 1982, with the care for COUNT of Ganski and Wong 1987).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dbt_streamsql.compiler.binding.aggregate_calls import Calls, find_calls
from dbt_streamsql.compiler.binding.scalar import to_expr
from dbt_streamsql.compiler.lowering import from_clause
from dbt_streamsql.compiler.lowering.correlated import (
    QUERY,
    Inner,
    Keys,
    inner_of,
    keys_of,
    of_one_group,
    rows_said,
)
from dbt_streamsql.compiler.lowering.outer_references import (
    in_brackets,
    reaching_here,
    reaching_out,
)
from dbt_streamsql.compiler.lowering.select_block import Block, fresh
from dbt_streamsql.compiler.parsing.unsupported import obstacle
from dbt_streamsql.plan.algebra.expression import Expr
from dbt_streamsql.plan.algebra.relational import (
    Call,
    Input,
    Node,
    Output,
    Select,
)

if TYPE_CHECKING:
    from dbt_streamsql.compiler.lowering.builder import Builder

_FULL_OF_NOTHING = ("collect", "sketch", "bitmap", "histogram", "accumulate", "_agg_")
_MANY = "raise_error('a sub-query that stands for one value has more than one row')"


def conditions(builder: Builder, block: Block, terms: list[exp.Expr]) -> None:
    """Add the conjuncts of WHERE to a block: those that connect its inputs before sub-queries."""
    for term in sorted(terms, key=lambda term: term.find(exp.Query) is not None):
        condition(builder, block, term)


def condition(builder: Builder, block: Block, term: exp.Expr) -> None:
    """Add one conjunct of WHERE to a block."""
    positive, negated = term, False
    while isinstance(positive, exp.Not | exp.Paren):
        negated ^= isinstance(positive, exp.Not)
        positive = positive.this
    single = _of_one_group(positive)
    if single is not None:
        condition(builder, block, exp.not_(single) if negated else single)
    elif isinstance(positive, exp.Exists):
        _exists(builder, block, positive, "anti" if negated else "semi")
    elif isinstance(positive, exp.In) and positive.args.get("query") is not None:
        (_not_in if negated else _in)(builder, block, positive)
    else:
        values(builder, block, [term])
        block.where.append(builder.conditional(block, term))


def values(builder: Builder, block: Block, items: list[exp.Expr]) -> None:
    """Compute the sub-queries in expressions; afterwards the block has them as columns."""
    for item in items:
        for node in _outermost(item, block):
            negated = isinstance(node, exp.Not)
            single = _of_one_group(_bare(node.this) if negated else node)
            if single is not None:
                sure = exp.func("coalesce", exp.not_(single) if negated else single, exp.false())
                values(builder, block, [sure])
                _remember(block, node, block.expr(sure))
            elif isinstance(node, exp.Exists):
                _exists_value(builder, block, node)
            elif isinstance(node, exp.In | exp.Not):
                _in_value(builder, block, node)
            else:
                scalar(builder, block, node)


def _outermost(node: exp.Expr, block: Block) -> list[exp.Expr]:
    """The sub-queries in an expression that the block does not have as columns yet.

    EXISTS, IN and NOT IN are part of their sub-query.
    """
    if node.find(exp.Query) is None or node in block.swaps:
        return []
    if isinstance(node, exp.Exists | exp.Subquery):
        return [node]
    asked = _bare(node.this) if isinstance(node, exp.Not) else node
    if isinstance(asked, exp.In) and asked.args.get("query") is not None:
        return [node]
    if isinstance(node, exp.Query):
        raise obstacle(node, "sub-query", "not maintained from changes in this place")
    return [found for part in node.iter_expressions() for found in _outermost(part, block)]


def in_on(builder: Builder, left: Block, right: Block, on: list[exp.Expr]) -> list[exp.Expr]:
    """The terms of an outer join's ON, with a column in place of each sub-query.

    A sub-query is computed on the side whose columns it names.
    """
    whole = exp.Tuple(expressions=[term.copy() for term in on])
    for number, asking in enumerate(_outermost(whole, left)):
        sides = {"l" if right.find(column) is None else "r" for column in _named_by(asking)}
        if len(sides) > 1:
            raise obstacle(asking, "sub-query in ON", "it names columns of both sides of the join")
        side = right if sides == {"r"} else left
        values(builder, side, [asking])
        name = f"__asked{number}"
        side.names[QUERY, name] = side.swaps.pop(asking)
        asking.replace(exp.column(name, table=QUERY))
    return list(whole.expressions)


def _named_by(asking: exp.Expr) -> list[exp.Column]:
    """The columns of the outer rows that a sub-query names."""
    node = _bare(asking.this) if isinstance(asking, exp.Not) else asking
    if not isinstance(node, exp.In):
        return reaching_out(node)
    return [*node.this.find_all(exp.Column), *reaching_out(node.args["query"])]


# -- conditions ----------------------------------------------------------------------------------


def _exists(builder: Builder, block: Block, node: exp.Exists, how: str) -> None:
    if _one_row(node.this):
        if how == "anti":
            block.where.append(Expr("false"))
        return
    inner = inner_of(builder, block, node.this, "EXISTS")
    from_clause.match(builder, block, how, inner.block, inner.reaching)


def _one_row(tree: exp.Expr) -> bool:
    """A SELECT of aggregates without GROUP BY and HAVING: it always has one row."""
    tree = in_brackets(tree)
    return (
        isinstance(tree, exp.Select)
        and not any(tree.args.get(key) for key in ("group", "having", "limit", "offset"))
        and bool(find_calls(list(tree.expressions)))
    )


def _in(builder: Builder, block: Block, node: exp.In) -> None:
    inner = inner_of(builder, block, node.args["query"], "IN")
    on = [_equal(_own(block, inner, own), item) for own, item in _paired(node, inner)]
    from_clause.match(builder, block, "semi", inner.block, [*inner.reaching, *on])


def _paired(node: exp.In, inner: Inner) -> list[tuple[exp.Expr, exp.Expr]]:
    this = node.this.unnest() if isinstance(node.this, exp.Paren) else node.this
    own = list(this.expressions) if isinstance(this, exp.Tuple) else [this]
    if len(own) != len(inner.items):
        raise obstacle(node, "IN", "the sides have different numbers of columns")
    return list(zip(own, inner.items, strict=True))


def _own(block: Block, inner: Inner, own: exp.Expr) -> exp.Expr:
    """The left side of IN; a column when its names mean something else in the sub-query."""
    if all(inner.block.find(column) is None for column in block.free(own)):
        return own
    name = fresh("__own", {column for child in block.inputs for column in child.node.columns})
    block.close([Output(name, block.expr(own))])
    block.names[QUERY, name] = ("b", name)
    return exp.column(name, table=QUERY)


def _of_one_group(node: exp.Expr) -> exp.Expr | None:
    """EXISTS and IN over a correlated aggregate without GROUP BY: a condition on its row."""
    query = node.this if isinstance(node, exp.Exists) else node.args.get("query")
    tree = in_brackets(query) if isinstance(query, exp.Expr) else None
    if not isinstance(node, exp.Exists | exp.In) or not isinstance(tree, exp.Select):
        return None
    having = tree.args.get("having")
    single = tree.args.get("group") is None and (having or find_calls(list(tree.expressions)))
    if not single or not reaching_out(tree):
        return None
    tree = of_one_group(tree)
    there: exp.Expr = exp.true()
    if having is not None:
        there = exp.func("coalesce", _asked(tree, having.this), exp.false())
    if isinstance(node, exp.Exists):
        return there
    left = _bare(node.this)
    own = list(left.expressions) if isinstance(left, exp.Tuple) else [left]
    pairs = zip(own, tree.expressions, strict=False)
    equal = exp.and_(*(_equal(one, _asked(tree, item.unalias())) for one, item in pairs))
    return exp.case().when(there, equal).else_(exp.false()) if having is not None else equal


def _asked(tree: exp.Select, item: exp.Expr) -> exp.Expr:
    """The value of one expression over the one row of an aggregate."""
    if not find_calls([item]):
        return item.copy()  # it uses no column of the aggregated rows
    one = tree.copy()
    one.set("having", None)
    one.set("expressions", [item.copy()])
    return exp.Subquery(this=one)


def _not_in(builder: Builder, block: Block, node: exp.In) -> None:
    """`x NOT IN Q`: Q is empty, or x is not NULL, no row of Q is NULL, and none equals x.

    `(x, y) NOT IN Q`: no row of Q equals it, or could equal it because of a NULL.
    """
    inner = inner_of(builder, block, node.args["query"], "IN")
    pairs = _paired(node, inner)
    if len(pairs) > 1:
        may = [
            exp.func("coalesce", _equal(_own(block, inner, own), item), exp.true())
            for own, item in pairs
        ]
        from_clause.match(builder, block, "anti", inner.block, [*inner.reaching, *may])
        return
    own, item = pairs[0]
    some, nulls = _presence(builder, block, inner, item)
    is_null = block.expr(exp.Is(this=own.copy(), expression=exp.Null()))
    block.where.append(
        _combine(
            "NOT {0} OR (NOT {1} AND NOT {2})", Expr.column(*some), is_null, Expr.column(*nulls)
        )
    )
    again = inner_of(builder, block, node.args["query"], "IN")
    _, item = _paired(node, again)[0]
    on = _equal(_own(block, again, own), item)
    from_clause.match(builder, block, "anti", again.block, [*again.reaching, on])


def _equal(left: exp.Expr, right: exp.Expr) -> exp.EQ:
    return exp.EQ(this=left.copy(), expression=right.copy())


def _combine(template: str, *parts: Expr) -> Expr:
    refs = tuple((f"__{index}", "x") for index in range(len(parts)))
    return Expr(template, refs).over(dict(zip(refs, parts, strict=True)))


# -- values --------------------------------------------------------------------------------------


def _presence(
    builder: Builder, block: Block, inner: Inner, item: exp.Expr
) -> tuple[tuple[str, str], tuple[str, str]]:
    """Whether a sub-query has rows, and NULLs: two columns that change only when that does."""
    calls = {"n": ("COUNT", None), "known": ("COUNT", item)}
    made = _grouped(builder, block, inner, calls)
    outputs = [
        Output("some", Expr("coalesce({0}, 0) > 0", (made["n"],))),
        Output("nulls", Expr("coalesce({0}, 0) < coalesce({1}, 0)", (made["known"], made["n"]))),
    ]
    if not inner.reaching:
        # A relation of one row: the booleans cancel while they are unchanged.
        child = block.inputs.pop()
        block.names = {n: ref for n, ref in block.names.items() if ref[0] != child.alias}
        alias = block.add(child.alias, Select((child,), (), tuple(outputs)))
        return (alias, "some"), (alias, "nulls")
    block.close(outputs)
    return ("b", "some"), ("b", "nulls")


def _grouped(
    builder: Builder,
    block: Block,
    inner: Inner,
    calls: dict[str, tuple[str, exp.Expr | None]],
) -> dict[str, tuple[str, str]]:
    """Join the block with aggregates of the sub-query, one row for each correlation key."""
    below = inner.block
    keys = keys_of(block, inner)
    taken = {f"k{index}" for index in range(len(keys.own))}
    outputs = [Output(f"k{index}", below.expr(key)) for index, key in enumerate(keys.own)]
    made: list[Call] = []
    for name, (function, argument) in calls.items():
        arg = None
        if argument is not None:
            arg = fresh("v", taken)
            outputs.append(Output(arg, below.expr(argument)))
        made.append(Call(name, function, arg, False, "", True, ""))
    if not outputs:
        outputs = [Output("one", Expr("1"))]
    names = tuple(output.name for output in outputs[: len(keys.own)])
    node = builder.typed(below.project(outputs), names, made)
    return attach(builder, block, node, keys, list(calls))


def attach(
    builder: Builder, block: Block, node: Node, keys: Keys, names: list[str]
) -> dict[str, tuple[str, str]]:
    """Join a relation that has one row (for each value of its first columns) with the block."""
    if not keys.outer:
        alias = block.add(QUERY, node)
        # The text has no name for it.
        block.names = {n: ref for n, ref in block.names.items() if ref[0] != alias}
        return {name: (alias, name) for name in names}
    right = builder.block(None)
    right.add(QUERY, node)
    on: list[exp.Expr] = [
        kind(this=key.copy(), expression=exp.column(f"k{index}", table=QUERY))
        for index, (kind, key) in enumerate(zip(keys.kinds, keys.outer, strict=True))
    ]
    moved = from_clause.match(builder, block, "left", right, on)
    block.names = {
        n: ref for n, ref in block.names.items() if n[0] != QUERY or ref[1] not in moved.values()
    }
    return {name: ("b", moved[name]) for name in names}


def _exists_value(builder: Builder, block: Block, node: exp.Exists) -> None:
    inner = inner_of(builder, block, node.this, "EXISTS")
    some, _ = _presence(builder, block, inner, exp.Literal.number(1))
    _remember(block, node, Expr.column(*some))


def _in_value(builder: Builder, block: Block, node: exp.In | exp.Not) -> None:
    """`x IN Q` and `x NOT IN Q` as values, which Spark makes two-valued.

    IN is true where a row equals x; NOT IN where none equals x and no NULL leaves that open.
    """
    negated = isinstance(node, exp.Not)
    asked = _bare(node.this) if isinstance(node, exp.Not) else node
    assert isinstance(asked, exp.In)
    inner = inner_of(builder, block, asked.args["query"], "IN")
    pairs = _paired(asked, inner)
    if len(pairs) > 1:
        raise obstacle(
            node, "(a, b) IN", "it is only supported as a condition of WHERE", "use EXISTS"
        )
    own, item = pairs[0]
    open_ = Expr("false")
    if negated:
        some, nulls = _presence(builder, block, inner, item)
        is_null = block.expr(exp.Is(this=own.copy(), expression=exp.Null()))
        parts = (Expr.column(*some), is_null, Expr.column(*nulls))
        name = fresh("__open", {column for child in block.inputs for column in child.node.columns})
        block.close([Output(name, _combine("{0} AND ({1} OR {2})", *parts))])
        open_ = Expr.column("b", name)
    again = inner_of(builder, block, asked.args["query"], "IN")
    keys = keys_of(block, again)
    _, item = _paired(asked, again)[0]
    keys = Keys([*keys.own, item], [*keys.outer, own], [*keys.kinds, exp.EQ])
    outputs = [Output(f"k{i}", again.block.expr(key)) for i, key in enumerate(keys.own)]
    below = again.block.project(outputs)
    count = [Call("n", "COUNT", None, False, "", False, "")]
    found = builder.typed(below, tuple(output.name for output in outputs), count)
    marked = attach(builder, block, found, keys, ["n"])
    text = "NOT ({0} IS NOT NULL OR {1})" if negated else "{0} IS NOT NULL"
    value = (
        _combine(text, Expr.column(*marked["n"]), open_)
        if negated
        else _combine(text, Expr.column(*marked["n"]))
    )
    _remember(block, node, value)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _remember(block: Block, node: exp.Expr, value: Expr) -> None:
    taken = {column for child in block.inputs for column in child.node.columns}
    name = fresh("__value", taken)
    block.close([Output(name, value)])
    block.swap(node, name)


def scalar(builder: Builder, block: Block, node: exp.Expr) -> None:
    tree = in_brackets(node)
    if not reaching_out(tree):
        below = builder.query(tree)
        if not _one_row(tree):
            below = _single(builder, below, ())
        alias = block.add(QUERY, below)
        block.names = {n: ref for n, ref in block.names.items() if ref[0] != alias}
        block.swaps[node] = (alias, below.columns[0])
        return
    tree = reaching_here(builder, block, tree, by_where=True)
    having, calls = None, Calls()
    if tree.args.get("group") is None:
        having = tree.args.get("having")
        calls = find_calls([*tree.expressions, *([having] if having else [])])
    if calls:
        tree = of_one_group(tree).copy()
        tree.set("having", None)
    inner = inner_of(builder, block, tree, "value")
    keys = keys_of(block, inner)
    outputs = [Output(f"k{i}", inner.block.expr(key)) for i, key in enumerate(keys.own)]
    names = tuple(output.name for output in outputs)
    if not calls:
        outputs.append(Output("v", inner.block.expr(inner.items[0])))
        rows: Node = inner.block.project(outputs)
        if rows_said(tree, "limit") != 1:
            rows = _single(builder, rows, names)
        made = attach(builder, block, rows, keys, ["v"])
        _remember(block, node, Expr.column(*made["v"]))
        return
    grouped = builder.grouped_calls(inner.block, keys.own, names, calls)
    value = grouped.expr(inner.items[0])
    empty = _over_nothing(inner.items[0], calls)
    if having is not None:
        kept = grouped.expr(having.this)
        value = _combine("CASE WHEN {0} THEN {1} END", kept, value)
        empty = _combine("CASE WHEN {0} THEN {1} END", _over_nothing(having.this, calls), empty)
    alias = grouped.inputs[0].alias
    shown = [Output(name, Expr.column(alias, name)) for name in names]
    shown += [Output("v", value), Output("here", Expr("true"))]
    made = attach(builder, block, grouped.project(shown), keys, ["v", "here"])
    columns = (Expr.column(*made["here"]), Expr.column(*made["v"]))
    _remember(block, node, _combine("CASE WHEN {0} THEN {1} ELSE {2} END", *columns, empty))


def _over_nothing(item: exp.Expr, calls: Calls) -> Expr:
    """An expression over aggregates without rows: counts are 0, everything else is NULL."""

    def swap(part: exp.Expr) -> exp.Expr:
        call = calls.get(part)
        if call is None:
            return part
        if any(word in call.template.lower() for word in _FULL_OF_NOTHING):
            raise obstacle(
                part,
                "correlated list or sketch",
                "over no rows it is neither 0 nor NULL",
                "group by the key in FROM and join",
            )
        counts = "count" in (call.function + call.template).lower()
        return exp.Literal.number(0) if counts else exp.Null()

    swapped = item.copy().transform(swap)
    if swapped.find(exp.Column) is not None:
        raise obstacle(
            item, "correlated sub-query", "its value reads a column that is not grouped"
        )
    return to_expr(swapped)


def _single(builder: Builder, node: Node, keys: tuple[str, ...]) -> Node:
    """The one row (per key): a runtime error if there are more, NULL if there are none."""
    value = next(column for column in node.columns if column not in keys)
    calls = [
        Call("n", "COUNT", None, False, "", False, ""),
        Call("v", "", None, False, "", True, "", "", "any_value({0})", (value,)),
    ]
    grouped = builder.typed(node, keys, calls)
    picked = Expr(f"CASE WHEN {{0}} <= 1 THEN {{1}} ELSE {_MANY} END", (("g", "n"), ("g", "v")))
    outputs = [Output(key, Expr.column("g", key)) for key in keys]
    return Select((Input("g", grouped),), (), (*outputs, Output("v", picked)))
