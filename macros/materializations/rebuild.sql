{#- `dbt run-operation streamsql_rebuild`: rebuild a lost store of MetaService from the tables. -#}
{% macro streamsql_rebuild(store='', dry_run=false) %}
  {%- if execute -%}
    {%- set found = adapter.streamsql_rebuild(store, dry_run) -%}
    {% do log('rebuilt: barrier ' ~ found['barrier'] ~ ', ' ~ found['tables'] | length ~ ' tables', info=True) %}
    {%- for table, reason in found['left'].items() -%}
      {% do log('not known again: ' ~ table ~ ': ' ~ reason, info=True) %}
    {%- endfor -%}
    {%- do return(found) -%}
  {%- endif -%}
{% endmacro %}
