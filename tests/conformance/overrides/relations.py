"""Models: materialized views, `dbt show`, python models."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.caching.test_caching import model_sql
from dbt.tests.adapter.materialized_view.changes import MaterializedViewChanges
from dbt.tests.adapter.python_model.test_spark import (
    PANDAS_MODEL,
    PANDAS_ON_SPARK_MODEL,
    PYSPARK_MODEL,
)
from dbt.tests.util import get_connection, get_model_file, run_dbt, set_model_file


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


class Changes(MaterializedView):
    """A table property changes by `alter`, the refresh mode by `replace`."""

    @staticmethod
    def state(project, view):
        properties = project.run_sql(f"show tblproperties {view}", fetch="all")
        with get_connection(project.adapter):
            known = project.adapter.host.engine.adapter_api.configuration(view.render())
        return dict(properties).get("team"), known["refresh_mode"]

    @staticmethod
    def configure(project, view, old, new):
        text = get_model_file(project, view)
        assert old in text
        set_model_file(project, view, text.replace(old, new))

    @classmethod
    def check_start_state(cls, project, materialized_view):
        assert cls.state(project, materialized_view) == (None, "auto")

    @classmethod
    def change_config_via_alter(cls, project, materialized_view):
        new = "config(tblproperties={'team': 'blue'}, "
        cls.configure(project, materialized_view, "config(", new)

    @classmethod
    def check_state_alter_change_is_applied(cls, project, materialized_view):
        assert cls.state(project, materialized_view)[0] == "blue"

    @classmethod
    def change_config_via_replace(cls, project, materialized_view):
        cls.configure(project, materialized_view, "config(", "config(refresh_mode='full', ")

    @classmethod
    def check_state_replace_change_is_applied(cls, project, materialized_view):
        assert cls.state(project, materialized_view)[1] == "full"


class MixedChanges(Changes, MaterializedViewChanges):
    """Before a mixin, which has no fixtures of its own."""


class Cached:
    """The unit without its model: one table."""

    @pytest.fixture(scope="class")
    def models(self):
        return {"model.sql": model_sql}


class DoubleLimit:
    """The line that Spark refuses; pytest shortens the middle of the message."""

    DATABASE_ERROR_MESSAGE = "of the statement: limit"


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
    "MaterializedViewChanges": Changes,
    "MaterializedViewChangesApplyMixin": MixedChanges,
    "MaterializedViewChangesContinueMixin": MixedChanges,
    "MaterializedViewChangesFailMixin": MixedChanges,
    "BaseCachingTest": Cached,
    "BaseShowDoesNotHandleDoubleLimit": DoubleLimit,
    "BasePySparkTests": DataFrames,
}
