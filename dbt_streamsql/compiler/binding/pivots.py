"""PIVOT and UNPIVOT of FROM become a grouping and a generator, with the names that Spark gives.

Spark groups a PIVOT twice, by the other columns and the pivoted one, then by the other columns
alone: a value without rows is NULL, even a count. Only if an aggregate is neither a number nor a
boolean does it group once, and there aggregates see no rows: then a count is 0.
"""

from __future__ import annotations

from sqlglot import exp

from dbt_streamsql.compiler.binding.aggregate_calls import find_calls
from dbt_streamsql.compiler.parsing.dialect import DIALECT, to_sql
from dbt_streamsql.compiler.parsing.unsupported import obstacle
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.algebra.catalog import Catalog
from dbt_streamsql.plan.algebra.schema import Column

_ALIAS = "__pivoted"
_TWICE = {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double"}
"""Types, in addition to decimals, whose values Spark sets one by one in a row."""
_NULL_OF_NOTHING = (exp.Sum, exp.Min, exp.Max, exp.Avg)


def without_pivots(tree: exp.Query, catalog: Catalog) -> None:
    """Rewrite every PIVOT and UNPIVOT of a tree in place; raises `Unsupported`."""
    for select in reversed(list(tree.find_all(exp.Select))):
        source = _source(select)
        pivots = source.args.get("pivots") if source is not None else None
        if source is None or not pivots:
            continue
        source.set("pivots", None)
        for pivot in pivots:
            _replace(select, pivot, catalog)
    left = tree.find(exp.Pivot)
    if left is not None:
        raise obstacle(
            left,
            _operator(left),
            "it follows a join",
            "put the join in a sub-query and pivot that",
        )


def _source(select: exp.Select) -> exp.Expr | None:
    from_ = select.args.get("from_")
    return from_.this if from_ is not None else None


def _operator(pivot: exp.Pivot) -> str:
    return "UNPIVOT" if pivot.args.get("unpivot") else "PIVOT"


def _replace(select: exp.Select, pivot: exp.Pivot, catalog: Catalog) -> None:
    """Replace the first relation of FROM by the meaning of a pivot."""
    source = _source(select)
    assert source is not None
    alias = pivot.alias or source.alias_or_name or _ALIAS
    pivot.set("alias", None)
    pivoted = source.copy()
    pivoted.set("pivots", [pivot.copy()])
    try:
        given, made = (catalog.schema(to_sql(_query(select, item))) for item in (source, pivoted))
    except StreamSqlError as error:
        raise obstacle(
            pivot,
            _operator(pivot),
            "its output columns cannot be determined here",
            "put the relation and the pivot into a separate sub-query",
        ) from error
    if len({column.name.lower() for column in given}) < len(given):
        raise obstacle(pivot, _operator(pivot), "two columns have one name", "rename one of them")
    rewrite = _unpivoted if pivot.args.get("unpivot") else _pivoted
    inner = rewrite(pivot, source.copy(), given, made)
    named = exp.TableAlias(this=exp.to_identifier(alias))
    source.replace(exp.Subquery(this=inner, alias=named, joins=source.args.get("joins")))


def _query(select: exp.Select, source: exp.Expr) -> exp.Select:
    """All of one relation, with the CTEs that are visible to it."""
    shown = source.copy()
    shown.set("joins", None)
    query = exp.select("*").from_(shown)
    ctes: dict[str, exp.CTE] = {}
    node: exp.Expr | None = select
    within: exp.Expr | None = None
    while node is not None:
        with_ = node.args.get("with_")
        if isinstance(with_, exp.With):
            seen: dict[str, exp.CTE] = {}
            for cte in with_.expressions:
                if cte is within:
                    break
                seen[cte.alias.lower()] = cte
            ctes = {**seen, **ctes}
        within = node if isinstance(node, exp.CTE) else within
        node = node.parent
    for cte in ctes.values():
        query = query.with_(cte.alias, as_=cte.this.copy(), copy=False)
    return query


def _field(pivot: exp.Pivot) -> exp.In:
    fields = pivot.args.get("fields") or []
    if len(fields) != 1 or not isinstance(fields[0], exp.In):
        raise obstacle(pivot, _operator(pivot), "only FOR … IN (…) is maintained from changes")
    return fields[0]


def _parts(node: exp.Expr, wanted: int = 0) -> list[exp.Expr]:
    """The items in parentheses, or the single item without them.

    With one item `wanted`, parentheses make a struct.
    """
    bare = node.this if isinstance(node, exp.PivotAlias | exp.Alias) else node
    return list(bare.expressions) if isinstance(bare, exp.Tuple) and wanted != 1 else [bare]


def _others(given: tuple[Column, ...], used: list[exp.Expr]) -> list[str]:
    """The columns that none of the expressions names."""
    names = {
        part.name.lower()
        for node in used
        for column in node.find_all(exp.Column)
        for part in column.parts
    }
    return [column.name.lower() for column in given if column.name.lower() not in names]


def _column(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def _cast(value: exp.Expr, type_: str) -> exp.Cast:
    return exp.cast(value, exp.DataType.build(type_, dialect=DIALECT))


def _as(value: exp.Expr, column: Column) -> exp.Expr:
    return exp.alias_(value, exp.to_identifier(column.name.lower(), quoted=True))


# -- PIVOT ---------------------------------------------------------------------------------------


def _pivoted(
    pivot: exp.Pivot, source: exp.Expr, given: tuple[Column, ...], made: tuple[Column, ...]
) -> exp.Select:
    """For each value the aggregates over its rows, NULL without rows, grouped by the rest."""
    field = _field(pivot)
    asked = _parts(field.this)
    aggregates = [item.unalias() for item in pivot.expressions]
    keys = _others(given, [*asked, *aggregates])
    shown = made[len(keys) :]
    if len(shown) != len(field.expressions) * len(aggregates):
        raise obstacle(pivot, "PIVOT", "its columns do not match its values and aggregates")
    once = any(c.type not in _TWICE and not c.type.startswith("decimal") for c in shown)
    types = {column.name.lower(): column.type for column in given}
    items: list[exp.Expr] = [_as(_column(key), c) for key, c in zip(keys, made, strict=False)]
    columns = iter(shown)
    for value in field.expressions:
        terms = [
            exp.NullSafeEQ(
                this=_column(one.name.lower()), expression=_cast(v.copy(), types[one.name.lower()])
            )
            for one, v in zip(asked, _parts(value, len(asked)), strict=True)
        ]
        here = exp.and_(*terms)
        for aggregate in aggregates:
            item = _over(aggregate, here)
            if not once and not isinstance(aggregate, _NULL_OF_NOTHING):
                some = exp.GT(this=_filtered(exp.Count(this=exp.Star()), here), expression=_ZERO)
                item = exp.case().when(some, item)
            items.append(_as(item, next(columns)))
    query = exp.select(*items).from_(source)
    return query.group_by(*(_column(key) for key in keys)) if keys else query


_ZERO = exp.Literal.number(0)


def _over(aggregate: exp.Expr, here: exp.Expr) -> exp.Expr:
    """An expression of aggregates over the rows of one value."""
    calls = find_calls([aggregate])
    return aggregate.copy().transform(
        lambda part: _filtered(part, here) if part in calls else part
    )


def _filtered(call: exp.Expr, here: exp.Expr) -> exp.Filter:
    if isinstance(call, exp.Filter):
        return exp.Filter(
            this=call.this.copy(),
            expression=exp.Where(this=exp.and_(call.expression.this.copy(), here.copy())),
        )
    return exp.Filter(this=call.copy(), expression=exp.Where(this=here.copy()))


# -- UNPIVOT -------------------------------------------------------------------------------------


def _unpivoted(
    pivot: exp.Pivot, source: exp.Expr, given: tuple[Column, ...], made: tuple[Column, ...]
) -> exp.Select:
    """One row for each of the columns: its name and its value, in the common type."""
    field = _field(pivot)
    keys = _others(given, [part for item in field.expressions for part in _parts(item)])
    known = {column.name.lower() for column in given}
    shown = made[len(keys) :]
    names = [f"__unpivoted_{index}" for index in range(len(shown))]
    stacked: list[exp.Expr] = []
    for item in field.expressions:
        parts = _parts(item)
        if len(parts) != len(shown) - 1 or any(part.name.lower() not in known for part in parts):
            raise obstacle(pivot, "UNPIVOT", "only plain column names are supported")
        # Names as the text writes them, regardless of the case of the columns.
        label = item.alias or "_".join(part.name for part in parts)
        stacked.append(exp.Literal.string(label))
        for part, column in zip(parts, shown[1:], strict=True):
            stacked.append(_cast(_column(part.name.lower()), column.type))
    rows = exp.Literal.number(len(field.expressions))
    call = exp.Anonymous(this="stack", expressions=[rows, *stacked])
    alias = exp.TableAlias(
        this=exp.to_identifier("__unpivoted"), columns=[exp.to_identifier(name) for name in names]
    )
    items = [_as(_column(key), column) for key, column in zip(keys, made, strict=False)]
    items += [_as(_column(name), column) for name, column in zip(names, shown, strict=True)]
    query = exp.select(*items).from_(source)
    query.append("laterals", exp.Lateral(this=call, view=True, outer=False, alias=alias))
    if not pivot.args.get("include_nulls"):
        some = [exp.Not(this=exp.Is(this=_column(n), expression=exp.null())) for n in names[1:]]
        query = query.where(exp.or_(*some))
    return query
