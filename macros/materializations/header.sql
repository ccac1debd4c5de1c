{#- What `set_sql_header` holds, run before the model in its session. Spark takes one statement at
    a time, so the text goes in pieces. -#}
{% macro streamsql_run_header() %}
  {%- for statement in adapter.streamsql_statements(config.get('sql_header') or '') -%}
    {% do run_query(statement) %}
  {%- endfor -%}
{% endmacro %}


{#- The header has run already. -#}
{% macro streamsql__get_empty_subquery_sql(select_sql, select_sql_header=none) %}
  {%- do return(default__get_empty_subquery_sql(select_sql)) -%}
{% endmacro %}
