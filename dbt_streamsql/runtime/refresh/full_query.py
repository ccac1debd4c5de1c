"""A view's own query over the versions that an epoch has pinned, and its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from dbt_streamsql.errors import Place, StreamSqlError
from dbt_streamsql.meta import Job
from dbt_streamsql.plan.algebra.relational import CLOCK
from dbt_streamsql.plan.algebra.schema import Column
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.quoting import TableName, quote
from dbt_streamsql.runtime.core.epoch_state import EpochState, Version, readable
from dbt_streamsql.runtime.refresh.input_changes import version_of
from dbt_streamsql.runtime.refresh.program_runner import clock_row
from dbt_streamsql.storage.columns import type_text
from dbt_streamsql.storage.inputs import inputs

Rewrite = Callable[[str, Callable[[TableName], str | None]], str]
"""Replaces table names in a query's text: (sql, replacement) -> sql."""


@dataclass(frozen=True)
class FullQuery:
    """All rows of a view. `pinned` are the versions of its inputs."""

    spark: SparkSession
    epoch: EpochState
    job: Job
    plan: CompiledPlan
    pinned: Mapping[str, Version]
    rewrite: Rewrite

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the view's table, hidden ones last."""
        return (*self.plan.columns, *self.plan.hidden)

    @property
    def sql(self) -> str:
        """The query's text."""
        if self.plan.full_sql:
            return self.plan.filled(self._input)
        return self.rewrite(self.job.sql, self._table)

    def sorted(self, sql: str) -> str:
        """A query of all rows, sorted inside files where keys are looked up."""
        if self.plan.strategy != "fold" or not self.plan.key:
            return sql
        keys = ", ".join(quote(key) for key in self.plan.key)
        return f"SELECT * FROM (\n{sql}\n) SORT BY {keys}"

    def version(self, version: Version) -> str:
        """A pinned version as a relation."""
        # A view that is always refreshed in full may use columns that a table does not show.
        if self.plan.mode == "incremental":
            return version_of(self.epoch, self.spark, version)
        return inputs.as_now(self.spark, version.at, version.meta, version.snapshot)

    def _input(self, table: str) -> str:
        if table == CLOCK:
            return str(clock_row(self.epoch.clock))
        return self.version(self.pinned[table])

    def _table(self, name: TableName) -> str | None:
        version = self.pinned.get(str(name))
        if version is None:
            return None
        return readable(self.epoch.jobs.get(str(name)), self.version(version), version.meta)

    def fits(self, table: TableName) -> bool:
        """Whether a table has the columns and types of the view."""
        stored = [(f.name, type_text(f.dataType)) for f in self.spark.table(table.sql).schema]
        return stored == [(column.name, column.type) for column in self.columns]

    def check_columns(self, built: TableName) -> None:
        """Refuse a table without the columns of the plan: they would stay empty forever.

        Error: PLAN_MISMATCH.
        """
        found = [f.name for f in self.spark.table(built.sql).schema]
        if [name.lower() for name in found] != [c.name.lower() for c in self.columns]:
            raise StreamSqlError(
                "PLAN_MISMATCH",
                "the query returned different columns than it was compiled for",
                given=", ".join(found),
                allowed=", ".join(column.name for column in self.columns),
                hint="if the columns of an input changed, write at least one row to it, "
                "then run again",
                place=Place(self.job.table),
            )
