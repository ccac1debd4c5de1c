"""What a unit leaves open to the adapter, or expects in PostgreSQL's words."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.python_model.test_spark import (
    PANDAS_MODEL,
    PANDAS_ON_SPARK_MODEL,
    PYSPARK_MODEL,
)
from dbt.tests.util import get_connection, run_dbt


class MaterializedView:
    """How to ask what a relation is and how many rows it has."""

    @staticmethod
    def query_relation_type(project: Any, relation: Any) -> str | None:
        with get_connection(project.adapter):
            found = project.adapter.list_relations_without_caching(relation.without_identifier())
        return next((str(r.type) for r in found if r.identifier == relation.identifier), None)

    @staticmethod
    def query_row_count(project: Any, relation: Any) -> int:
        return project.run_sql(f"select count(*) from {relation}", fetch="one")[0]

    @staticmethod
    def insert_record(project: Any, table: Any, record: tuple[int, int]) -> None:
        project.run_sql(f"insert into {table} values {record}")

    @staticmethod
    def refresh_materialized_view(project: Any, materialized_view: Any) -> None:
        run_dbt(["run", "--models", materialized_view.identifier])

    def test_materialized_view_full_refresh(self, project, my_materialized_view):
        # The suite looks for a message that PostgreSQL's macro logs.
        run_dbt(["run", "--models", my_materialized_view.identifier, "--full-refresh"])
        assert self.query_relation_type(project, my_materialized_view) == "materialized_view"


class DoubleLimit:
    """Spark's words for it."""

    DATABASE_ERROR_MESSAGE = "Syntax error at or near 'limit'"


class DataFrames:
    """Without Koalas, which ended with Spark 3.2."""

    @pytest.fixture(scope="class")
    def models(self):
        return {
            "pandas_df.py": PANDAS_MODEL,
            "pyspark_df.py": PYSPARK_MODEL,
            "pandas_on_spark_df.py": PANDAS_ON_SPARK_MODEL,
        }

    def test_different_dataframes(self, project):
        assert len(run_dbt(["run"])) == 3


OVERRIDES: dict[str, type] = {
    "MaterializedViewBasic": MaterializedView,
    "BaseShowDoesNotHandleDoubleLimit": DoubleLimit,
    "BasePySparkTests": DataFrames,
}
