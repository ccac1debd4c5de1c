"""dbt's own test suite for adapters, on the one embedded session of the test run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import dialect
import pytest
from dbt.tests.adapter.hooks import test_model_hooks as hooks

from dbt_streamsql.adapter.impl import StreamSqlAdapter

_DROP_SCHEMA = re.compile(r"\s*drop schema if exists (\w+) cascade", re.IGNORECASE)


@pytest.fixture(scope="class")
def dbt_profile_target(spark, warehouse):
    return {"type": "streamsql", "warehouse": str(warehouse), "threads": 4}


@pytest.fixture(scope="class")
def profile_user():
    """Who owns the tables: a local warehouse has no users."""
    return ""


@pytest.fixture(scope="module")
def test_data_dir():
    """The statements that the units of hooks start from."""
    return str(Path(hooks.__file__).with_name("data"))


@pytest.fixture(scope="class", autouse=True)
def folder():
    """Some units change the folder of the process."""
    before = Path.cwd()
    yield
    os.chdir(before)


@pytest.fixture(scope="class")
def project_files(project_files, project_root):
    """The project's files, in Spark's words."""
    dialect.translate_project(Path(project_root))


@pytest.fixture(scope="session", autouse=True)
def statements():
    """The statements that tests send themselves, in Spark's words."""
    patch = pytest.MonkeyPatch()
    original = StreamSqlAdapter.run_sql_for_tests

    def run(self, sql, fetch, connection):
        dropped = _DROP_SCHEMA.match(sql)
        if dropped:  # Iceberg's catalogs do not cascade; dbt's own verb does
            where = self.Relation.create(
                database=self.config.credentials.database, schema=dropped[1]
            )
            return self.drop_schema(where)
        results = [
            original(self, statement, fetch, connection)
            for statement in dialect.translate_statements(sql)
        ]
        return results[-1] if results else None

    patch.setattr(StreamSqlAdapter, "run_sql_for_tests", run)
    yield
    patch.undo()
