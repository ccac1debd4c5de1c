"""The SQL of users, with what only the engine understands written out."""

from __future__ import annotations

from typing import Any

from dbt_streamsql.compiler.calls import changelog_calls, write_out
from dbt_streamsql.compiler.names import replace_tables
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore
from dbt_streamsql.meta.tables import PREFIX, MetaTable, find
from dbt_streamsql.quoting import TableName, literal, quote
from dbt_streamsql.runtime import changelog
from dbt_streamsql.runtime.context import Warehouse


def written_out(warehouse: Warehouse, asked: str, sql: str) -> str:
    """`sql` with its calls of `streamsql_changelog` and MetaService's own tables written out.

    `asked` is the text as the user wrote it, with the same calls, for the places of errors.
    Errors: FUNCTION_INVALID, and those of `changelog.query`.
    """
    sql = _with_meta_tables(warehouse, sql)
    queries = []
    for call in changelog_calls(asked):
        try:
            view = TableName.parse(call.view, warehouse.catalog)
            queries.append(changelog.query(warehouse, view, call.after, call.upto, call.mode))
        except StreamSqlError as error:
            raise error.at(call.place) from error
    return write_out(sql, queries) if queries else sql


def of_meta_table(store: MetaStore, table: MetaTable) -> str:
    """The rows of one of MetaService's tables, as they are now: SQL that may follow FROM."""
    rows = [tuple(map(_constant, row)) for row in table.rows(store)]
    given = [f"({', '.join(row)})" for row in rows] or [
        f"({', '.join(['NULL'] * len(table.columns))})"
    ]
    names = ", ".join(quote(name) for name, _ in table.columns)
    columns = ", ".join(f"{_typed(name, kind)} AS {quote(name)}" for name, kind in table.columns)
    where = "" if rows else " WHERE false"
    return f"(SELECT {columns} FROM VALUES {', '.join(given)} AS _m({names}){where})"


def _with_meta_tables(warehouse: Warehouse, sql: str) -> str:
    if PREFIX not in sql.upper():
        return sql

    def chosen(name: TableName) -> str | None:
        table = find(name.table)
        return of_meta_table(warehouse.store, table) if table is not None else None

    # They belong to no schema, but a schema may hold views of that name.
    return replace_tables(sql, chosen, warehouse.catalog, PREFIX)


def _typed(name: str, kind: str) -> str:
    if kind == "timestamp":
        return f"timestamp_micros({quote(name)})"
    return f"CAST({quote(name)} AS {kind})"


def _constant(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{round(value * 1_000_000)}L"
    return f"{value}L" if isinstance(value, int) else literal(value)
