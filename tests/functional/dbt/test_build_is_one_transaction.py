"""Readers see a whole `dbt build` or nothing of it; `publish` says how much of a failed one."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

VIEW = "{{ config(materialized='materialized_view') }} "


@pytest.fixture
def shop(project):
    """Two branches over one seed: by city (and a view over that), and a count."""
    project.write("seeds/orders.csv", "id,city,amount\n1,rome,10\n")
    project.write(
        "models/cities.sql",
        VIEW + "select city, sum(amount) as total from {{ ref('orders') }} group by city",
    )
    project.write(
        "models/rich.sql", VIEW + "select city from {{ ref('cities') }} where total >= 10"
    )
    project.write("models/counted.sql", VIEW + "select count(*) as n from {{ ref('orders') }}")
    assert project.dbt("build").ok
    return project


def orders(project, *rows):
    text = "".join(f"{number},{city},{amount}\n" for number, (city, amount) in enumerate(rows))
    project.write("seeds/orders.csv", f"id,city,amount\n{text}")


def check(project, name, query, **config):
    options = ", ".join(f"{key}={value!r}" for key, value in config.items())
    project.write(f"tests/{name}.sql", f"{{{{ config({options}) }}}}{query}" if config else query)


def published(project):
    """What a session sees that knows nothing of barriers."""
    return (
        sorted(project.sql("select city, total from lake.shop.cities")),
        sorted(project.sql("select city from lake.shop.rich")),
        project.sql("select n from lake.shop.counted"),
    )


BEFORE = ([("rome", 10)], [("rome",)], [(1,)])
AFTER = ([("oslo", -5), ("rome", 10)], [("rome",)], [(2,)])
NEGATIVE = "select * from {{ ref('cities') }} where total < 0"


def test_a_failed_test_holds_the_whole_run_back_and_leaves_it_to_be_looked_at(shop):
    check(shop, "no_debts", NEGATIVE)
    orders(shop, ("rome", 10), ("oslo", -5))
    done = shop.dbt("build")
    assert not done.ok
    assert done.statuses["no_debts"] == "fail", "the test has read what was staged"
    assert done.statuses["counted"] == "success"
    assert "Nothing from this run is published, because these failed: no_debts" in done.text
    assert published(shop) == BEFORE
    query = "select city, total from lake.shop.cities order by city"
    look = ("--vars", "consistency: read_uncommitted")
    assert shop.dbt("show", "--inline", query, *look).rows == [("oslo", -5), ("rome", 10)]
    assert shop.dbt("show", "--inline", query).rows == [("rome", 10)]
    shop.remove("tests/no_debts.sql")
    assert shop.dbt("build").ok
    assert published(shop) == AFTER


def test_a_run_that_was_held_back_is_undone_by_the_next_one(shop):
    check(shop, "no_debts", NEGATIVE)
    orders(shop, ("rome", 10), ("oslo", -5))
    assert not shop.dbt("build").ok
    orders(shop, ("rome", 10))
    done = shop.dbt("build")
    assert done.ok, done.messages
    assert published(shop) == BEFORE
    store = shop.host.engine.store
    assert store.unfinished() == []
    assert shop.host.engine.sweep() == 0, "nothing is left of it"


def test_a_new_view_of_a_run_that_failed_does_not_appear(shop):
    shop.write("models/added.sql", VIEW + "select id from {{ ref('orders') }}")
    check(shop, "never", "select 1 from {{ ref('added') }}")
    assert not shop.dbt("build").ok
    assert "added" not in shop.tables()
    shop.remove("tests/never.sql")
    assert shop.dbt("build").ok
    assert shop.sql("select * from lake.shop.added") == [(1,)]


def test_a_test_that_only_warns_holds_nothing_back(shop):
    check(shop, "no_debts", NEGATIVE, severity="warn")
    orders(shop, ("rome", 10), ("oslo", -5))
    done = shop.dbt("build")
    assert done.ok
    assert done.statuses["no_debts"] == "warn"
    assert published(shop) == AFTER


def test_a_model_that_fails_holds_the_run_back_too(shop):
    shop.write(
        "models/broken.sql",
        "{{ config(materialized='table') }} select raise_error('no') as a from {{ ref('orders') }}",
    )
    orders(shop, ("rome", 10), ("oslo", -5))
    done = shop.dbt("build")
    assert done.statuses["broken"] == "error"
    assert published(shop) == BEFORE
    shop.remove("models/broken.sql")
    assert shop.dbt("run").ok
    assert published(shop) == AFTER


def test_the_passed_subgraph_is_published_without_the_cone_of_what_failed(shop):
    check(shop, "no_debts", NEGATIVE)
    orders(shop, ("rome", 10), ("oslo", -5))
    done = shop.dbt("build", "--vars", "publish: passed_subgraph")
    assert not done.ok
    assert "Not published because of failures: lake.shop.cities" in done.text
    cities, rich, _ = BEFORE
    assert published(shop) == (cities, rich, [(2,)])
    shop.remove("tests/no_debts.sql")
    assert shop.dbt("build", "--vars", "publish: passed_subgraph").ok
    assert published(shop) == AFTER
    for name in ("cities", "rich", "counted"):
        assert shop.host.engine.verify(f"lake.shop.{name}") == []


def test_each_view_can_be_published_as_soon_as_it_is_built(shop):
    check(shop, "no_debts", NEGATIVE)
    orders(shop, ("rome", 10), ("oslo", -5))
    assert not shop.dbt("build", "--vars", "publish: model").ok
    cities, _, counted = AFTER
    assert published(shop) == (cities, [("rome",)], counted)


def test_an_unknown_policy_is_refused_before_anything_runs(shop):
    done = shop.dbt("build", "--vars", "publish: sometimes")
    assert not done.ok
    assert "passed_subgraph" in str(done.messages)
    assert published(shop) == BEFORE


RAISING = VIEW + "select raise_error('no') as a from {{ ref('orders') }}"


def test_a_retry_brings_what_was_undone_with_what_had_failed(shop):
    shop.write("models/broken.sql", RAISING)
    shop.write(
        "models/plain.sql",
        "{{ config(materialized='table') }} select count(*) as n from {{ ref('cities') }}",
    )
    orders(shop, ("rome", 10), ("oslo", -5))
    assert shop.dbt("seed").ok
    done = shop.dbt("run", "-s", "cities", "plain", "broken")
    assert not done.ok
    assert "`dbt retry` rebuilds these in addition to what failed: cities" in done.text
    shop.write("models/broken.sql", VIEW + "select 1 as a from {{ ref('orders') }}")
    done = shop.dbt("retry")
    assert done.ok, done.messages
    assert set(done.messages) == {"broken", "cities", "plain"}, "and what has read what was undone"
    assert sorted(shop.sql("select city, total from lake.shop.cities")) == AFTER[0]
    assert shop.sql("select count(*) from lake.shop.broken") == [(2,)]
    assert shop.dbt("retry").messages == {}, "nothing is left"


def test_a_retry_that_fails_again_can_be_retried(shop):
    shop.write("models/broken.sql", RAISING)
    orders(shop, ("rome", 10), ("oslo", -5))
    assert not shop.dbt("build").ok
    assert not shop.dbt("retry").ok
    assert published(shop) == BEFORE
    shop.write("models/broken.sql", VIEW + "select 1 as a from {{ ref('orders') }}")
    assert shop.dbt("retry").ok
    assert published(shop) == AFTER


@pytest.mark.parametrize("policy", ["run", "passed_subgraph"])
def test_a_retry_of_a_failed_test_builds_the_model_that_it_looks_at(shop, policy):
    check(shop, "no_debts", NEGATIVE)
    check(shop, "fine", "select * from {{ ref('cities') }} where city is null")
    orders(shop, ("rome", 10), ("oslo", -5))
    assert not shop.dbt("build", "--vars", f"publish: {policy}").ok
    check(shop, "no_debts", NEGATIVE + " and city = 'bonn'")
    done = shop.dbt("retry")
    assert done.ok, done.messages
    assert {"cities", "rich", "no_debts", "fine"} <= set(done.messages)
    assert ("counted" in done.messages) == (policy == "run"), "only what was undone"
    assert published(shop) == AFTER


def test_nothing_is_retried_that_was_published(shop):
    shop.write("models/broken.sql", RAISING)
    assert not shop.dbt("build", "--vars", "publish: model").ok
    assert set(shop.dbt("retry").messages) == {"broken"}
