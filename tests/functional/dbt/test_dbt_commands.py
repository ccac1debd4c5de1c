"""What dbt's other commands and flags do here: retry, sample, unit tests, columns, python."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

TABLE = "{{ config(materialized='table') }} "


def test_retry_builds_what_failed_and_what_was_skipped_for_it(project):
    project.write("models/good.sql", TABLE + "select 1 as id")
    project.write("models/bad.sql", TABLE + "select cast('x' as int) as id from {{ ref('good') }}")
    project.write("models/after.sql", TABLE + "select * from {{ ref('bad') }}")
    assert not project.dbt("run").ok
    project.write("models/bad.sql", TABLE + "select 2 as id from {{ ref('good') }}")
    done = project.dbt("retry")
    assert done.ok, done.messages
    assert set(done.messages) == {"bad", "after"}
    assert project.sql("select * from lake.shop.after") == [(2,)]


def test_a_sample_reads_the_inputs_of_its_time_only(project):
    project.write(
        "models/events.sql",
        "{{ config(materialized='table', event_time='at') }} select * from values "
        "(1, timestamp '2020-01-01 10:00:00'), (2, timestamp '2020-01-05 10:00:00') as t(id, at)",
    )
    project.write("models/seen.sql", TABLE + "select id from {{ ref('events') }}")
    assert project.dbt("run").ok
    window = "{'start': '2020-01-01', 'end': '2020-01-02'}"
    assert project.dbt("run", "--select", "seen", "--sample", window).ok
    assert project.sql("select * from lake.shop.seen") == [(1,)]


@pytest.mark.parametrize("total", ["2.50", "3.50"])
def test_unit_tests_compare_structs_maps_arrays_and_decimals(project, total):
    project.write(
        "models/raw.sql",
        TABLE + "select 1 as id, named_struct('a', 1, 'b', 'x') as s, map('k', 1) as m, "
        "array(1, 2) as a, cast(1.25 as decimal(5,2)) as d",
    )
    project.write(
        "models/twice.sql",
        TABLE + "select id, s, m, a, cast(d * 2 as decimal(6,2)) as d from {{ ref('raw') }}",
    )
    project.write(
        "models/tests.yml",
        f"""
        unit_tests:
          - name: doubled
            model: twice
            given:
              - input: ref('raw')
                format: sql
                rows: >
                  select 7 as id, named_struct('a', 2, 'b', 'y') as s, map('z', 3) as m,
                  array(4, 5) as a, cast(1.25 as decimal(5,2)) as d
            expect:
              format: sql
              rows: >
                select 7 as id, named_struct('a', 2, 'b', 'y') as s, map('z', 3) as m,
                array(4, 5) as a, cast({total} as decimal(6,2)) as d
        """,
    )
    assert project.dbt("run").ok
    assert project.dbt("test").ok is (total == "2.50")


def test_a_macro_can_tell_the_kinds_of_columns(project):
    project.write(
        "models/kinds.sql",
        TABLE + "select 'a' as s, cast(1 as tinyint) as i, 1.5d as f, 1.25 as n, array(1) as a",
    )
    project.write(
        "macros/kinds.sql",
        """
        {% macro kinds() %}
          {%- set found = [] -%}
          {%- for c in adapter.get_columns_in_relation(ref('kinds')) -%}
            {%- do found.append([c.name, c.is_string(), c.is_integer(), c.is_float(), c.is_numeric(), c.data_type]) -%}
          {%- endfor -%}
          {% do run_query("create or replace table lake.shop.told as select " ~ adapter.streamsql_literal(found | string) ~ " as t") %}
        {% endmacro %}
        """,
    )
    settings = (project.root / "dbt_project.yml").read_text()
    project.write("dbt_project.yml", settings + "on-run-end: '{{ kinds() }}'\n")
    assert project.dbt("run").ok
    assert eval(project.sql("select t from lake.shop.told")[0][0]) == [  # noqa: S307 - ours
        ["s", True, False, False, False, "string"],
        ["i", False, True, False, False, "int"],
        ["f", False, False, True, False, "double"],
        ["n", False, False, False, True, "decimal(3,2)"],
        ["a", False, False, False, False, "array<int>"],
    ]


def test_a_python_model_may_gain_a_column(project):
    model = """
        def model(dbt, session):
            dbt.config(materialized="incremental", on_schema_change="append_new_columns")
            return session.sql("QUERY")
        """
    project.write("models/grown.py", model.replace("QUERY", "select 1 as id"))
    assert project.dbt("run").ok
    project.write("models/grown.py", model.replace("QUERY", "select 2 as id, 'x' as `new one`"))
    done = project.dbt("run")
    assert done.ok, done.messages
    found = project.sql("select * from lake.shop.grown order by id")
    assert found == [(1, None), (2, "x")]


def test_a_project_with_exports_of_saved_queries_is_parsed_and_built(project):
    project.write("seeds/orders.csv", "id,at,amount\n1,2026-01-02,10\n2,2026-01-03,5\n")
    project.write(
        "models/days.sql",
        "{{ config(materialized='table') }} "
        "select explode(sequence(date '2026-01-01', date '2026-01-09')) as day",
    )
    project.write(
        "models/kept.sql",
        "{{ config(materialized='materialized_view') }} "
        "select id, cast(at as date) as at, amount from {{ ref('orders') }}",
    )
    project.write(
        "models/models.yml",
        """
        models:
          - name: days
            time_spine: {standard_granularity_column: day}
            columns: [{name: day, granularity: day}]
        semantic_models:
          - name: sold
            model: ref('kept')
            defaults: {agg_time_dimension: at}
            entities: [{name: id, type: primary}]
            dimensions: [{name: at, type: time, type_params: {time_granularity: day}}]
            measures: [{name: amount, agg: sum}]
        metrics:
          - name: amount
            label: Amount
            type: simple
            type_params: {measure: amount}
        saved_queries:
          - name: by_day
            query_params: {metrics: [amount], group_by: ["TimeDimension('id__at', 'day')"]}
            exports:
              - {name: amount_by_day, config: {export_as: table}}
              - {name: amount_there, config: {export_as: table, schema: elsewhere, alias: there}}
        """,
    )
    done = project.dbt("build")
    assert done.ok, (done.messages, done.error)
    [found] = project.json("manifest.json")["saved_queries"].values()
    places = [
        (each["config"]["database"], each["config"]["schema_name"]) for each in found["exports"]
    ]
    assert places == [("lake", "shop"), ("lake", "elsewhere")]
