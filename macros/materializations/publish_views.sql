{#- `dbt run-operation streamsql_publish_views --args '{schema: bi}'`: SQL views for other tools. -#}
{% macro streamsql_publish_views(schema, with_schema=false, stop=false) %}
  {%- if execute -%}
    {%- set names = adapter.streamsql_publish_views(schema, with_schema, stop) -%}
    {% do log(('dropped from ' if stop else 'published in ') ~ schema ~ ': ' ~ names | join(', '), info=True) %}
    {%- do return(names) -%}
  {%- endif -%}
{% endmacro %}
