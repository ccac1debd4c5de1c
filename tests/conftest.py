"""One Spark session and one warehouse for the whole run; a schema of its own for each test."""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack

import pytest
from dbt_common.tests import enable_test_caching

from dbt_streamsql import Engine
from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.tuning import Tuning
from tests.support import spark_defaults
from tests.support.catalogs import drop_schema
from tests.support.spark_way import settings
from tests.support.steps import observing
from tests.support.tuning import tuned

spark_defaults.use()
# Three quarters of what a new project costs dbt is its own macros, which are parsed once then.
enable_test_caching()

pytest_plugins = [
    "tests.support.spark_servers",
    "tests.support.kafka_broker",
    "tests.support.rest_catalog",
    "tests.support.tiers",
]


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory):
    """The folder of the shared warehouse."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def spark(warehouse):
    """The one session: embedded, unless `spark_way` is told otherwise."""
    session = open_session(settings(str(warehouse)))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def engine(spark):
    """The engine over the shared session.

    Its views are kept from changes, though their tables are small. With `STREAMSQL_COMPARED` they
    are compared with their queries wherever they may be.
    """
    compared = (
        {"comparing": 0.0} if os.environ.get("STREAMSQL_COMPARED") else {"compared_rows": -1}
    )
    opened = Engine.open(spark=spark, tuning=Tuning(**compared))
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


@pytest.fixture
def tune():
    """`tuned` until the test ends: `tune(engine, small_table=-1)`."""
    with ExitStack() as ends:
        yield lambda engine, *args, **limits: ends.enter_context(tuned(engine, *args, **limits))


@pytest.fixture
def observe():
    """`observing` until the test ends: `observe(lambda step, moment: …)`."""
    with ExitStack() as ends:
        yield lambda observer: ends.enter_context(observing(observer))
