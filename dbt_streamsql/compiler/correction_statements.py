"""Corrections of a table: INSERT, UPDATE, DELETE and MERGE, redirected to a branch of it."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dbt_streamsql.compiler.parsing.names import table_uses
from dbt_streamsql.compiler.parsing.parse import statements
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName, quote

_ALLOWED = (exp.Insert, exp.Update, exp.Delete, exp.Merge)


def correction(text: str, table: TableName, branch: str) -> list[str]:
    """The statements of a text, each with `branch` (SQL) in place of every use of `table`.

    So a statement reads the table as the statements before it have left it.
    Error: REVISION_IMPOSSIBLE when a statement does not change rows of the table.
    """
    found = [_turned(statement, table, branch) for statement in statements(text)]
    if not found:
        raise _refused(table, "no statement")
    return found


def _turned(statement: str, table: TableName, branch: str) -> str:
    try:
        tree = sqlglot.parse_one(statement, dialect="spark")
    except SqlglotError as error:
        raise _refused(table, str(error).splitlines()[0]) from error
    target = tree.find(exp.Table) if isinstance(tree, _ALLOWED) else None
    uses = table_uses(tree, table.catalog, table.schema)
    if target is None or not any(at is target and use.name == table for at, use in uses):
        raise _refused(table, statement.strip().splitlines()[0])
    text = statement
    for at, use in reversed(uses):
        if use.name != table:
            continue
        # An INSERT has no alias for its target.
        named = use.aliased or (at is target and isinstance(tree, exp.Insert))
        alias = "" if named else f" AS {quote(table.table)}"
        text = text[: use.start] + branch + alias + text[use.end + 1 :]
    return text


def _refused(table: TableName, given: str) -> StreamSqlError:
    return StreamSqlError(
        "REVISION_IMPOSSIBLE",
        f"the SQL does not correct the rows of {table}",
        given=given,
        allowed=f"INSERT, UPDATE, DELETE or MERGE statements whose target is {table}",
    )
