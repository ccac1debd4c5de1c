"""dbt's own test suite for adapters, on the one embedded session of the test run."""

from __future__ import annotations

import getpass
import os
import re
import sys
from pathlib import Path

import pytest
from dbt.tests import util
from dbt.tests.fixtures.project import *  # noqa: F403 - every fixture of dbt's suite

from dbt_streamsql.adapter.impl import StreamSqlAdapter
from tests.conformance import dialect, tally
from tests.support import spark_way, stopped_clock

pytest.register_assert_rewrite("tests.conformance.overrides")
stopped_clock.spare_event_loops()

_DROP_SCHEMA = re.compile(r"\s*drop schema if exists (\w+) cascade", re.IGNORECASE)
_MATERIALIZED_VIEW = re.compile(
    r"\s*create materialized view (\S+) as \((.*)\)\s*", re.IGNORECASE | re.DOTALL
)


@pytest.fixture(scope="class")
def dbt_profile_target(spark, warehouse):
    return {"type": "streamsql", "warehouse": str(warehouse), "threads": 4, **spark_way.profile()}


@pytest.fixture(scope="class")
def profile_user():
    """Who owns the tables of a local warehouse: the user of the process."""
    return getpass.getuser()


@pytest.fixture(scope="class", autouse=True)
def folder():
    """Some units change the folder of the process."""
    before = Path.cwd()
    yield
    os.chdir(before)


@pytest.fixture(scope="module", autouse=True)
def files():
    """The files that units write, in Spark's words."""
    patch = pytest.MonkeyPatch()
    original = util.write_file

    def write(contents, *paths):
        original(dialect.translate_file(contents, str(paths[-1])), *paths)

    for name, module in list(sys.modules.items()):
        if name.startswith("dbt.tests") and getattr(module, "write_file", None) is original:
            patch.setattr(module, "write_file", write)
    yield
    patch.undo()


@pytest.fixture(scope="module", autouse=True)
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
        if view := _MATERIALIZED_VIEW.fullmatch(sql):  # Spark has no statement for it
            return self.host.engine.create_materialized_view(*view.groups())
        results = [
            original(self, statement, fetch, connection)
            for statement in dialect.translate_statements(sql)
        ]
        return results[-1] if results else None

    patch.setattr(StreamSqlAdapter, "run_sql_for_tests", run)
    yield
    patch.undo()


def pytest_terminal_summary(terminalreporter):
    """Units by group, where the run had any."""
    found = tally.outcomes(terminalreporter.stats)
    if found:
        terminalreporter.section("dbt's suite for adapters")
        for line in tally.lines(found):
            terminalreporter.write_line(line)
