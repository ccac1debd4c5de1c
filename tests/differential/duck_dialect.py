"""Spark SQL as DuckDB SQL of the same meaning: sqlglot's translation and what it leaves out.

Two things are made equal on both sides of every comparison, because here they are noise:
- means, deviations and correlations are rounded to `DIGITS`, for the last bits of such a value
  depend on the order of addition, and a row of a change must meet the stored row it takes back;
- widths: DuckDB counts, ranks and sums in other integer types than Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp

DIGITS = 10
"""Decimals kept of a value that depends on the order of addition."""

_ROUNDED = (
    exp.Avg,
    exp.Stddev,
    exp.StddevPop,
    exp.StddevSamp,
    exp.Variance,
    exp.VariancePop,
    exp.Corr,
    exp.CovarPop,
    exp.CovarSamp,
    exp.RegrSlope,
    exp.Kurtosis,
    exp.Skewness,
    exp.Quantile,
    exp.Median,
)
_INT = (
    exp.RowNumber,
    exp.Rank,
    exp.DenseRank,
    exp.Ntile,
    exp.Length,
    exp.ArraySize,
    exp.Year,
    exp.Month,
    exp.Day,
    exp.DateDiff,
)
_TYPES = {"TIMESTAMPTZ": "TIMESTAMP", "TIMESTAMPLTZ": "TIMESTAMP", "TIMESTAMPNTZ": "TIMESTAMP"}


@lru_cache(maxsize=20_000)
def to_duck(sql: str) -> str:
    """One Spark query for DuckDB."""
    tree = sqlglot.parse_one(sql, dialect="spark")
    nodes = list(tree.walk())
    for kind, rewrite in _REWRITES:
        for node in nodes:
            if isinstance(node, kind):
                rewrite(node)
    return tree.sql(dialect="duckdb", comments=False)


@lru_cache(maxsize=2_000)
def to_duck_type(type_: str) -> str:
    """A Spark type as DuckDB writes it."""
    kind = exp.DataType.build(type_, dialect="spark")
    for part in list(kind.find_all(exp.DataType)):
        _plain_type(part)
    return kind.sql(dialect="duckdb")


def _instead(node: exp.Expr, make: Callable[[], exp.Expr]) -> None:
    """Put what `make` builds, of the node or its parts and not of copies, where the node stood."""
    hole = exp.Placeholder()
    node.replace(hole)
    hole.replace(make())


def _as(type_: str) -> Callable[[exp.Expr], exp.Expr]:
    return lambda node: exp.Cast(this=node, to=exp.DataType.build(type_))


def _whole(node: exp.Expr) -> exp.Expr:
    """The call with its FILTER and its OVER."""
    while isinstance(node.parent, exp.Filter | exp.Window | exp.WithinGroup) and (
        node.parent.this is node
    ):
        node = node.parent
    return node


def _around(wrap: Callable[[exp.Expr], exp.Expr]) -> Callable[[exp.Expr], None]:
    """A rewrite that puts something around the whole call."""

    def rewrite(node: exp.Expr) -> None:
        whole = _whole(node)
        _instead(whole, lambda: wrap(whole))

    return rewrite


def _rounded(node: exp.Expr) -> exp.Expr:
    return exp.Round(this=node, decimals=exp.Literal.number(DIGITS))


def _mean_of_sums(node: exp.Div) -> None:
    """A mean that is kept as its sum and its count."""
    if isinstance(node.expression, exp.Nullif):
        _around(_rounded)(node)


# -- types and clauses ---------------------------------------------------------------------------


def _no_hints(select: exp.Select) -> None:
    select.set("hint", None)


def _plain_type(node: exp.DataType) -> None:
    new = _TYPES.get(node.this.name)
    if new:
        node.set("this", exp.DType[new])


def _strict(node: exp.TryCast) -> None:
    """Spark's CAST fails where sqlglot, for older Sparks, would have NULL."""
    _instead(node, lambda: exp.Cast(this=node.this, to=node.args["to"]))


def _grouping_sets(group: exp.Group) -> None:
    """`GROUP BY a, b WITH CUBE` and `GROUP BY a, b GROUPING SETS (…)` in the standard's form."""
    for key, kind in (("cube", exp.Cube), ("rollup", exp.Rollup)):
        if group.args.get(key):
            keys = group.expressions
            group.set(key, None)
            group.set("expressions", [kind(expressions=keys)])
    many = any(
        isinstance(part, exp.Cube | exp.Rollup | exp.GroupingSets) for part in group.expressions
    )
    if group.args.get("grouping_sets"):
        group.set("expressions", [])
        many = True
    if many:
        # Without rows there is no group in Spark, not even that of the empty set.
        select = group.parent_select
        some = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
        having = select.args.get("having")
        terms = [exp.paren(having.this), some] if having is not None else [some]
        select.set("having", exp.Having(this=exp.and_(*terms)))


def _grouping_id(node: exp.GroupingId) -> None:
    """Without arguments it is of all keys."""
    if node.expressions:
        return
    group = node.parent_select.args["group"]
    keys: list[exp.Expr] = []
    for part in (*group.expressions, *(group.args.get("grouping_sets") or [])):
        many = isinstance(part, exp.Cube | exp.Rollup | exp.GroupingSets)
        plain = list(part.find_all(exp.Column)) if many else [part]
        keys += [key for key in plain if key not in keys]
    node.set("expressions", [key.copy() for key in keys])


# -- aggregates ----------------------------------------------------------------------------------


def _weights(node: exp.Sum) -> None:
    """Sums of weights are BIGINT, so that products with them stay what Spark has."""
    if isinstance(node.this, exp.Column) and node.this.name == "_streamsql_w":
        _around(_as("bigint"))(node)


def _quantile(node: exp.Quantile) -> None:
    """Spark's percentile interpolates."""
    _instead(
        node,
        lambda: exp.Anonymous(
            this="quantile_cont", expressions=[_as("double")(node.this), node.args["quantile"]]
        ),
    )


def _collected(node: exp.ArrayAgg | exp.ArrayUniqueAgg) -> None:
    """Lists leave NULLs out, and there is an empty one where DuckDB has NULL."""
    if isinstance(node.parent, exp.Filter):
        raise NotImplementedError("collect with FILTER")

    def made() -> exp.Expr:
        known = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.null()))
        inner = node.this
        if isinstance(node, exp.ArrayUniqueAgg):
            inner = exp.Distinct(expressions=[inner])
        call = exp.Anonymous(this="list", expressions=[inner])
        filled = exp.Filter(this=call, expression=exp.Where(this=known))
        return exp.Coalesce(this=filled, expressions=[exp.Array(expressions=[])])

    _instead(node, made)


def _by(node: exp.ArgMax | exp.ArgMin) -> None:
    """The value may be NULL."""
    name = "arg_max_null" if isinstance(node, exp.ArgMax) else "arg_min_null"
    _instead(node, lambda: exp.Anonymous(this=name, expressions=[node.this, node.expression]))


def _count_if(node: exp.CountIf) -> None:
    """DuckDB's count of a condition that is always NULL is NULL."""
    one = exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))])
    _instead(node, lambda: exp.Count(this=one))


_OTHER_NAMES = {"every": "bool_and", "some": "bool_or", "raise_error": "error"}


def _logical(node: exp.Anonymous) -> None:
    name = _OTHER_NAMES.get(node.name.lower())
    if name is not None:
        node.set("this", name)


# -- generators ----------------------------------------------------------------------------------


def _generator(call: exp.Expr, *, outer: bool) -> exp.Expr:
    """The array of a generator; of an outer one never without an element."""
    value = call.this
    if outer or isinstance(call, exp.ExplodeOuter | exp.PosexplodeOuter):
        size = exp.Anonymous(this="len", expressions=[value.copy()])
        some = exp.GT(this=size, expression=exp.Literal.number(0))
        nothing = exp.Array(expressions=[exp.null()])
        value = exp.Case(ifs=[exp.If(this=some, true=value)], default=nothing)
    return value


def _laterals(select: exp.Select) -> None:
    """LATERAL VIEW as a lateral join with UNNEST: OUTER keeps rows, positions count from 0."""
    views = select.args.get("laterals") or []
    select.set("laterals", None)
    for view in views:
        call, alias = view.this, view.args["alias"]
        names = [column.name for column in alias.columns]
        if isinstance(call, exp.Stack):
            lateral = exp.Lateral(
                this=exp.Subquery(this=_stacked(call, names)),
                alias=exp.TableAlias(this=alias.this.copy()),
            )
            select.append("joins", exp.Join(this=lateral, kind="CROSS"))
            continue
        real = call.this.copy()
        value = _generator(call, outer=bool(view.args.get("outer")))
        if isinstance(call, exp.Posexplode):
            inner = _positions(value, real, names)
        else:
            inner = exp.select(exp.alias_(exp.Explode(this=value), names[-1]))
        lateral = exp.Lateral(
            this=exp.Subquery(this=inner), alias=exp.TableAlias(this=alias.this.copy())
        )
        select.append("joins", exp.Join(this=lateral, kind="CROSS"))


def _stacked(call: exp.Stack, names: list[str]) -> exp.Query:
    """The rows of STACK, one SELECT each."""
    values = call.expressions
    rows = [values[at : at + len(names)] for at in range(0, len(values), len(names))]
    selects = [
        exp.select(*(exp.alias_(v, name) for v, name in zip(row, names, strict=True)))
        for row in rows
    ]
    return exp.union(*selects, distinct=False) if len(selects) > 1 else selects[0]


def _positions(value: exp.Expr, real: exp.Expr, names: list[str]) -> exp.Select:
    """Elements with their positions; without elements both are NULL."""
    array, own = value.sql(dialect="duckdb"), real.sql(dialect="duckdb")
    text = (
        f"SELECT CAST(CASE WHEN len({own}) > 0 THEN n__ - 1 END AS INT) AS {names[0]}, "
        f"({array})[n__] AS {names[1]} FROM (SELECT unnest(range(1, len({array}) + 1)) AS n__)"
    )
    return sqlglot.parse_one(text, dialect="duckdb")


def _explode_outer(node: exp.ExplodeOuter) -> None:
    if not isinstance(node.parent, exp.Lateral):
        _instead(node, lambda: exp.Explode(this=_generator(node, outer=True)))


_REWRITES: tuple[tuple[Any, Callable[[Any], None]], ...] = (
    (exp.Select, _no_hints),
    (exp.DataType, _plain_type),
    (exp.TryCast, _strict),
    (exp.GroupingId, _grouping_id),
    (exp.Group, _grouping_sets),
    (exp.Anonymous, _logical),
    (exp.CountIf, _count_if),
    (exp.Sum, _weights),
    (_ROUNDED, _around(_rounded)),
    (exp.Div, _mean_of_sums),
    (_INT, _around(_as("int"))),
    ((exp.DateAdd, exp.DateSub, exp.TsOrDsAdd), _around(_as("date"))),
    (exp.Grouping, _around(_as("tinyint"))),
    (exp.GroupingId, _around(_as("bigint"))),
    (exp.IntDiv, _around(_as("bigint"))),
    (exp.Quantile, _quantile),
    ((exp.ArrayAgg, exp.ArrayUniqueAgg), _collected),
    ((exp.ArgMax, exp.ArgMin), _by),
    (exp.ExplodeOuter, _explode_outer),
    (exp.Select, _laterals),
)
"""Every difference that sqlglot does not know, in order; each changes the tree in place."""
