"""The SQL of users, with what only the engine understands written out."""

from __future__ import annotations

from dbt_streamsql.compiler.calls import changelog_calls, write_out
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime import changelog
from dbt_streamsql.runtime.context import Warehouse


def with_changelogs(warehouse: Warehouse, asked: str, sql: str) -> str:
    """`sql` with its calls of `streamsql_changelog` written out.

    `asked` is the text as the user wrote it, with the same calls, for the places of errors.
    Errors: FUNCTION_INVALID, and those of `changelog.query`.
    """
    queries = []
    for call in changelog_calls(asked):
        try:
            view = TableName.parse(call.view, warehouse.catalog)
            queries.append(changelog.query(warehouse, view, call.after, call.upto, call.mode))
        except StreamSqlError as error:
            raise error.at(call.place) from error
    return write_out(sql, queries) if queries else sql
