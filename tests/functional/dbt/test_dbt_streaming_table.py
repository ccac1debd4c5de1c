"""Streaming tables in a dbt project: declared as sources, run with the rest, seen in lineage."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

SOURCES = """
    sources:
      - name: web
        database: lake
        schema: web
        tables:
          - name: clicks
            config:
              meta:
                streamsql:
                  connector: datagen
                  options:
                    rows_per_barrier: 100
                    seed: 7
                    generate:
                      url: {choice: [a, b, c]}
            columns:
              - {name: id, data_type: bigint}
              - {name: url, data_type: string}
          - name: plain
          - name: wrong
            config: {meta: {streamsql: {connector: kafkaa, colour: red}}}
          - name: unreachable
            config: {meta: {streamsql: {connector: datagen, connection: broker}}}
"""
WIDER = SOURCES.replace(
    "                      url: {choice: [a, b, c]}\n",
    "                      url: {choice: [a, b, c]}\n                      lang: {choice: [de]}\n",
).replace(
    "              - {name: url, data_type: string}\n",
    "              - {name: url, data_type: string}\n              - {name: lang, data_type: string}\n",
)
CLICKS = """
    {{ config(materialized='streaming_table') }}
    with source as (select * from {{ source('web', 'clicks') }})
    select id, upper(url) as url from source
"""
PER_URL = """
    {{ config(materialized='materialized_view') }}
    select url, count(*) as n from {{ ref('clicks') }} group by url
"""


@pytest.fixture
def web(project):
    project.write("models/sources.yml", SOURCES)
    project.write("models/clicks.sql", CLICKS)
    project.write("models/per_url.sql", PER_URL)
    project.write(
        "tests/all_are_counted.sql",
        "select 1 from (select sum(n) as n from {{ ref('per_url') }}) t "
        "where n <> (select count(*) from {{ ref('clicks') }})",
    )
    return project


def test_each_run_takes_what_is_new_and_publishes_it_with_the_views(web):
    for run in (1, 2, 3):
        done = web.dbt("build")
        assert done.ok, done.messages
        assert web.sql("select count(*), count(distinct id) from lake.shop.clicks") == [
            (100 * run, 100 * run)
        ]
        assert web.sql("select sum(n), count(*) from lake.shop.per_url") == [(100 * run, 3)]
    assert "APPEND +100 -0" in str(web.json("run_results.json"))


def test_a_full_refresh_reads_the_stream_again(web):
    assert web.dbt("run").ok
    before = web.sql("select id, url from lake.shop.clicks order by id")
    done = web.dbt("run", "--full-refresh")
    assert done.ok, done.messages
    assert web.sql("select id, url from lake.shop.clicks order by id") == before


def test_a_failed_run_takes_nothing(web):
    assert web.dbt("build").ok
    web.write("tests/fails.sql", "select * from {{ ref('per_url') }}")
    assert not web.dbt("build").ok
    assert web.sql("select count(*) from lake.shop.clicks") == [(100,)]
    web.write("tests/fails.sql", "select 1 where false")
    assert web.dbt("build").ok
    assert web.sql("select count(*), max(id) - min(id) from lake.shop.clicks") == [(200, 199)]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("select 1 as id", "one `source(…)`"),
        ("select * from {{ source('web', 'plain') }}", "no `meta: {streamsql: …}`"),
        ("select * from {{ source('web', 'wrong') }}", "colour"),
        ("select * from {{ source('web', 'unreachable') }}", "no connection 'broker'"),
        (
            "select url, count(*) as n from {{ source('web', 'clicks') }} group by url",
            "in a materialized view that reads this table",
        ),
    ],
)
def test_a_model_that_cannot_be_is_refused_in_words(web, model, told):
    web.write("models/bad.sql", "{{ config(materialized='streaming_table') }} " + model)
    done = web.dbt("run", "-s", "bad")
    assert not done.ok
    assert told in done.messages["bad"]


def test_everything_wrong_with_the_config_is_told_at_once(web):
    web.write(
        "models/bad.sql",
        "{{ config(materialized='streaming_table', refresh_mode='full', key={'a': 1}, "
        "sequence_by=3, lateness='soon', late_data=3, on_eror='fail') }} select * from {{ source('web', 'clicks') }}",
    )
    done = web.dbt("run", "-s", "bad")
    told = done.messages["bad"]
    assert all(part in told for part in ("`refresh_mode`", "`key`", "`sequence_by`"))
    assert all(part in told for part in ("`lateness` is not a duration", "`late_data`"))
    assert "`on_eror` (did you mean `on_error`?)" in told


def test_new_columns_of_the_stream_come_into_the_table_and_its_views(web):
    everything = "{{ config(materialized='materialized_view') }} select * from {{ ref('clicks') }}"
    web.write("models/everything.sql", everything)
    model = "{{ config(materialized='streaming_table'ROOM) }} select * from "
    model += "{{ source('web', 'clicks') }}"
    web.write("models/clicks.sql", model.replace("ROOM", ""))
    assert web.dbt("build").ok
    web.write("models/sources.yml", WIDER)
    done = web.dbt("build")
    assert not done.ok
    assert "lang string is new" in done.messages["clicks"]
    assert "on_schema_change" in done.messages["clicks"]
    web.write("models/clicks.sql", model.replace("ROOM", ", on_schema_change='sync_all_columns'"))
    done = web.dbt("build")
    assert done.ok, done.messages
    counted = "select count(*), count(lang) from lake.shop."
    assert web.sql(counted + "clicks") == web.sql(counted + "everything") == [(200, 100)]


def test_the_stream_is_above_the_table_in_dbts_lineage(web):
    assert web.dbt("parse").ok
    model = web.json("manifest.json")["nodes"]["model.shop.clicks"]
    assert model["depends_on"]["nodes"] == ["source.shop.web.clicks"]
