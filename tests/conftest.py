"""One Spark session and one warehouse for the whole run; a schema of its own for each test."""

from __future__ import annotations

import uuid

import pytest
from tests_support import drop_schema

from dbt_streamsql import Engine
from dbt_streamsql.runtime.session import SessionSettings, open_session

pytest_plugins = ["dbt.tests.fixtures.project"]


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory):
    """The folder of the shared warehouse."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def spark(warehouse):
    """The one embedded session."""
    # Thousands of small queries: the JVM's optimizing compiler costs more than it wins.
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    session = open_session(SessionSettings(warehouse=str(warehouse), spark_properties=quick))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def engine(spark):
    """The engine over the shared session."""
    opened = Engine.open(spark=spark)
    yield opened
    opened.close()


@pytest.fixture
def schema(spark, engine):
    """The name of a schema that exists for one test."""
    name = f"s_{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE NAMESPACE lake.{name}")
    yield name
    engine.abort()
    drop_schema(engine, name)
