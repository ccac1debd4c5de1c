"""Sources that one may read and not write: no tag can be put on them."""

from __future__ import annotations

import logging

import pytest

from dbt_streamsql.storage.iceberg.java import is_connect
from tests.support.catalogs import own_catalog

pytestmark = pytest.mark.spark


@pytest.fixture
def owner(spark, tmp_path):
    """The session of who owns a catalog of which all others may only read the database."""
    if is_connect(spark):
        pytest.skip("the database is on the machine of the test")
    own = own_catalog(spark, tmp_path)
    session = own.session()
    session.sql(f"CREATE NAMESPACE {own.name}.shop")
    prefix = f"spark.sql.catalog.{own.name}"
    wanted = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}?open_mode=1",
        ".init-catalog-tables": "false",
        ".warehouse": str(tmp_path),
        ".jdbc.schema-version": "V1",
        ".cache-enabled": "false",
    }
    for key, value in wanted.items():
        spark.conf.set(prefix + key, value)
    session.table_name = f"{own.name}.shop.orders"
    yield session
    for key in wanted:
        spark.conf.unset(prefix + key)


def test_a_source_that_may_only_be_read_stops_no_run_and_is_told_once(
    engine, schema, owner, caplog
):
    orders, view = owner.table_name, f"lake.{schema}.cities"
    owner.sql(f"CREATE TABLE {orders} (city STRING, n INT)")
    owner.sql(f"INSERT INTO {orders} VALUES ('a', 1), ('b', 2)")
    with caplog.at_level(logging.WARNING):
        engine.create_materialized_view(
            view, f"SELECT city, sum(n) AS n FROM {orders} GROUP BY city"
        )
        assert engine.verify(view) == []
        for text in (f"INSERT INTO {orders} VALUES ('a', 3)", f"DELETE FROM {orders} WHERE n = 2"):
            owner.sql(text)
            assert engine.advance().tables[view].mode == "incremental"
            assert engine.verify(view) == []
    told = [record for record in caplog.messages if orders in record]
    assert len(told) == 1
    assert "can be read, but not tagged" in told[0]
    assert "history.expire.max-snapshot-age-ms: 5 days" in told[0]
    assert owner.sql(f"SELECT name FROM {orders}.refs").collect() == [("main",)]
