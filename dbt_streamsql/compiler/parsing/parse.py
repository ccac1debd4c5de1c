"""Parses text into a syntax tree."""

from __future__ import annotations

import re

from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from dbt_streamsql.compiler.parsing.dialect import parse_all, to_sql, tokens_of
from dbt_streamsql.errors import Place, StreamSqlError

_QUALIFY = re.compile(r"\bqualify\b", re.IGNORECASE)
_KEEP = "streamsql_qualify"
WRITERS = (exp.Insert, exp.MultitableInserts, exp.Merge, exp.Update, exp.Delete, exp.Create)
"""Statements that may hold queries."""

_OUTSIDE = ("order", "limit", "offset", "distinct", "with_")
"""Clauses after QUALIFY, and the CTEs, which stay outermost."""


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
            hint="materialize the model as `table`, or rewrite the marked part",
            place=Place(model, int(details[0].get("line") or 0), int(details[0].get("col") or 0)),
        ) from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise StreamSqlError(
            "SQL_UNSUPPORTED",
            "a view must be one SELECT statement",
            given=f"{len(statements)} statement(s)",
            allowed="one SELECT",
            place=Place(model),
        )
    return statements[0]


def parse_reading(sql: str) -> exp.Expr:
    """The syntax tree of one statement that reads: a SELECT, or a statement that writes its rows.

    Error: SQL_UNSUPPORTED when there is none.
    """
    try:
        return parse(sql)
    except StreamSqlError as error:
        if unreadable(error):
            raise
        found = parse_all(sql)
        if len(found) == 1 and isinstance(found[0], WRITERS):
            return found[0]
        raise


def writes(sql: str) -> bool:
    """Whether a text is a statement that writes, as far as `parse_reading` can read it."""
    try:
        return isinstance(parse_reading(sql), WRITERS)
    except StreamSqlError:
        return False


def unreadable(error: StreamSqlError) -> bool:
    """Whether `parse` could not read a text; Spark may still read it."""
    return isinstance(error.__cause__, SqlglotError)


def without_qualify(sql: str) -> str:
    """The text with each QUALIFY as a condition around its block: Spark 4.1 lacks QUALIFY."""
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
    """A text split at its semicolons, except for those in strings and comments.

    Error: SQL_UNSUPPORTED when a string or a comment is unterminated.
    """
    try:
        tokens = tokens_of(sql)
    except SqlglotError as error:
        raise StreamSqlError(
            "SQL_UNSUPPORTED", "the text cannot be split into statements", given=str(error)
        ) from error
    pieces: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [sql[piece[0].start : piece[-1].end + 1] for piece in pieces if piece]
