"""`streamsql revise` and `dbt run-operation streamsql_revise`, on a project's own profile."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.spark

VIEW = "{{ config(materialized='materialized_view') }} select "


@pytest.fixture
def shop(project):
    """A view over a source, a view over that one, and one apart."""
    project.write("seeds/orders.csv", "id,amount\n1,10\n2,20\n")
    project.write("seeds/other.csv", "id\n1\n")
    project.write("models/lines.sql", VIEW + "id, amount from {{ ref('orders') }}")
    project.write("models/summed.sql", VIEW + "sum(amount) as total from {{ ref('lines') }}")
    project.write("models/apart.sql", VIEW + "count(*) as n from {{ ref('other') }}")
    assert project.dbt("build").ok
    project.good = project.host.engine.store.last_committed()
    project.sql("insert into lake.shop.orders values (3, 30)")
    assert project.dbt("run").ok
    return project


def total(project):
    return project.sql("select total from lake.shop.summed")


def test_a_view_that_was_spoilt_is_made_good_after_a_look_at_the_plan(shop):
    shop.sql("delete from lake.shop.lines where id < 3")
    back = ("revise", "shop.lines", "--to-barrier", str(shop.good))
    look = shop.streamsql(*back, "--dry-run", "--json")
    plan = json.loads(look.stdout)
    assert [(step["table"], step["mode"]) for step in plan["steps"]] == [
        ("lake.shop.lines", "incremental"),
        ("lake.shop.summed", "incremental"),
    ]
    assert plan["left_alone"] == ["lake.shop.apart"]
    assert len(shop.sql("select * from lake.shop.lines")) == 1, "nothing has changed yet"
    done = shop.streamsql(*back)
    assert done.exit_code == 0, done.output
    assert "lake.shop.lines: append, +1 -0" in done.stdout
    assert len(shop.sql("select * from lake.shop.lines")) == 3
    assert total(shop) == [(60,)]


def test_a_source_is_corrected_by_a_file(shop):
    file = shop.root / "correction.sql"
    file.write_text("update orders set amount = 11 where id = 1; delete from orders where id = 2")
    done = shop.streamsql("revise", "shop.orders", "--sql", str(file))
    assert done.exit_code == 0, done.output
    assert total(shop) == [(41,)]
    file.write_text("truncate table orders")
    refused = shop.streamsql("revise", "shop.orders", "--sql", str(file))
    assert refused.exit_code == 2
    assert "REVISION_IMPOSSIBLE" in refused.stderr
    assert total(shop) == [(41,)]


def test_dbt_can_revise(shop):
    shop.sql("delete from lake.shop.lines")
    arguments = json.dumps({"table": "shop.lines", "to_barrier": shop.good, "mode": "full"})
    done = shop.dbt("--no-quiet", "run-operation", "streamsql_revise", "--args", arguments)
    assert done.ok, done.text
    assert "a full revision was requested" in done.text
    assert total(shop) == [(60,)]
