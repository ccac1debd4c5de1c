{#- dbt-spark's MERGE with every column of the config quoted. -#}
{% macro streamsql__get_merge_sql(target, source, unique_key, dest_columns, incremental_predicates) %}
  {%- set conditions = [] + (incremental_predicates or []) -%}
  {%- for key in ([unique_key] if unique_key is string else (unique_key or [])) -%}
    {%- set column = adapter.streamsql_column(key) -%}
    {%- do conditions.append('DBT_INTERNAL_SOURCE.' ~ column ~ ' = DBT_INTERNAL_DEST.' ~ column) -%}
  {%- endfor -%}
  {%- if not unique_key -%}{%- do conditions.append('FALSE') -%}{%- endif -%}
  {%- set columns = adapter.get_columns_in_relation(target) -%}
  {%- set updated = get_merge_update_columns(config.get('merge_update_columns'), config.get('merge_exclude_columns'), columns) -%}

  {{ sql_header if sql_header is not none }}
  merge into {{ target }} as DBT_INTERNAL_DEST
      using {{ source }} as DBT_INTERNAL_SOURCE
      on {{ conditions | join('\n and ') }}
      when matched then update set
      {%- if updated -%}
        {%- for column in updated %}
        {{ column }} = DBT_INTERNAL_SOURCE.{{ column }}{{ ', ' if not loop.last }}
        {%- endfor %}
      {%- else %} *
      {%- endif %}
      when not matched then insert *
{% endmacro %}


{% macro streamsql__get_merge_update_columns(merge_update_columns, merge_exclude_columns, dest_columns) %}
  {%- if not merge_update_columns or merge_exclude_columns -%}
    {%- do return(spark__get_merge_update_columns(merge_update_columns, merge_exclude_columns, dest_columns)) -%}
  {%- endif -%}
  {%- set columns = [] -%}
  {%- for column in ([merge_update_columns] if merge_update_columns is string else merge_update_columns) -%}
    {%- do columns.append(adapter.streamsql_column(column)) -%}
  {%- endfor -%}
  {%- do return(columns) -%}
{% endmacro %}
