"""Macros of packages find what they ask for without any configuration of the project."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

KEPT = "{{ config(materialized='materialized_view') }} "
TABLE = "{{ config(materialized='table') }} "

RELATIONS = """
{% macro relations_like(schema, table, exclude='') %}
  {{ return(adapter.dispatch('relations_like', 'kit')(schema, table, exclude)) }}
{% endmacro %}

{% macro default__relations_like(schema, table, exclude) %}
  {% set found = run_query(kit.relations_sql(schema, table, exclude)) %}
  {% set relations = [] %}
  {% for row in found %}
    {% do relations.append(api.Relation.create(
      database=target.database, schema=row.table_schema, identifier=row.table_name,
      type=row.table_type)) %}
  {% endfor %}
  {{ return(relations) }}
{% endmacro %}

{% macro relations_sql(schema, table, exclude) %}
  {{ return(adapter.dispatch('relations_sql', 'kit')(schema, table, exclude)) }}
{% endmacro %}

{% macro default__relations_sql(schema, table, exclude) %}
  select distinct
    table_schema as {{ adapter.quote('table_schema') }},
    table_name as {{ adapter.quote('table_name') }},
    case table_type when 'BASE TABLE' then 'table' else lower(table_type) end as table_type
  from {{ target.database }}.information_schema.tables
  where table_schema ilike '{{ schema }}' and table_name ilike '{{ table }}'
    and table_name not ilike '{{ exclude }}'
  order by 1, 2
{% endmacro %}

{% macro columns_of(relation) %}
  {% set query %}
    select column_name, data_type, is_nullable, ordinal_position
    from {{ relation.information_schema('columns') }}
    where lower(table_schema) = lower('{{ relation.schema }}')
      and lower(table_name) = lower('{{ relation.identifier }}')
    order by ordinal_position
  {% endset %}
  {{ return(query) }}
{% endmacro %}
"""
DIALECTS = """
{% macro dialect() %}
  {{ return(adapter.dispatch('dialect', 'kit')()) }}
{% endmacro %}
{% macro default__dialect() %} 'any' {% endmacro %}
{% macro spark__dialect() %} 'spark' {% endmacro %}
{% macro bigquery__dialect() %} 'bigquery' {% endmacro %}
{% macro postgres__dialect() %} 'postgres' {% endmacro %}

{% macro own() %}
  {{ return(adapter.dispatch('own', 'kit')()) }}
{% endmacro %}
{% macro spark__own() %} 'spark' {% endmacro %}
{% macro streamsql__own() %} 'streamsql' {% endmacro %}
"""


UNION = (
    "{% for r in kit.relations_like(target.schema, 'EVENTS%', '%oslo') %}"
    "{{ 'union all ' if not loop.first }}select '{{ r.identifier }}' as t, '{{ r.type }}' as kind, "
    "count(*) as n from {{ r }} {% else %} select 1 as t {% endfor %}"
)


@pytest.fixture
def shop(project):
    project.write("kit/dbt_project.yml", "name: kit\nversion: '1.0'\n")
    project.write("kit/macros/relations.sql", RELATIONS)
    project.write("kit/macros/dialects.sql", DIALECTS)
    project.write("packages.yml", "packages:\n  - local: kit\n")
    project.write("seeds/events_rome.csv", "id,n\n1,10\n2,20\n")
    project.write("seeds/events_oslo.csv", "id,n\n3,30\n")
    project.write(
        "models/events_totals.sql",
        KEPT + "select id, sum(n) as n, cast(1.5 as decimal(5,2)) as rate "
        "from {{ ref('events_rome') }} group by id",
    )
    project.write("models/events_view.sql", "select 9 as id")
    assert project.dbt("deps").ok
    return project


def test_a_macro_of_a_package_takes_the_branch_of_spark(shop):
    text = "select {{ kit.dialect() }} as one, {{ kit.own() }} as other"
    assert shop.show(text) == [("spark", "streamsql")]


def test_relations_are_found_by_pattern_with_their_types(shop):
    assert shop.dbt("build").ok
    found = [
        ("events_rome", "table", 2),
        ("events_totals", "materialized_view", 2),
        ("events_view", "view", 1),
    ]
    assert sorted(shop.show(UNION)) == found


def test_a_model_finds_by_pattern_what_its_own_run_has_made(shop):
    shop.write("models/united.sql", "-- depends_on: {{ ref('events_totals') }}\n" + TABLE + UNION)
    done = shop.dbt("build", "--select", "+united")
    assert done.ok, done.messages
    found = shop.sql("select * from lake.shop.united order by t")
    assert found == [("events_rome", "table", 2), ("events_totals", "materialized_view", 2)]


def test_columns_are_found_with_their_types_and_without_the_engines_own(shop):
    assert shop.dbt("build").ok
    assert shop.show("{{ kit.columns_of(ref('events_totals')) }}") == [
        ("id", "bigint", "YES", 1),
        ("n", "bigint", "YES", 2),
        ("rate", "decimal(5,2)", "YES", 3),
    ]
    assert shop.show(
        "select numeric_precision, numeric_scale from INFORMATION_SCHEMA.columns "
        "where column_name = 'rate'",
    ) == [(5, 2)]
    assert shop.show("select * from information_schema.schemata") == [("lake", "shop")]
    assert shop.show("select * from lake.information_schema.tables where 1 = 0") == []


def test_an_information_schema_of_the_catalogs_own_is_left_to_it(shop):
    assert shop.dbt("seed").ok
    shop.sql("create namespace lake.information_schema")
    shop.sql("create table lake.information_schema.tables as select 'own' as it")
    assert shop.show("select * from lake.information_schema.tables") == [("own",)]
