"""`streamsql drop`: a table whose model is gone ends, and no other."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

VIEW = "{{ config(materialized='materialized_view') }} select "


@pytest.fixture
def shop(project):
    """A view over a seed, and one over that view."""
    project.write("seeds/orders.csv", "id,amount\n1,10\n2,20\n")
    project.write("models/lines.sql", VIEW + "id, amount from {{ ref('orders') }}")
    project.write("models/summed.sql", VIEW + "sum(amount) as total from {{ ref('lines') }}")
    assert project.dbt("build").ok
    return project


def test_a_view_that_is_read_is_not_dropped(shop):
    refused = shop.streamsql("drop", "shop.lines")
    assert refused.exit_code == 2
    assert "STILL_READ" in refused.stderr
    assert "lake.shop.summed" in refused.stderr
    assert shop.sql("select total from lake.shop.summed") == [(30,)]


def test_a_view_whose_model_is_removed_goes_on_until_it_is_dropped(shop):
    shop.remove("models/summed.sql")
    shop.sql("insert into lake.shop.orders values (3, 30)")
    assert shop.streamsql("run", "--once").exit_code == 0
    done = shop.streamsql("drop", "shop.summed")
    assert done.exit_code == 0, done.output
    assert "summed" not in shop.tables()
    assert "summed" not in shop.streamsql("topology").stdout
    assert shop.dbt("run").ok


def test_a_table_may_stay_as_a_plain_one(shop):
    assert shop.streamsql("drop", "shop.summed", "--keep-table").exit_code == 0
    assert shop.sql("select total from lake.shop.summed") == [(30,)]
    assert shop.streamsql("drop", "shop.summed").exit_code == 2, "nobody maintains it any more"
