"""Jobs with plans that the real compiler made, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import duckdb

from dbt_streamsql.compiler.compile import compile_view
from dbt_streamsql.meta import Job
from dbt_streamsql.plan.algebra.catalog import TableInfo
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.plan.definition.stored_part import STATE_TABLE, StoredPart
from dbt_streamsql.quoting import TableName
from tests.differential.duck_catalog import DuckCatalog

Columns = Mapping[str, Mapping[str, str]]
"""The columns of each table, with their types."""


def compiled(sql: str, tables: Columns, table: str) -> CompiledPlan:
    """The plan of a query over empty tables."""
    known = {
        name: TableInfo(TableName.parse(name), tuple(Column(*each) for each in columns.items()))
        for name, columns in tables.items()
    }
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS lake")
        for name, columns in tables.items():
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name.rpartition('.')[0]}")
            connection.execute(
                f"CREATE TABLE {name} ({', '.join(map(' '.join, columns.items()))})"
            )
        return compile_view(sql, DuckCatalog(connection, known), table=table)


def with_state_table(plan: CompiledPlan, operator: int) -> tuple[CompiledPlan, str]:
    """The plan with the rows of one operator in a state table, and its name."""
    name = f"{plan.table.rpartition('.')[0]}.{STATE_TABLE}1"
    part = StoredPart("1", (operator,), "", plan.tables, name)
    return replace(plan, parts=(part,)), name


def planned(job: Job, plan: CompiledPlan) -> Job:
    """The job with that plan."""
    return replace(job, sql=plan.sql, plan={"plan": json.loads(plan.to_stored())})
