{#- `dbt run-operation streamsql_sweep`: remove what processes that have died left staged. -#}
{% macro streamsql_sweep() %}
  {%- if execute -%}
    {%- set removed = adapter.streamsql_sweep() -%}
    {% do log('removed: ' ~ removed, info=True) %}
    {%- do return(removed) -%}
  {%- endif -%}
{% endmacro %}
