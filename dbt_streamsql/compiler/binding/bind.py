"""Names to columns: views become their text; stars and bare names become `alias`.`column`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from dbt_streamsql.compiler.binding.constants import Rows, put_aside
from dbt_streamsql.compiler.binding.orders import settle_orders
from dbt_streamsql.compiler.binding.pivots import without_pivots
from dbt_streamsql.compiler.binding.scalar import called
from dbt_streamsql.compiler.binding.using import without_using
from dbt_streamsql.compiler.parsing.builtin_functions import AGGREGATES
from dbt_streamsql.compiler.parsing.dialect import (
    DIALECT,
    parse_all,
    to_sql,
    unfaithful,
)
from dbt_streamsql.compiler.parsing.names import table_uses, uses_without_tree
from dbt_streamsql.compiler.parsing.parse import parse, unreadable
from dbt_streamsql.compiler.parsing.unsupported import (
    Reason,
    Unsupported,
    obstacle,
    written_in,
)
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.plan.algebra.catalog import Catalog, TableInfo
from dbt_streamsql.quoting import TableName, quote

_MAX_VIEW_DEPTH = 64
_SNAPSHOT = re.compile(r"(FOR )?VERSION AS OF \d+")
"""A version that never changes; a branch, a tag or a time may later mean another version."""


@dataclass(frozen=True)
class Opened:
    """A syntax tree without views: the tables at its leaves, and the texts of its views, by name.

    `misread` holds, for each text, what the parser misread; `fixed` the tables for which the text
    itself names a version or a part. `unread`: why the tree is empty, if the parser failed; then
    `tables` and `views` may have more than the text reads.
    """

    tree: exp.Query
    tables: dict[str, TableInfo]
    views: dict[str, str]
    misread: list[str]
    fixed: list[str]
    unread: StreamSqlError | None = None

    @property
    def is_volatile(self) -> bool:
        """Whether the versions of the inputs do not determine what the text reads."""
        return self.unread is not None or any(not _SNAPSHOT.fullmatch(part) for part in self.fixed)


@dataclass(frozen=True)
class Bound:
    """A qualified tree, and the tables and constant rows at its leaves by name.

    `doubt`: why the tree written as text may mean something else; '' when it cannot.
    """

    tree: exp.Query
    tables: dict[str, TableInfo]
    constants: dict[str, Rows]
    doubt: str


def open_views(sql: str, catalog: Catalog, default_schema: str = "", model: str = "") -> Opened:
    """Parse `sql` and replace each view by its text.

    Errors: SQL_UNSUPPORTED (not a query), TABLE_MISSING.
    """
    try:
        opened = Opened(parse(sql, model), {}, {}, [], [])
        _prepare(opened, sql, opened.tree)
        _open_views(opened.tree, catalog, catalog.default_catalog, default_schema, opened, 0)
    except StreamSqlError as error:
        if not unreadable(error):
            raise
        return _unread(sql, catalog, default_schema, error)
    return opened


def _unread(sql: str, catalog: Catalog, schema: str, why: StreamSqlError) -> Opened:
    """What is known of a text without a tree: all tables and views that it may read."""
    opened = Opened(exp.Select(), {}, {}, [], [], why)
    left = [(sql, catalog.default_catalog, schema)]
    while left:
        for use in uses_without_tree(*left.pop()):
            try:
                info = catalog.table(use.name)
            except StreamSqlError:
                continue  # apparently a column
            if not info.view_sql:
                opened.tables[str(info.name)] = info
            elif str(info.name) not in opened.views:
                opened.views[str(info.name)] = info.view_sql
                left.append((info.view_sql, info.view_catalog, info.view_schema))
    return opened


def _prepare(opened: Opened, sql: str, tree: exp.Query) -> None:
    for select in tree.find_all(exp.Select):
        select.set("hint", None)  # it affects how, not what, to compute
    found = unfaithful(sql, tree)
    if found:
        opened.misread.append(found)


def bind(opened: Opened, catalog: Catalog) -> Bound:
    """Qualify every column; raises `Unsupported` for names that Spark may read differently."""
    tree, tables = opened.tree.copy(), opened.tables
    _quote_alike(tree)
    settle_orders(tree)
    constants = put_aside(tree, catalog)
    without_pivots(tree, catalog)
    _name_time_windows(tree)
    _name_grouping_ids(tree)
    _name_positions(tree)
    _refuse_ambiguous_having(tree, tables)
    # Columns are in lower case here; tables keep the case of their catalog.
    schema = MappingSchema(dialect=DIALECT, normalize=False)
    for info in tables.values():
        columns = {column.name.lower(): column.type for column in info.columns}
        if len(columns) != len(info.columns):
            raise Unsupported(
                Reason("column names", f"{info.name} has columns that differ only in case")
            )
        _add(schema, info.name, columns)
    for name, rows in constants.items():
        _add(schema, TableName.parse(name), {c.name.lower(): c.type for c in rows.columns})
    without_using(tree, lambda relation: _columns_of(relation, schema))
    for select in tree.find_all(exp.Select):
        _order_by_shown(select)
    _name_shown(tree)
    bound = _qualified(tree, schema)
    doubt = f"the parser reads {opened.misread[0]}" if opened.misread else ""
    if not doubt and not _reads_back(bound):
        doubt = "its parentheses would be lost"
    return Bound(bound, tables, constants, doubt)


def _add(schema: MappingSchema, name: TableName, columns: dict[str, str]) -> None:
    schema.add_table(exp.table_(name.table, name.schema, name.catalog, quoted=True), columns)


def _reads_back(tree: exp.Query) -> bool:
    """Whether the text of a tree is read as that tree: no parenthesis is missing."""
    plain = tree.copy()
    for column in list(plain.find_all(exp.Column)):
        # The meaning of `a.b.c` depends on the known names, so they are calls here.
        name = exp.Literal.string(f"{column.table}.{column.name}")
        column.replace(exp.Anonymous(this="a_column", expressions=[name]))
    for identifier in plain.find_all(exp.Identifier):
        identifier.set("quoted", True)
    shape = _shape(plain)
    return [_shape(read) for read in parse_all(to_sql(plain, copy=False))] == [shape]


def _shape(tree: exp.Expr) -> list[tuple[int, str, str]]:
    """The nodes of a tree with their depths, in an order that depends on the tree alone."""
    found, left = [], [(0, tree)]
    while left:
        depth, node = left.pop()
        leaf = isinstance(node, exp.Identifier | exp.Literal | exp.Var | exp.Anonymous)
        found.append((depth, node.key, node.name if leaf else ""))
        for _, value in sorted(node.args.items()):
            inner = value if isinstance(value, list) else [value]
            left += [(depth + 1, child) for child in inner if isinstance(child, exp.Expr)]
    return found


def _qualified(tree: exp.Query, schema: MappingSchema) -> exp.Query:
    try:
        bound = qualify(
            tree,
            dialect=DIALECT,
            schema=schema,
            quote_identifiers=False,
            validate_qualify_columns=True,
        )
    except SqlglotError as error:
        raise Unsupported(Reason("names", str(error).splitlines()[0])) from error
    if not isinstance(bound, exp.Query):
        raise Unsupported(Reason("query", "not a SELECT"))
    for select in bound.find_all(exp.Select):
        for item in select.expressions:
            if isinstance(item, exp.Subquery) and item.alias:
                # As the parser reads it, which takes it for a value, not for a relation.
                name = exp.to_identifier(item.alias)
                item.replace(exp.Alias(this=exp.Subquery(this=item.this), alias=name))
    _quote_alike(bound)
    return bound


def _quote_alike(tree: exp.Query) -> None:
    """`k` and k are the same column, and so the same expression in GROUP BY and ORDER BY."""
    for name in tree.find_all(exp.Identifier):
        lower = name.name.lower()
        name.set("quoted", quote(lower) != lower)


def _columns_of(relation: exp.Expr, schema: MappingSchema) -> list[str]:
    """The names of a relation's columns, in lower case."""
    alias = relation.args.get("alias")
    renamed = alias is not None and alias.args.get("columns")
    if isinstance(relation, exp.Table) and relation.args.get("catalog") and not renamed:
        return [str(name) for name in schema.column_names(relation)]
    query = exp.select("*").from_(relation.copy())
    holder: exp.Expr | None = relation.parent
    ctes: list[exp.Expr] = []
    while holder is not None:
        with_ = holder.args.get("with_")
        if isinstance(with_, exp.With):
            ctes = [*(cte.copy() for cte in with_.expressions), *ctes]
        holder = holder.parent
    if ctes:
        query.set("with_", exp.With(expressions=ctes))
    return [name.lower() for name in _qualified(query, schema).named_selects]


def _name_shown(tree: exp.Expr) -> None:
    """Number the constants that a query returns: the qualifier would name `10` "10"."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    for position, item in enumerate(list(tree.expressions)):
        inside = item.this if isinstance(item, exp.Cast) else item
        named = isinstance(inside, exp.Alias | exp.Aliases | exp.Column | exp.Dot | exp.Star)
        if item.output_name and not named:
            item.replace(exp.alias_(item.copy(), f"_col_{position}"))


def _order_by_shown(select: exp.Select) -> None:
    """ORDER BY resolves to output columns before input columns."""
    order = select.args.get("order")
    if order is None or not (select.args.get("limit") or select.args.get("offset")):
        return
    shown = {
        item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)
    }
    for column in list(order.find_all(exp.Column)):
        meant = shown.get(column.name.lower()) if not column.table else None
        if meant is None or isinstance(column.parent, exp.Ordered):
            continue
        if column.find_ancestor(exp.Query) is not select:
            continue
        if any(called(part) in AGGREGATES for part in _above(column, order)):
            raise obstacle(column, "ORDER BY", f"{column.name} is both a column and an alias")
        column.replace(exp.paren(meant.copy()))


def _above(node: exp.Expr, top: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None and node is not top:
        node = node.parent
        yield node


def _name_time_windows(tree: exp.Expr) -> None:
    """`window.start` with GROUP BY window(…) is the start of that window."""
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


def _name_grouping_ids(tree: exp.Expr) -> None:
    """Hive's `grouping__id` with grouping sets is GROUPING_ID()."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        many = (exp.GroupingSets, exp.Cube, exp.Rollup)
        if group is None or group.find(*many) is None:
            continue
        for column in list(select.find_all(exp.Column)):
            if column.name.lower() != "grouping__id" or column.table:
                continue
            call: exp.Expr = exp.Anonymous(this="grouping_id", expressions=[])
            column.replace(exp.alias_(call, column.name) if column.parent is select else call)


def _name_positions(tree: exp.Expr) -> None:
    """Replace positions by what they refer to within GROUPING SETS, CUBE and ROLLUP."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        for item in list(group.find_all(exp.Literal)) if group is not None else []:
            holder = item.parent
            while isinstance(holder, exp.Paren | exp.Tuple):
                holder = holder.parent
            if isinstance(holder, exp.GroupingSets | exp.Cube | exp.Rollup):
                item.replace(_counted_to(item, select))


def _counted_to(position: exp.Literal, select: exp.Select) -> exp.Expr:
    number = int(position.name) if position.name.isdigit() else 0
    before: list[exp.Expr] = select.expressions[:number]
    if not number or len(before) < number or any(item.is_star for item in before):
        raise obstacle(
            position, position.name, "the column at this position is not known", "name the column"
        )
    return before[-1].unalias().copy()


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
        if use.fixed:
            opened.tables[str(info.name)] = info
            opened.fixed.append(use.fixed)
            continue
        if not info.view_sql:
            opened.tables[str(info.name)] = info
            for key, part in (
                ("catalog", info.name.catalog),
                ("db", info.name.schema),
                ("this", info.name.table),
            ):
                identifier = exp.to_identifier(part, quoted=True)
                # Columns are case-insensitive; for tables the catalog decides.
                identifier.meta["case_sensitive"] = True
                node.set(key, identifier)
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(use.name.table)))
            continue
        opened.views[str(info.name)] = info.view_sql
        inner = parse(info.view_sql)
        written_in(str(info.name), inner)
        _prepare(opened, info.view_sql, inner)
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
                    "use a different alias",
                )
