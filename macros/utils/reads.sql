{#- Data tests and `dbt show` have no materialization of ours: they tell here how they read. -#}
{% macro streamsql__get_test_sql(main_sql, fail_calc, warn_if, error_if, limit) -%}
  {%- do adapter.streamsql_reads(model) -%}
  {{ default__get_test_sql(main_sql, fail_calc, warn_if, error_if, limit) }}
{%- endmacro %}


{% macro streamsql__get_limit_sql(sql, limit) -%}
  {%- do adapter.streamsql_reads(model, shows=true) -%}
  {{ default__get_limit_sql(sql, limit) }}
{%- endmacro %}
