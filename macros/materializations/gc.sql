{#- `dbt run-operation streamsql_gc [--args '{dry_run: true}']`: remove what nobody can need any more. -#}
{% macro streamsql_gc(dry_run=false, orphans_older_than='3 days') %}
  {%- if execute -%}
    {%- set gone = adapter.streamsql_gc(dry_run, orphans_older_than) -%}
    {%- for table in gone.tables if table.snapshots or table.changes or table.orphans -%}
      {% do log(table, info=True) %}
    {%- endfor -%}
    {% do log('kept from barrier ' ~ gone.kept_from ~ ', gone: ' ~ gone.ledger ~ ', left by dead runs: ' ~ gone.left, info=True) %}
    {%- do return(gone) -%}
  {%- endif -%}
{% endmacro %}
