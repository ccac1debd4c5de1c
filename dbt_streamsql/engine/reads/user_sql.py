"""The SQL of users, with the syntax expanded that only the engine understands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from pyspark.sql import SparkSession

from dbt_streamsql.compiler.parsing.changelog_function import (
    changelog_calls,
    refuse_calls,
    write_out,
)
from dbt_streamsql.compiler.parsing.names import replace_tables
from dbt_streamsql.compiler.parsing.parse import without_qualify
from dbt_streamsql.compiler.parsing.sql_functions import Function, expand
from dbt_streamsql.compiler.parsing.ttl_hints import without_ttl_hints
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore
from dbt_streamsql.meta.inspect import system_tables as meta_tables
from dbt_streamsql.meta.inspect.system_tables import PREFIX, MetaTable
from dbt_streamsql.quoting import TableName, literal, quote
from dbt_streamsql.runtime.changelog import changelog_query
from dbt_streamsql.runtime.core.epoch_state import EpochState, Warehouse
from dbt_streamsql.storage.inputs import inputs
from dbt_streamsql.storage.tables import information_schema, sql_functions


def expanded(spark: SparkSession, sql: str) -> str:
    """A query with stored functions and QUALIFY expanded, and without STATE_TTL hints: SQL that
    Spark itself can read.

    Errors: FUNCTION_INVALID, CYCLE.
    """

    def find(name: TableName) -> Function | None:
        text = sql_functions.stored(spark, name)
        return Function.from_json(text) if text is not None else None

    return without_qualify(expand(without_ttl_hints(sql), find))


def expanded_to_store(spark: SparkSession, sql: str) -> str:
    """`expanded`, for a query that a definition stores. Error: FUNCTION_INVALID when it calls
    functions that only readers can use."""
    refuse_calls(sql, "a view")
    return expanded(spark, sql)


def has_own_tables(sql: str) -> bool:
    """Whether a text may name tables that only the engine knows."""
    return PREFIX in sql.upper() or information_schema.SCHEMA in sql.lower()


def written_out(
    warehouse: Warehouse, asked: str, sql: str, epoch: EpochState | None = None
) -> str:
    """`sql` with everything expanded that Spark does not know: calls of `streamsql_changelog`,
    MetaService's own tables, and the `information_schema`, with what `epoch` has staged.

    `asked` is the text as the user wrote it, with the same calls, for error positions.
    Errors: FUNCTION_INVALID, and those of `changelog.query`.
    """
    sql = _with_own_tables(warehouse, sql, epoch)
    queries = []
    for call in changelog_calls(asked):
        try:
            view = TableName.parse(call.view, warehouse.catalog)
            queries.append(
                changelog_query.query(warehouse, view, call.after, call.upto, call.mode)
            )
        except StreamSqlError as error:
            raise error.at(call.place) from error
    return write_out(sql, queries) if queries else sql


def of_meta_table(store: MetaStore, table: MetaTable) -> str:
    """The current rows of one of MetaService's tables: SQL that may follow FROM."""
    return _values(table.columns, table.rows(store))


def _with_own_tables(warehouse: Warehouse, sql: str, epoch: EpochState | None) -> str:
    if not has_own_tables(sql):
        return sql

    @cache
    def catalog(name: str) -> information_schema.Catalog:
        staged = epoch.staged if epoch is not None else {}
        jobs = epoch.jobs if epoch is not None else warehouse.store.jobs()
        return information_schema.Catalog(
            warehouse.sessions.main,
            name,
            frozenset(jobs),
            {
                TableName.parse(table): inputs.version(version.at, version.snapshot)
                for table, version in staged.items()
            },
        )

    @cache
    def chosen(name: TableName) -> str | None:
        table = meta_tables.find(name.table)
        if table is not None:
            return of_meta_table(warehouse.store, table)
        view = information_schema.find(name)
        if view is None or catalog(name.catalog).has_its_own:
            return None
        return _values(view.columns, view.rows(catalog(name.catalog)))

    # MetaService's tables belong to no schema, but a schema may hold views of that name.
    return replace_tables(sql, chosen, warehouse.catalog, PREFIX)


def _values(columns: Sequence[tuple[str, str]], found: Iterable[tuple[Any, ...]]) -> str:
    """Rows as SQL that may follow FROM."""
    rows = [tuple(map(_constant, row)) for row in found]
    given = [f"({', '.join(row)})" for row in rows] or [f"({', '.join(['NULL'] * len(columns))})"]
    names = ", ".join(quote(name) for name, _ in columns)
    typed = ", ".join(f"{_typed(name, kind)} AS {quote(name)}" for name, kind in columns)
    where = "" if rows else " WHERE false"
    return f"(SELECT {typed} FROM VALUES {', '.join(given)} AS _m({names}){where})"


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
