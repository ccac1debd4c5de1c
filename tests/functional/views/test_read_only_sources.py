"""Sources that one may read and not write: no tag can be put on them."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from dbt_streamsql.storage.java import is_connect
from tests.support.catalogs import configured, own_catalog
from tests.support.rest_catalog import read_only

pytestmark = pytest.mark.spark


@pytest.fixture(params=["database", pytest.param("rest", marks=pytest.mark.processes)])
def source(request):
    """A table that others write, and its name for who may only read it."""
    return request.getfixturevalue(f"_{request.param}")


@pytest.fixture
def _database(spark, tmp_path):
    """The database of the catalog is opened for reading."""
    if is_connect(spark):
        pytest.skip("the database is on the machine of the test")
    own = own_catalog(spark, tmp_path)
    prefix = f"spark.sql.catalog.{own.name}"
    wanted = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}?open_mode=1",
        f"{prefix}.init-catalog-tables": "false",
        f"{prefix}.warehouse": str(tmp_path),
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.cache-enabled": "false",
    }
    written = SimpleNamespace(sql=own.session().sql, name=f"{own.name}.shop.orders")
    written.sql(f"CREATE NAMESPACE {own.name}.shop")
    with configured(spark, wanted):
        yield written, written.name


@pytest.fixture
def _rest(spark, schema, rest_catalog):
    """The catalog answers 403 to whatever writes."""
    written = SimpleNamespace(sql=spark.sql, name=f"owner.{schema}.orders")
    with (
        read_only(rest_catalog) as uri,
        configured(spark, rest_catalog.settings("owner") | rest_catalog.settings("reader", uri)),
    ):
        spark.sql(f"CREATE NAMESPACE owner.{schema}")
        yield written, f"reader.{schema}.orders"


def test_a_source_that_may_only_be_read_stops_no_run_and_is_told_once(
    engine, schema, source, caplog
):
    (owner, orders), view = source, f"lake.{schema}.cities"
    owner.sql(f"CREATE TABLE {owner.name} (city STRING, n INT)")
    owner.sql(f"INSERT INTO {owner.name} VALUES ('a', 1), ('b', 2)")
    with caplog.at_level(logging.WARNING):
        engine.create_materialized_view(
            view, f"SELECT city, sum(n) AS n FROM {orders} GROUP BY city"
        )
        assert engine.verify(view) == []
        for text in ("INSERT INTO {} VALUES ('a', 3)", "DELETE FROM {} WHERE n = 2"):
            owner.sql(text.format(owner.name))
            assert engine.advance().tables[view].mode == "incremental"
            assert engine.verify(view) == []
    told = [record for record in caplog.messages if orders in record]
    assert len(told) == 1
    assert "can be read but not tagged" in told[0]
    assert "history.expire.max-snapshot-age-ms: 5 days" in told[0]
    assert owner.sql(f"SELECT name FROM {owner.name}.refs").collect() == [("main",)]
