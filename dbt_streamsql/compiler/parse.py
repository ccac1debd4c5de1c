"""Text to syntax tree, and back to the user's own text with other table names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from dbt_streamsql.compiler.dialect import parse_all, to_sql, tokens_of
from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.quoting import TableName, quote

_QUALIFY = re.compile(r"\bqualify\b", re.IGNORECASE)
_KEEP = "streamsql_qualify"
_OUTSIDE = ("order", "limit", "offset", "distinct", "with_", "with")
"""Clauses that come after QUALIFY, and the CTEs, which stay outermost."""


@dataclass(frozen=True)
class TableUse:
    """One place where a text names a table: offsets of the name, and whether an alias follows."""

    name: TableName
    start: int
    end: int
    aliased: bool


def parse(sql: str, model: str = "") -> exp.Query:
    """The syntax tree of one SELECT statement; SQL_UNSUPPORTED when there is none."""
    try:
        statements = parse_all(sql)
    except SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        raise StreamSqlError(
            "SQL_UNSUPPORTED",
            "the compiler cannot read this query: "
            + str(details[0].get("description", str(error).splitlines()[0])),
            hint="materialize the model as `table`, or write the part that is marked differently",
            place=Place(model, int(details[0].get("line") or 0), int(details[0].get("col") or 0)),
        ) from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise StreamSqlError(
            "SQL_UNSUPPORTED",
            "a view is one SELECT statement",
            given=f"{len(statements)} statement(s)",
            allowed="one SELECT",
            place=Place(model),
        )
    return statements[0]


def without_qualify(sql: str) -> str:
    """The text with each QUALIFY as a condition around its block: Spark 4.1 does not know it."""
    if not _QUALIFY.search(sql):
        return sql
    tree = parse(sql)
    found = [select for select in tree.find_all(exp.Select) if select.args.get("qualify")]
    for select in reversed(found):
        aliases = {item.alias.lower(): item.this for item in select.expressions if item.alias}
        condition = select.args["qualify"].this.copy()
        select.set("qualify", None)
        for column in list(condition.find_all(exp.Column)):
            if not column.table and column.name.lower() in aliases:
                meant = exp.paren(aliases[column.name.lower()].copy())
                condition = meant if column is condition else condition
                column.replace(meant)
        inner = select.copy()
        for key in _OUTSIDE:
            inner.set(key, None)
        inner.append("expressions", exp.alias_(condition, _KEEP))
        outer = exp.select(exp.Star(except_=[exp.to_identifier(_KEEP)]))
        outer = outer.from_(inner.subquery("qualified")).where(exp.column(_KEEP))
        for key in _OUTSIDE:
            outer.set(key, select.args.get(key))
        if select is tree:
            tree = outer
        else:
            select.replace(outer)
    return to_sql(tree, pretty=True)


def statements(sql: str) -> list[str]:
    """A text cut at its semicolons, those in strings and comments left alone.

    Error: SQL_UNSUPPORTED when a string or a comment has no end.
    """
    try:
        tokens = tokens_of(sql)
    except SqlglotError as error:
        raise StreamSqlError(
            "SQL_UNSUPPORTED", "the text cannot be cut into statements", given=str(error)
        ) from error
    pieces: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [sql[piece[0].start : piece[-1].end + 1] for piece in pieces if piece]


def _visible_ctes(node: exp.Expr) -> set[str]:
    names: set[str] = set()
    walker: exp.Expr | None = node
    while walker is not None:
        with_ = walker.args.get("with_") or walker.args.get("with")
        if isinstance(with_, exp.With):
            names |= {cte.alias.lower() for cte in with_.expressions}
        walker = walker.parent
    return names


def table_uses(
    tree: exp.Expr, catalog: str = "", schema: str = "", *, incomplete_ok: bool = False
) -> list[tuple[exp.Table, TableUse]]:
    """Every base table (not a CTE) that the tree names, in order of appearance in the text.

    A name that lacks a part without a default is IDENTIFIER_INVALID, or left out if
    `incomplete_ok` (it may be a temporary view).
    """
    uses: list[tuple[exp.Table, TableUse]] = []
    for table in tree.find_all(exp.Table):
        parts = table.parts
        if not parts or not all(isinstance(part, exp.Identifier) for part in parts):
            continue
        if len(parts) == 1 and parts[0].name.lower() in _visible_ctes(table):
            continue
        defaults = [catalog, schema][: 3 - len(parts)]
        if incomplete_ok and not all(defaults):
            continue
        name = TableName.parse(".".join(quote(part.name) for part in parts), catalog, schema)
        offsets = [part.meta for part in parts if "start" in part.meta]
        start = min((meta["start"] for meta in offsets), default=-1)
        end = max((meta["end"] for meta in offsets), default=-1)
        uses.append((table, TableUse(name, start, end, bool(table.alias))))
    return sorted(uses, key=lambda use: use[1].start)


def replace_tables(
    sql: str, replacement: Callable[[TableName], str | None], catalog: str = "", schema: str = ""
) -> str:
    """The user's own text with some table names replaced; nothing else changes.

    `replacement` gives the SQL to stand for a table, or None to leave it. An un-aliased use
    gets the table's last name as its alias, so that `orders.id` still resolves.
    """
    text = sql
    uses = table_uses(parse(sql), catalog, schema, incomplete_ok=True)
    for _, use in reversed(uses):
        new = replacement(use.name)
        if new is None:
            continue
        start, end = use.start, use.end + 1
        if start < 0:
            raise StreamSqlError(
                "INTERNAL", "a table name without a position", given=str(use.name)
            )
        text = (
            text[:start]
            + new
            + ("" if use.aliased else f" AS {quote(use.name.table)}")
            + text[end:]
        )
    return text
