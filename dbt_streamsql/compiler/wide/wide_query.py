"""A wide table is stored as one query that contains everything: written here, and read back.

Its first CTE holds the branches and the conflict rules, the next CTEs hold the queries as written,
and the rest is the output of `wide_sql`.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from dbt_streamsql.compiler.binding.bind import Opened, bind
from dbt_streamsql.compiler.codegen.wide_sql import branches_sql, side_sql, sum_type
from dbt_streamsql.compiler.lowering.builder import Builder, Built
from dbt_streamsql.compiler.parsing.parse import parse
from dbt_streamsql.compiler.wide.branches import Branch, Wide
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.plan.algebra.catalog import Catalog
from dbt_streamsql.plan.algebra.expression import escape, fill
from dbt_streamsql.plan.algebra.relational import Branches, Constant, Input
from dbt_streamsql.plan.algebra.schema import HIDDEN_PREFIX, Column
from dbt_streamsql.quoting import TableName, literal, quote

_MARK = f"{HIDDEN_PREFIX}partial_update"
_NUMBER = f"{HIDDEN_PREFIX}number"


def wide_query(wide: Wide, catalog: Catalog, place: Place) -> str:
    """The query of a wide table.

    Errors: PARTIAL_UPDATE_INVALID, SQL_INVALID, SQL_UNSUPPORTED, TABLE_MISSING.
    """
    typed = []
    for branch in wide.branches:
        at = Place(place.model or branch.name)
        try:
            parse(branch.sql)
            columns = catalog.schema(branch.sql)
        except StreamSqlError as error:
            raise _of_branch(error, branch).at(at) from error
        if len(columns) != len(branch.columns):
            raise StreamSqlError(
                "PARTIAL_UPDATE_INVALID",
                f"the query of branch `{branch.name}` does not return the columns that it writes",
                given=", ".join(column.name for column in columns),
                allowed=f"one for each of {', '.join(branch.columns)}",
                place=at,
            )
        typed.append(dict(zip(branch.columns, columns, strict=True)))
    keys = tuple(_common([types[key].type for types in typed], catalog) for key in wide.key)
    inputs = tuple(
        Input(branch.name, Constant("", _order(wide, branch))) for branch in wide.branches
    )
    targets = tuple(wide.targets(branch) for branch in wide.branches)
    types = tuple(
        tuple(own[path].type for path in paths) for own, paths in zip(typed, targets, strict=True)
    )
    node = Branches(
        *(inputs, wide.key, keys, targets, types, wide.merges(), wide.anchor, wide.reuse_sink)
    )
    _check_sums(node, place)
    spec = literal(wide.spec())
    ctes = [f"{_MARK} AS (SELECT {spec} AS spec)"]
    for branch in wide.branches:
        names = ", ".join(quote(column) for column in branch.columns)
        ctes.append(f"{_cte(branch)} ({names}) AS (\n{branch.sql.strip().rstrip(';')}\n)")
    rows = (escape(_rows(wide, branch)) for branch in wide.branches)
    sides = [side_sql(node, number, sql) for number, sql in enumerate(rows)]
    outer = fill(branches_sql(node, sides, hidden=False), str)
    text = f"WITH {', '.join(ctes)}\n{outer}"
    if wide_in(parse(text, place.model)) != replace(wide, branches=_without_sql(wide)):
        raise StreamSqlError(
            "PARTIAL_UPDATE_INVALID",
            "a name of the wide table cannot be used in a query",
            given=wide.spec(),
            hint="choose names without quotes and backslashes",
            place=place,
        )
    return text


def wide_in(tree: exp.Expr) -> Wide | None:
    """The wide table in a query, without its branches' queries; None for any other query."""
    with_ = tree.args.get("with_")
    first = with_.expressions[0] if isinstance(with_, exp.With) else None
    if first is None or first.alias != _MARK:
        return None
    spec = first.this.expressions[0].unalias()
    return Wide.of_spec(spec.this)


def build_wide(wide: Wide, opened: Opened, columns: tuple[Column, ...], catalog: Catalog) -> Built:
    """The relational tree of a wide table with these columns; raises `Unsupported`."""
    with_ = opened.tree.args.get("with_")
    assert isinstance(with_, exp.With)
    inputs, types, chosen = [], [], False
    for branch, cte in zip(wide.branches, with_.expressions[1:], strict=True):
        tree = parse(_rows(wide, branch))
        tree.set("with_", exp.With(expressions=[cte.copy()]))
        read = {
            name
            for table in cte.find_all(exp.Table)
            if table.args.get("catalog") is not None
            for name in [str(TableName(table.catalog, table.db, table.name))]
        }
        tables = {name: info for name, info in opened.tables.items() if name in read}
        bound = bind(replace(opened, tree=tree, tables=tables), catalog)
        builder = Builder(bound, catalog)
        node = builder.whole()
        chosen = chosen or builder.chosen
        inputs.append(Input(branch.name, node))
        types.append(tuple(c.type for c in builder.schema(node)[len(wide.key) :]))
    root = Branches(
        tuple(inputs),
        tuple(column.name for column in columns[: len(wide.key)]),
        tuple(column.type for column in columns[: len(wide.key)]),
        tuple(wide.targets(branch) for branch in wide.branches),
        tuple(types),
        wide.merges(),
        wide.anchor,
        wide.reuse_sink,
    )
    return Built(root, chosen)


def _order(wide: Wide, branch: Branch) -> tuple[str, ...]:
    """The columns of a branch in the order of the node: the key first."""
    return (*wide.key, *wide.targets(branch))


def _rows(wide: Wide, branch: Branch) -> str:
    """The rows of a branch; among rows of one key, the last one by its sequence."""
    names = ", ".join(quote(column) for column in _order(wide, branch))
    sequences = wide.sequences(branch)
    if not sequences:
        return f"SELECT {names} FROM {_cte(branch)}"
    keys = ", ".join(quote(key) for key in wide.key)
    order = ", ".join(f"{quote(column)} DESC NULLS LAST" for column in sequences)
    return (
        f"SELECT {names} FROM (SELECT {names}, row_number() OVER (PARTITION BY {keys} "
        f"ORDER BY {order}) AS {_NUMBER} FROM {_cte(branch)}) WHERE {_NUMBER} = 1"
    )


def _cte(branch: Branch) -> str:
    return quote(f"branch {branch.name}")


def _without_sql(wide: Wide) -> tuple[Branch, ...]:
    return tuple(replace(branch, sql="") for branch in wide.branches)


def _common(kinds: list[str], catalog: Catalog) -> str:
    """The type that Spark gives to a union of values of these types."""
    if len(set(kinds)) == 1:
        return kinds[0]
    sides = " UNION ALL ".join(
        f"SELECT CAST(NULL AS {kind}) AS k" for kind in dict.fromkeys(kinds)
    )
    return catalog.schema(sides)[0].type


def _check_sums(node: Branches, place: Place) -> None:
    wrong = [
        f"`merge: {merge.column}: sum` of {kind}"
        for merge in node.merges
        if merge.function == "sum"
        for paths, kinds in zip(node.targets, node.types, strict=True)
        for path, kind in zip(paths, kinds, strict=True)
        if path == merge.column and not sum_type(kind)
    ]
    if wrong:
        raise StreamSqlError(
            "PARTIAL_UPDATE_INVALID",
            "only numbers can be summed",
            given=", ".join(wrong),
            allowed="integers, decimals, float and double",
            place=place,
        )


def _of_branch(error: StreamSqlError, branch: Branch) -> StreamSqlError:
    return StreamSqlError(
        error.code,
        f"branch `{branch.name}`: {error.message}",
        given=error.given,
        allowed=error.allowed,
        hint=error.hint,
        place=error.place,
    )
