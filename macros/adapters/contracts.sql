{#- A contract's column names are names, whatever they hold; dbt's own macros print them bare. -#}
{% macro streamsql__get_empty_schema_sql(columns) %}
    {%- set untyped = [] -%}
    {%- set bare = [] -%}
    select
    {%- for name in columns -%}
      {%- set column = columns[name] -%}
      {%- if column['data_type'] is not defined or column['data_type'] is none -%}
        {%- do untyped.append(column['name']) -%}
      {%- else -%}
        {%- if column['data_type'].strip() | lower in ('numeric', 'decimal') -%}{%- do bare.append(column['name']) -%}{%- endif %}
      cast(null as {{ adapter.streamsql_expression(column['data_type'], 'data_type') }}) as {{ adapter.quote(column['name']) }}{{ ', ' if not loop.last }}
      {%- endif -%}
    {%- endfor -%}
    {%- if untyped -%}
      {{ exceptions.column_type_missing(column_names=untyped) }}
    {%- elif bare -%}
      {{ exceptions.warn("Detected columns with numeric type and unspecified precision/scale, this can lead to unintended rounding: " ~ bare) }}
    {%- endif -%}
{% endmacro %}


{% macro streamsql__get_column_names() %}
  {%- for name in model['columns'] -%}
    {{ adapter.quote(model['columns'][name]['name']) }}{{ ', ' if not loop.last }}
  {%- endfor -%}
{% endmacro %}
