"""Rows that a text produces itself: table functions, and recursion that reads no table.

They are the same at every epoch, so in the query they are tables that never change.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from dbt_streamsql.compiler.binding.scalar import called, is_volatile
from dbt_streamsql.compiler.parsing.dialect import to_sql
from dbt_streamsql.compiler.parsing.unsupported import obstacle
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.algebra.catalog import Catalog
from dbt_streamsql.plan.algebra.expression import escape
from dbt_streamsql.plan.algebra.relational import Constant
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.quoting import TableName

_CATALOG, _SCHEMA = "__streamsql", "constants"
_SURE = frozenset(
    {
        "range",
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "inline",
        "inline_outer",
        "stack",
        "json_tuple",
        "variant_explode",
        "variant_explode_outer",
        "sql_keywords",
        "collations",
    }
)
"""Table functions whose rows depend on their arguments alone."""


@dataclass(frozen=True)
class Rows:
    """A query that reads no table, and its columns."""

    sql: str
    columns: tuple[Column, ...]

    @property
    def node(self) -> Constant:
        """The rows as a leaf of a plan."""
        return Constant(escape(self.sql), tuple(column.name.lower() for column in self.columns))


def put_aside(tree: exp.Query, catalog: Catalog) -> dict[str, Rows]:
    """Replace each such relation of `tree` by a table name; returns the rows by name.

    Raises `Unsupported` for a table function whose rows may change, and for recursion over tables.
    """
    aside: dict[str, Rows] = {}
    while True:
        with_ = next((w for w in tree.find_all(exp.With) if w.args.get("recursive")), None)
        if with_ is None:
            break
        with_.set("recursive", False)
        for cte in with_.expressions:
            if cte.alias.lower() in _read(cte.this):
                rows = rows_of(cte, cte.alias, _recursion(with_, cte), catalog)
                cte.this.replace(exp.select("*").from_(_table(aside, rows)))
                cte.args["alias"].set("columns", None)
    for source in list(tree.find_all(exp.Table)):
        if isinstance(source.this, exp.Func):
            rows = rows_of(source, called(source.this), _function(source), catalog)
            table = _table(aside, rows)
            if not source.alias:
                source.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
            for key in ("this", "db", "catalog"):
                source.set(key, table.args[key])
    for number, values in enumerate(tree.find_all(exp.Values)):
        if values.find_ancestor(exp.From, exp.Join):
            _named(values, f"values{number}")
    return aside


def _named(values: exp.Values, name: str) -> None:
    """Set the names that Spark gives to columns of VALUES that have none."""
    alias = values.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
    if not alias.args.get("columns"):
        width = len(values.expressions[0].expressions)
        alias.set("columns", [exp.to_identifier(f"col{n + 1}") for n in range(width)])
    values.set("alias", alias)


def _read(tree: exp.Expr) -> set[str]:
    """The one-part names that a query reads, in lower case."""
    return {
        table.name.lower()
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not table.args.get("db")
    }


def _recursion(with_: exp.With, recursive: exp.CTE) -> exp.Query:
    """The rows of a recursive CTE, with those before it that it reads."""
    known = {cte.alias.lower(): cte for cte in with_.expressions}
    used, left = {recursive.alias.lower()}, [recursive]
    while left:
        cte = left.pop()
        if any(table.args.get("db") for table in cte.find_all(exp.Table)):
            raise obstacle(with_, "WITH RECURSIVE", "recursion over tables is refreshed in full")
        if cte.find(exp.Limit, exp.Offset):
            raise obstacle(
                with_, "WITH RECURSIVE", "the rows that LIMIT takes are not deterministic"
            )
        inside = {nested.alias.lower() for nested in cte.this.find_all(exp.CTE)}
        for name in _read(cte.this) - inside - used:
            if name not in known:
                raise obstacle(with_, "WITH RECURSIVE", f"{name} is defined outside of it")
            used.add(name)
            left.append(known[name])
    query = exp.select("*").from_(exp.to_identifier(recursive.alias, quoted=True))
    parts = [cte.copy() for name, cte in known.items() if name in used]
    query.set("with_", exp.With(expressions=parts, recursive=True))
    return query


def _function(source: exp.Table) -> exp.Query:
    name = called(source.this)
    if name not in _SURE or source.this.find(exp.Query):
        raise obstacle(source, "table function", "not maintained from changes yet")
    return exp.select("*").from_(exp.Table(this=source.this.copy()))


def rows_of(place: exp.Expr, name: str, query: exp.Expr, catalog: Catalog) -> Rows:
    """The rows of a query that reads no table; `Unsupported` when they are not the same each time,
    or when the query depends on its context."""
    if is_volatile(query, catalog.functions()):
        raise obstacle(place, name, "its rows change from call to call")
    text = to_sql(query)
    try:
        return Rows(text, tuple(catalog.schema(text)))
    except StreamSqlError as error:
        raise obstacle(place, name, f"it cannot run on its own: {error.message}") from error


def _table(aside: dict[str, Rows], rows: Rows) -> exp.Table:
    name = TableName(_CATALOG, _SCHEMA, f"rows{len(aside)}")
    aside[str(name)] = rows
    return exp.table_(name.table, name.schema, name.catalog, quoted=True)
