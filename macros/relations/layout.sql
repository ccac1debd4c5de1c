{#- How a table's rows are laid out, with every column of the config quoted. -#}
{% macro streamsql__partition_cols(label, required=false) -%}
  {%- set fields = config.get('partition_by') -%}
  {%- if fields is not none -%}
    {{ label }} (
    {{- adapter.streamsql_partition_fields(fields) | join(', ') -}}
    )
  {%- endif -%}
{%- endmacro %}


{% macro streamsql__clustered_cols(label, required=false) -%}
  {%- set columns = config.get('clustered_by') -%}
  {%- set buckets = config.get('buckets') -%}
  {%- if columns is not none and buckets is not none -%}
    {%- if buckets is not integer -%}
      {{ exceptions.raise_compiler_error("`buckets` must be a whole number, not: " ~ buckets) }}
    {%- endif -%}
    {{ label }} (
    {%- for column in ([columns] if columns is string else columns) -%}
      {{ adapter.quote(column) }}{{ ', ' if not loop.last }}
    {%- endfor -%}
    ) into {{ buckets }} buckets
  {%- endif -%}
{%- endmacro %}
