"""Hooks of a run read what the run has made, and what is about published tables waits for it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

KEPT = "materialized='materialized_view'"
COUNTED = "insert into lake.shop.log select '{name}', count(*) from {{{{ this }}}}"


@pytest.fixture
def shop(project):
    project.write("seeds/orders.csv", "id,city,amount\n1,rome,10\n2,oslo,7\n3,rome,1\n")
    project.write(
        "dbt_project.yml",
        """
        name: shop
        version: '1.0'
        profile: shop
        on-run-start: create table if not exists lake.shop.log (what string, n bigint)
        """,
    )
    assert project.dbt("seed").ok
    return project


def model(project, name, query, *hooks, kind=KEPT, **config):
    """A model with such post-hooks."""
    listed = ", ".join(f'"{hook}"' for hook in hooks)
    more = "".join(f", {key}={value!r}" for key, value in config.items())
    project.write(
        f"models/{name}.sql", f"{{{{ config({kind}, post_hook=[{listed}]{more}) }}}}\n{query}"
    )


def run(project, *arguments):
    done = project.dbt("run", *arguments)
    assert done.ok, (done.messages, done.error)


def log(project):
    return sorted(project.sql("select what, n from lake.shop.log"))


def counted(name):
    return COUNTED.format(name=name)


def test_a_hook_reads_the_version_that_its_run_has_made(shop):
    model(shop, "kept", "select id, amount from {{ ref('orders') }}", counted("kept"))
    run(shop)
    assert log(shop) == [("kept", 3)], "the first build"
    shop.sql("insert into lake.shop.orders values (4, 'bonn', 2), (5, 'bonn', 2)")
    run(shop)
    assert log(shop) == [("kept", 3), ("kept", 5)]
    run(shop)
    assert log(shop) == [("kept", 3), ("kept", 5), ("kept", 5)], "a run without news"


def test_hooks_of_every_statement_that_writes_rows_read_the_run_too(shop):
    model(
        shop,
        "kept",
        "select city, sum(amount) as total, avg(amount) as mean "
        "from {{ ref('orders') }} group by city",
        "create or replace table lake.shop.copied as select * from {{ this }}",
        "with c as (select * from {{ this }}) insert into lake.shop.log select city, 1 from c",
        "merge into lake.shop.log t using {{ this }} s on t.what = s.city "
        "when matched then update set n = s.total",
        "update lake.shop.log set n = n + (select count(*) from {{ this }}) where n = 7",
        "delete from lake.shop.log where n >= 11 and what in (select city from {{ this }})",
        "insert into lake.shop.log (n, what) select total, 'inserted' from {{ this }} "
        "where city = 'rome' and not exists (select 1 from lake.shop.log where what = 'rome')",
    )
    run(shop)
    assert log(shop) == [("inserted", 11), ("oslo", 9)]
    assert sorted(shop.sql("select * from lake.shop.copied")) == [
        ("oslo", 7, 7.0),
        ("rome", 11, 5.5),
    ], "without the columns of the engine"


def test_hooks_of_other_models_read_the_run_too(shop):
    model(shop, "kept", "select id from {{ ref('orders') }}")
    shop.write(
        "models/plain.sql",
        """
        {{ config(materialized='table',
          pre_hook="insert into lake.shop.log select 'pre', count(*) from {{ ref('kept') }}",
          post_hook="insert into lake.shop.log select 'post', count(*) from {{ ref('kept') }}") }}
        -- depends_on: {{ ref('kept') }}
        select 1 as a
        """,
    )
    run(shop)
    assert log(shop) == [("post", 3), ("pre", 3)]


def test_hooks_of_streams_and_wide_tables_read_the_run_and_those_of_sinks_can_wait(shop, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    shop.write(
        "models/sources.yml",
        f"""
        sources:
          - name: outside
            tables:
              - name: events
                config:
                  meta:
                    streamsql:
                      connector: files
                      format: json
                      schema: id int
                      options: {{path: '{tmp_path / "in"}'}}
        """,
    )
    model(
        shop,
        "stream",
        "select id from {{ source('outside', 'events') }}",
        counted("stream"),
        kind="materialized='streaming_table'",
    )
    model(
        shop,
        "wide",
        "insert into {{ this }} (id, amount) select id, amount from {{ ref('orders') }};",
        counted("wide"),
        kind="materialized='partial_update'",
        key="id",
    )
    delivered = "insert into lake.shop.log select 'sink', count(*) from {{ ref('stream') }}"
    model(
        shop,
        "out",
        "select id from {{ ref('stream') }}",
        delivered,
        kind="materialized='sink'",
        target={"connector": "files", "format": "json", "options": {"path": str(tmp_path / "o")}},
    )
    run(shop)
    assert log(shop) == [("sink", 2), ("stream", 2), ("wide", 3)]


def test_a_hook_after_the_commit_runs_when_the_run_is_published(shop):
    shop.write(
        "models/kept.sql",
        """
        {{ config(materialized='materialized_view', post_hook=[
          after_commit("insert into lake.shop.log select 'after', count(*) from lake.shop.kept.refs"),
          "insert into lake.shop.log select 'in', count(*) from {{ this }}"]) }}
        select id from {{ ref('orders') }}
        """,
    )
    run(shop)
    assert [name for name, _ in log(shop)] == ["after", "in"]


def test_statements_about_a_published_table_wait_for_it(shop):
    model(
        shop,
        "kept",
        "select id from {{ ref('orders') }}",
        "alter table {{ this }} set tblproperties ('owner.team' = 'sales')",
        "call lake.system.rewrite_manifests('shop.kept')",
        "create or replace view lake.shop.seen as select count(*) as n from {{ this }}",
    )
    run(shop)
    assert shop.sql("select n from lake.shop.seen") == [(3,)]
    found = dict(shop.sql("show tblproperties lake.shop.kept"))
    assert found["owner.team"] == "sales"
    shop.sql("insert into lake.shop.orders values (4, 'bonn', 2)")
    run(shop)
    assert shop.sql("select n from lake.shop.seen") == [(4,)]
    assert shop.host.engine.verify("lake.shop.kept") == []


def test_a_hook_that_waited_and_fails_fails_the_command_by_its_name(shop):
    model(
        shop,
        "kept",
        "select id from {{ ref('orders') }}",
        "alter table {{ this }} rename column nothing to something",
        "alter table {{ this }} set tblproperties ('owner.team' = 'sales')",
    )
    done = shop.dbt("run")
    assert not done.ok
    assert "HOOK_FAILED" in done.error
    assert "lake.shop.kept" in done.error
    assert shop.sql("select count(*) from lake.shop.kept") == [(3,)], "it is published"
    assert dict(shop.sql("show tblproperties lake.shop.kept"))["owner.team"] == "sales"


@pytest.mark.parametrize("policy", ["run", "passed_subgraph"])
def test_hooks_of_what_is_held_back_do_not_run(shop, policy):
    for name in ("good", "bad"):
        shop.write(
            f"models/{name}.sql",
            "{{ config(materialized='materialized_view', post_hook=after_commit("
            f"\"insert into lake.shop.log values ('{name}', 1)\")) }}}}"
            "select id from {{ ref('orders') }}",
        )
    shop.write("tests/never.sql", "select * from {{ ref('bad') }}")
    done = shop.dbt("build", "--exclude", "orders", "--vars", f"publish: {policy}")
    assert not done.ok
    assert log(shop) == ([] if policy == "run" else [("good", 1)])


@pytest.mark.parametrize("policy", ["run", "model"])
def test_a_hook_at_the_end_of_the_run_reads_what_is_published(shop, policy):
    shop.write(
        "dbt_project.yml",
        """
        name: shop
        version: '1.0'
        profile: shop
        on-run-start: create table if not exists lake.shop.log (what string, n bigint)
        on-run-end:
          - "insert into lake.shop.log select 'end', count(*) from {{ ref('kept') }}"
          - "create or replace table lake.shop.copied as select * from {{ ref('kept') }}"
        """,
    )
    model(
        shop,
        "kept",
        "select city, avg(amount) as mean from {{ ref('orders') }} group by city",
        counted("kept"),
        "alter table {{ this }} set tblproperties ('owner.team' = 'sales')",
    )
    run(shop, "--vars", f"publish: {policy}")
    assert log(shop) == [("end", 2), ("kept", 2)]
    assert sorted(shop.sql("select * from lake.shop.copied")) == [("oslo", 7.0), ("rome", 5.5)]


def test_a_hook_may_not_write_rows_of_a_maintained_table(shop):
    model(
        shop, "kept", "select id from {{ ref('orders') }}", "delete from {{ this }} where id = 1"
    )
    done = shop.dbt("run")
    assert not done.ok
    assert "a hook writes to a table that the engine maintains" in done.messages["kept"]
