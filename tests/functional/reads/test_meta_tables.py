"""MetaService can be asked in SQL, as the design writes it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

VIEW = "{{ config(materialized='materialized_view') }} "

SEEDS_OWN = """
SELECT T.table_name
 FROM __META_JOB_SOURCE S
 JOIN __META_JOB_Sink T ON S.job_id=T.job_id
 WHERE S.table_name='Table1'
"""


@pytest.fixture
def shop(project):
    project.write("seeds/orders.csv", "id,city\n1,rome\n2,oslo\n")
    project.write(
        "models/cities.sql",
        VIEW + "select city, count(*) as n from {{ ref('orders') }} group by city",
    )
    project.write("models/rich.sql", VIEW + "select city from {{ ref('cities') }} where n > 1")
    assert project.dbt("build").ok
    return project


def test_the_query_of_the_design_works_word_for_word(shop):
    asked = SEEDS_OWN.replace("Table1", "lake.shop.orders")
    assert shop.show(asked) == [("lake.shop.cities",)]
    engine = shop.host.engine
    assert [tuple(row) for row in engine.sql(asked).collect()] == [("lake.shop.cities",)]
    assert engine.sql(SEEDS_OWN).collect() == []


def test_jobs_tables_and_versions_are_those_of_the_last_barrier(shop):
    assert shop.show("select * from __META_ETL_SOURCE order by 1") == [
        ("model.shop.cities", "lake.shop.orders"),
        ("model.shop.rich", "lake.shop.cities"),
    ]
    assert shop.show("select * from __meta_etl_sink order by 1") == [
        ("model.shop.cities", "lake.shop.cities"),
        ("model.shop.rich", "lake.shop.rich"),
    ]
    last = shop.host.engine.store.last_committed()
    assert shop.show("select * from __META_TABLE_VERSION order by 1") == [
        ("lake.shop.cities", last, "Intermediate"),
        ("lake.shop.orders", last, "Root"),
        ("lake.shop.rich", last, "Intermediate"),
    ]
    shop.remove("models/rich.sql")
    shop.host.engine.drop("lake.shop.rich")
    assert shop.show("select count(*) from __META_ETL_SINK") == [(1,)]


def test_barriers_tell_what_each_table_did_and_when(shop):
    shop.write("seeds/orders.csv", "id,city\n1,rome\n2,oslo\n3,rome\n")
    assert shop.dbt("build").ok
    newest = shop.show(
        "select t.table_name, t.state, t.rows_inserted, t.rows_deleted, "
        "t.started_at <= t.finished_at and t.finished_at <= t.written_at and t.written_at <= b.ended_at as in_order "
        "from __META_BARRIER b join __META_BARRIER_TABLE t on t.barrier = b.barrier "
        "where b.state = 'COMMIT' and b.barrier = (select max(barrier) from __META_BARRIER) "
        "order by 1",
    )
    assert newest == [
        ("lake.shop.cities", "WRITTEN", 1, 1, True),
        ("lake.shop.rich", "WRITTEN", 1, 0, True),
    ]


def test_leases_show_who_reads_what(shop):
    assert shop.show("select count(*) from __META_LEASE") == [(0,)]
    with shop.host.engine.reader() as reader:
        query = "select barrier, expires_at > current_timestamp() as lives from __META_LEASE"
        assert shop.show(query) == [(reader.barrier, True)]
    assert shop.show("select count(*) from __META_LEASE") == [(0,)]


def test_a_name_with_a_quote_stays_a_value(engine, spark, schema):
    spark.sql(f"CREATE TABLE lake.{schema}.orders (id INT)")
    odd = "model.shop.it's \\ ${x}"
    view = f"lake.{schema}.v"
    engine.create_materialized_view(view, f"SELECT id FROM lake.{schema}.orders", unique_id=odd)
    found = engine.sql(f"SELECT job_id FROM __META_ETL_SINK WHERE table_name = '{view}'")
    assert found.first()[0] == odd
