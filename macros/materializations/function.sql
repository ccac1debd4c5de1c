{#- SQL functions, for dbt's `function` materialization: kept as a hidden view, and written into
    the queries that call them. -#}
{% macro streamsql__scalar_function_sql(target_relation) %}
  {%- do return(streamsql_function_sql(target_relation)) -%}
{% endmacro %}


{% macro streamsql__aggregate_function_sql(target_relation) %}
  {%- do return(streamsql_function_sql(target_relation)) -%}
{% endmacro %}


{% macro aggregate_function_sql(target_relation) %}
  {%- do return(adapter.dispatch('aggregate_function_sql', 'dbt')(target_relation)) -%}
{% endmacro %}


{% macro streamsql_function_sql(target_relation) %}
  {%- set old_relation = load_cached_relation(this) -%}
  {%- if old_relation is not none and not old_relation.is_function -%}
    {% do exceptions.relation_wrong_type(old_relation, 'function') %}
  {%- endif -%}
  {%- set function = adapter.streamsql_function(target_relation, model) -%}
  create or replace view {{ function.view }}
  comment {{ adapter.streamsql_literal(model.description) }}
  tblproperties ({{ adapter.streamsql_literal(function.property) }} = {{ adapter.streamsql_literal(function.definition) }})
  as {{ function.query }}
{% endmacro %}
