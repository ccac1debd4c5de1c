"""Changelogs in a dbt project: the config, the macro, the call in tests, models and `dbt show`."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

VIEW = """
    {{ config(materialized='materialized_view', changelog=true) }}
    select city, sum(amount) as revenue from {{ ref('sales') }} group by city
"""
ROWS = "select city, revenue, _op from lake.shop.{} order by _barrier, _op desc, city"


def sales(project, *rows):
    text = "".join(f"{city},{amount}\n" for city, amount in rows)
    project.write("seeds/sales.csv", f"city,amount\n{text}")


@pytest.fixture
def shop(project):
    """A view with a changelog, and models that read it."""
    sales(project, ("rome", 1), ("oslo", 2))
    project.write("models/revenue.sql", VIEW)
    project.write(
        "models/moves.sql",
        "{{ config(materialized='materialized_view') }} "
        "select city, count(*) as n from {{ streamsql_changelog(ref('revenue')) }} group by city",
    )
    project.write(
        "models/copied.sql",
        "{{ config(materialized='table') }} select * from {{ streamsql_changelog(ref('revenue')) }}",
    )
    project.write(
        "tests/adds_up.sql",
        "with told as (select city, revenue, if(_op = '+', 1, -1) as w "
        "from {{ streamsql_changelog(ref('revenue')) }}) "
        "select t.city from (select city, revenue, sum(w) as w from told group by 1, 2) t "
        "full join {{ ref('revenue') }} r on r.city = t.city and r.revenue = t.revenue "
        "where coalesce(t.w, 0) <> if(r.city is null, 0, 1)",
    )
    done = project.dbt("build")
    assert done.ok, done.messages
    return project


def test_models_and_tests_read_the_changelog_of_their_own_run(shop):
    sales(shop, ("rome", 1), ("oslo", 3))
    done = shop.dbt("build")
    assert done.ok, done.messages
    changes = [("oslo", 2, "+"), ("rome", 1, "+"), ("oslo", 2, "-"), ("oslo", 3, "+")]
    assert shop.sql(ROWS.format("revenue__changelog")) == changes
    assert shop.sql(ROWS.format("copied")) == changes
    assert shop.sql("select * from lake.shop.moves order by city") == [("oslo", 3), ("rome", 1)]
    assert shop.dbt("build", "--full-refresh").ok
    assert shop.sql(ROWS.format("revenue__changelog")) == changes


def test_the_call_is_written_out_wherever_the_engine_runs_a_query(shop):
    first = shop.host.engine.store.last_committed()
    sales(shop, ("rome", 1), ("oslo", 3))
    assert shop.dbt("build").ok
    call = "streamsql_changelog('{{ ref(\"revenue\") }}', " + f"{first})"
    shop.write("models/called.sql", f"{{{{ config(materialized='table') }}}}select * from {call}")
    shop.write(
        "models/grown.sql",
        f"{{{{ config(materialized='incremental') }}}}select city, _op from {call}",
    )
    shop.write("tests/called.sql", f"select * from {call} where city <> 'oslo'")
    done = shop.dbt("build", "--select", "called", "grown")
    assert done.ok, done.messages
    assert shop.dbt("run", "--select", "grown").ok
    assert shop.sql(ROWS.format("called")) == [("oslo", 2, "-"), ("oslo", 3, "+")]
    assert shop.sql("select count(*) from lake.shop.grown") == [(4,)]
    shown = shop.dbt("show", "--output", "json", "--inline", f"select city, _op from {call}")
    assert shown.ok, shown.text + shown.error
    failed = shop.dbt("show", "--inline", f"select 1\nfrom {call[:-1]} + 1)")
    assert "FUNCTION_INVALID" in failed.text + failed.error
    assert "line 2" in failed.text + failed.error
    shop.write("models/kept.sql", f"{{{{ config(materialized='view') }}}}select * from {call}")
    failed = shop.dbt("run", "--select", "kept")
    assert "FUNCTION_INVALID" in failed.messages["kept"]


def test_the_config_is_checked_and_a_changed_one_is_an_alter(shop):
    shop.write("models/revenue.sql", VIEW.replace("true", "false"))
    shop.remove("models/moves.sql")
    shop.remove("models/copied.sql")
    shop.remove("tests/adds_up.sql")
    done = shop.dbt("run")
    assert done.ok, done.messages
    assert done.messages["revenue"] == "NOOP"
    assert "revenue__changelog" not in shop.tables()
    shop.write("models/revenue.sql", VIEW.replace("true", "'always'"))
    failed = shop.dbt("run")
    assert "`changelog` must be true or false" in failed.messages["revenue"]
    shop.write("models/revenue.sql", VIEW.replace("materialized_view", "table"))
    failed = shop.dbt("run")
    assert "only for materialized views" in failed.messages["revenue"]
