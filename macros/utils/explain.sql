{#- How a view is kept up to date, as rows: the first for all of it, then one for each operator.
    `query` is a relation of a view that was run, or the text of a query:
    dbt show --limit 99 --output json --inline "{{ streamsql_explain(ref('my_view')) }}" -#}
{% macro streamsql_explain(query) -%}
  {%- do return(adapter.streamsql_explain(query)) -%}
{%- endmacro %}
