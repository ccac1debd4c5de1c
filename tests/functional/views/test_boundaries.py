"""Boundaries: two parts of one warehouse, each with its own barriers and its own runner."""

from __future__ import annotations

import pytest

from dbt_streamsql import Engine
from dbt_streamsql.errors import StreamSqlError
from tests.support.catalogs import own_catalog

pytestmark = pytest.mark.spark


@pytest.fixture
def teams(spark, tmp_path_factory):
    """Two engines over one catalog with a table of orders, in a boundary each."""
    folder = tmp_path_factory.mktemp("teams")
    own = own_catalog(spark, folder)
    base = f"{own.name}.shop"
    session = own.session()
    session.sql(f"CREATE NAMESPACE {base}")
    session.sql(f"CREATE TABLE {base}.orders (id INT, amount BIGINT) USING iceberg")
    session.sql(f"INSERT INTO {base}.orders VALUES (1, 10)")
    opened = [
        Engine.open(spark=own.session(), catalog=own.name, boundary=name)
        for name in ("sales", "stock")
    ]
    yield base, *opened
    for engine in opened:
        engine.close()


def total(base):
    return f"SELECT sum(amount) AS total FROM {base}.orders"


def rows(engine, table):
    return [tuple(row) for row in engine.sql(f"SELECT * FROM {table}").collect()]


def test_a_run_of_one_boundary_does_not_wait_for_that_of_another(teams):
    base, sales, stock = teams
    sales.begin()
    sales.create_materialized_view(f"{base}.sold", total(base))
    report = stock.create_materialized_view(f"{base}.counted", total(base).replace("sum", "count"))
    assert report.barrier == 1, "published while the other run is open"
    assert rows(stock, f"{base}.counted") == [(1,)]
    stock.spark.sql(f"INSERT INTO {base}.orders VALUES (2, 20)")
    assert stock.advance().barrier == 2
    assert sales.publish().barrier == 1, "barriers are counted apart"
    assert rows(sales, f"{base}.sold") == [(10,)]


def test_what_one_boundary_has_staged_is_not_swept_by_another(teams):
    base, sales, stock = teams
    sales.begin()
    sales.create_materialized_view(f"{base}.sold", total(base))
    stock.create_materialized_view(f"{base}.counted", total(base))
    stock.sweep()
    sales.publish()
    assert rows(sales, f"{base}.sold") == [(10,)]


def test_a_view_of_another_boundary_is_read_as_it_was_published(teams):
    base, sales, stock = teams
    sales.create_materialized_view(f"{base}.sold", total(base))
    stock.create_materialized_view(f"{base}.twice", f"SELECT total * 2 AS t FROM {base}.sold")
    sales.spark.sql(f"INSERT INTO {base}.orders VALUES (2, 20)")
    sales.begin()
    sales.create_materialized_view(f"{base}.sold", total(base))
    stock.advance()
    assert rows(stock, f"{base}.twice") == [(20,)], "the other run is not published yet"
    sales.publish()
    report = stock.advance()
    assert rows(stock, f"{base}.twice") == [(60,)]
    assert report.tables[f"{base}.twice"].mode == "incremental"
    assert stock.verify(f"{base}.twice") == []


def test_a_table_has_one_writer_in_all_boundaries(teams):
    base, sales, stock = teams
    sales.create_materialized_view(f"{base}.sold", total(base))
    with pytest.raises(StreamSqlError) as refused:
        stock.create_materialized_view(f"{base}.sold", total(base))
    assert refused.value.code == "DUPLICATE_WRITER"
    assert rows(sales, f"{base}.sold") == [(10,)]


def test_the_columns_of_a_view_of_another_boundary_are_those_of_its_query(teams):
    base, sales, stock = teams
    sales.create_materialized_view(f"{base}.sold", total(base))
    assert len(sales.spark.table(f"{base}.sold").columns) > 1, "it has columns of the engine"
    stock.create_materialized_view(f"{base}.same", f"SELECT * FROM {base}.sold")
    assert rows(stock, f"{base}.same") == rows(stock, f"{base}.sold") == [(10,)]


def test_targets_of_a_project_run_its_boundaries(project):
    """By two targets of one profile; each knows only its own models."""
    import yaml

    profiles = yaml.safe_load((project.root / "profiles.yml").read_text())
    outputs = profiles["shop"]["outputs"]
    outputs["stock"] = {**outputs["dev"], "boundary": "stock"}
    (project.root / "profiles.yml").write_text(yaml.safe_dump(profiles))
    project.write(
        "models/sold.sql", "{{ config(materialized='materialized_view') }} select 1 as a"
    )
    project.write(
        "models/stock/kept.sql",
        "{{ config(materialized='materialized_view') }} select a + 1 as b from {{ ref('sold') }}",
    )
    assert project.dbt("run", "--exclude", "kept").ok
    assert project.dbt("run", "--target", "stock", "--select", "kept").ok
    assert project.sql("select * from lake.shop.kept") == [(2,)]
    stores = {path.name for path in (project.root / "warehouse").glob("*.db")}
    assert {"streamsql.db", "streamsql-stock.db"} <= stores


@pytest.mark.parametrize(
    ("name", "meta"), [("Not This", None), ("a-b", None), ("stock", "http://127.0.0.1:8123")]
)
def test_a_boundary_that_cannot_be_is_refused(spark, name, meta):
    with pytest.raises(StreamSqlError) as refused:
        Engine.open(spark=spark, boundary=name, meta=meta)
    assert refused.value.code == "CONFIG_INVALID"
