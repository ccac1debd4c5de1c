{#- `dbt run-operation streamsql_revise --args '{table: shop.orders, to_barrier: 7}'`: a table and all
    that comes from it, made anew from an earlier barrier. Also `sql` (a correction), `mode` (auto,
    incremental, full) and `dry_run`. -#}
{% macro streamsql_revise(table, to_barrier=none, sql='', mode='auto', dry_run=false) %}
  {%- if execute -%}
    {%- set told = adapter.streamsql_revise(table, to_barrier, sql, mode, dry_run) -%}
    {%- for line in told -%}
      {% do log(line, info=True) %}
    {%- endfor -%}
    {%- do return(told) -%}
  {%- endif -%}
{% endmacro %}
