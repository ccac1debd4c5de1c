"""Names to columns: views become their text, stars and bare names become `alias`.`column`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify

from dbt_streamsql.compiler.parse import parse, table_uses
from dbt_streamsql.compiler.pivots import without_pivots
from dbt_streamsql.compiler.reasons import Reason, Unsupported, obstacle
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.catalog import Catalog, TableInfo

_MAX_VIEW_DEPTH = 64
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Opened:
    """A syntax tree without views: the tables at its leaves, the texts of its views, by name."""

    sql: str

    tree: exp.Query
    tables: dict[str, TableInfo]
    views: dict[str, str]


@dataclass(frozen=True)
class Bound:
    """A qualified tree, the tables at its leaves by name, and the words of the texts."""

    tree: exp.Query
    tables: dict[str, TableInfo]
    words: frozenset[str]


def open_views(sql: str, catalog: Catalog, default_schema: str = "", model: str = "") -> Opened:
    """Parse `sql` and put the text of each view in its place.

    Errors: SQL_UNSUPPORTED (not readable), TABLE_MISSING.
    """
    opened = Opened(sql, parse(sql, model), {}, {})
    _open_views(opened.tree, catalog, catalog.default_catalog, default_schema, opened, 0)
    return opened


def bind(opened: Opened, catalog: Catalog) -> Bound:
    """Qualify every column; raises `Unsupported` for names that Spark may read otherwise."""
    tree, tables = opened.tree.copy(), opened.tables
    without_pivots(tree, catalog)
    _name_time_windows(tree)
    _refuse_ambiguous_having(tree, tables)
    schema: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
    for info in tables.values():
        columns = {column.name.lower(): column.type for column in info.columns}
        if len(columns) != len(info.columns):
            raise Unsupported(
                Reason("column names", f"{info.name} has columns that differ only in case")
            )
        by_schema = schema.setdefault(info.name.catalog, {}).setdefault(info.name.schema, {})
        by_schema[info.name.table] = columns
    try:
        bound = qualify(
            tree,
            dialect="spark",
            schema=schema,  # type: ignore[arg-type]
            quote_identifiers=False,
            validate_qualify_columns=True,
        )
    except SqlglotError as error:
        raise Unsupported(Reason("names", str(error).splitlines()[0])) from error
    if not isinstance(bound, exp.Query):
        raise Unsupported(Reason("query", "not a SELECT"))
    texts = [opened.sql, *opened.views.values()]
    words = frozenset(word.lower() for text in texts for word in _WORD.findall(text))
    return Bound(bound, tables, words)


def _name_time_windows(tree: exp.Expr) -> None:
    """`window.start` beside GROUP BY window(…) is the start of that window."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        for name in ("window", "session_window"):
            calls = [
                key
                for key in (group.expressions if group is not None else [])
                if isinstance(key, exp.Anonymous) and key.name.lower() == name
            ]
            if len(calls) != 1:
                continue
            order, having = select.args.get("order"), select.args.get("having")
            for place in [*select.expressions, *(part for part in (order, having) if part)]:
                for column in list(place.find_all(exp.Column)):
                    _meant(column, name, calls[0])


def _meant(column: exp.Column, name: str, call: exp.Expr) -> None:
    if column.table.lower() == name:
        column.replace(exp.Dot(this=call.copy(), expression=exp.to_identifier(column.name)))
    elif not column.table and column.name.lower() == name:
        column.replace(call.copy())


def _open_views(
    tree: exp.Expr,
    catalog: Catalog,
    default_catalog: str,
    default_schema: str,
    opened: Opened,
    depth: int,
) -> None:
    if depth > _MAX_VIEW_DEPTH:
        raise StreamSqlError("CYCLE", "views are nested too deeply or read each other")
    for node, use in table_uses(tree, default_catalog, default_schema):
        info = catalog.table(use.name)
        if not info.view_sql:
            opened.tables[str(info.name)] = info
            for key, part in (
                ("catalog", info.name.catalog),
                ("db", info.name.schema),
                ("this", info.name.table),
            ):
                node.set(key, exp.to_identifier(part, quoted=True))
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(use.name.table)))
            continue
        opened.views[str(info.name)] = info.view_sql
        inner = parse(info.view_sql)
        _open_views(inner, catalog, info.view_catalog, info.view_schema, opened, depth + 1)
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(use.name.table))
        if not alias.args.get("columns"):
            alias.set(
                "columns", [exp.to_identifier(column.name, quoted=True) for column in info.columns]
            )
        node.replace(exp.Subquery(this=inner, alias=alias, joins=node.args.get("joins")))


def _refuse_ambiguous_having(tree: exp.Expr, tables: dict[str, TableInfo]) -> None:
    """HAVING prefers an alias where the qualifier prefers a column: ask for a clear name."""
    known = {column.name.lower() for info in tables.values() for column in info.columns}
    for select in tree.find_all(exp.Select):
        having = select.args.get("having")
        if having is None:
            continue
        aliases = {
            item.alias.lower()
            for item in select.expressions
            if isinstance(item, exp.Alias)
            and not (
                isinstance(item.this, exp.Column) and item.this.name.lower() == item.alias.lower()
            )
        }
        for column in having.find_all(exp.Column):
            if not column.table and column.name.lower() in aliases & known:
                raise obstacle(
                    column,
                    f"HAVING {column.name}",
                    "the name is both a column and an alias",
                    "give the alias a name of its own",
                )
