"""What is dropped, or has failed, leaves nothing in the warehouse."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

KEPT = "{{ config(materialized='materialized_view') }} "
TABLE = "{{ config(materialized='table') }} "
DROP = """
{% macro drop(name, schema='shop', type='table') %}
  {% do adapter.drop_relation(api.Relation.create(
    database='lake', schema=schema, identifier=name, type=type)) %}
{% endmacro %}
{% macro make_beside() %}
  {% do run_query('create table lake.beside as select 1 as id') %}
  {% do drop('beside', none) %}
{% endmacro %}
"""


@pytest.fixture
def shop(project):
    project.write("seeds/orders.csv", "id,amount\n1,10\n2,20\n")
    assert project.dbt("seed").ok
    return project


def folders(shop):
    within = (shop.root / "warehouse").rglob("*")
    return {at.name.split("-")[0] for at in within if at.is_dir()} - {"data", "metadata"}


def test_a_dropped_table_leaves_no_folder(shop):
    shop.write("macros/drop.sql", DROP)
    shop.write("models/kept.sql", KEPT + "select id from {{ ref('orders') }}")
    shop.write("models/plain.sql", TABLE + "select 1 as id")
    assert shop.dbt("run").ok
    assert {"orders", "kept", "plain"} <= folders(shop)
    assert shop.dbt("run-operation", "drop", "--args", "{name: plain}").ok
    kept = "{name: kept, type: materialized_view}"
    assert shop.dbt("run-operation", "drop", "--args", kept).ok
    assert shop.dbt("run-operation", "make_beside").ok
    assert {"kept", "plain", "beside"} & folders(shop) == set()
    assert shop.sql("select count(*) from lake.shop.orders") == [(2,)]


def test_what_a_failed_run_has_made_is_gone_after_the_next(shop):
    shop.write("models/kept.sql", KEPT + "select id from {{ ref('orders') }}")
    shop.write("models/wrong.sql", KEPT + "select 1 / (id - 1) as x from {{ ref('kept') }}")
    shop.write("models/plain.sql", TABLE + "select 1 / (id - 1) as x from {{ ref('orders') }}")
    assert not shop.dbt("run").ok
    for name in ("kept", "wrong", "plain"):
        shop.remove(f"models/{name}.sql")
    shop.write("models/other.sql", KEPT + "select 1 as id")
    assert shop.dbt("run").ok
    assert shop.tables() == {"orders", "other"}
    assert folders(shop) - {"shop", "spark", "__streamsql_staging"} == {"orders", "other"}
