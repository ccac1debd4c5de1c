"""A schema for the tests of a module, and the tables that end a run."""

from __future__ import annotations

import uuid

import pytest

from tests.support.catalogs import drop_schema

SUMMARY = pytest.StashKey[list[str]]()


@pytest.fixture(scope="module")
def suite_schema(spark, engine):
    """A schema with its catalog that exists for one module: a suite is played once."""
    name = f"s_{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE NAMESPACE lake.{name}")
    yield f"lake.{name}"
    engine.abort()
    drop_schema(engine, name)


@pytest.fixture(scope="session")
def tell(request):
    """Add lines to what is printed at the end of the run."""
    return request.config.stash.setdefault(SUMMARY, []).extend


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash.get(SUMMARY, []):
        terminalreporter.write_line(line)
