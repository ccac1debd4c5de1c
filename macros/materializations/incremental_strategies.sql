{#- How each strategy puts new rows into a table that exists, by dbt's names: a project may add
    its own as `get_incremental_<name>_sql`. -#}
{% macro streamsql__get_incremental_append_sql(arg_dict) %}
  {%- set columns = arg_dict['dest_columns'] | map(attribute='quoted') | join(', ') -%}
  insert into {{ arg_dict['target_relation'] }} ({{ columns }})
  select {{ columns }} from {{ arg_dict['temp_relation'] }}
{% endmacro %}


{% macro streamsql__get_incremental_insert_overwrite_sql(arg_dict) %}
  {%- set columns = arg_dict['dest_columns'] | map(attribute='quoted') | join(', ') -%}
  insert overwrite {{ arg_dict['target_relation'] }} ({{ columns }})
  select {{ columns }} from {{ arg_dict['temp_relation'] }}
{% endmacro %}


{% macro streamsql__get_incremental_merge_sql(arg_dict) %}
  {%- set columns = arg_dict['dest_columns'] | map(attribute='quoted') | list -%}
  {%- set updated = get_merge_update_columns(config.get('merge_update_columns'), config.get('merge_exclude_columns'), arg_dict['dest_columns']) -%}
  {%- set conditions = (arg_dict['incremental_predicates'] or []) + [] -%}
  {%- set keys = arg_dict['unique_key'] or [] -%}
  {%- for key in ([keys] if keys is string else keys) -%}
    {%- set column = adapter.streamsql_column(key) -%}
    {%- do conditions.append('DBT_INTERNAL_SOURCE.' ~ column ~ ' = DBT_INTERNAL_DEST.' ~ column) -%}
  {%- endfor -%}
  merge into {{ arg_dict['target_relation'] }} as DBT_INTERNAL_DEST
  using {{ arg_dict['temp_relation'] }} as DBT_INTERNAL_SOURCE
  on {{ conditions | join(' and ') if keys else 'false' }}
  when matched then update set
    {%- for column in updated %}
    {{ column }} = DBT_INTERNAL_SOURCE.{{ column }}{{ ',' if not loop.last }}
    {%- endfor %}
  when not matched then insert ({{ columns | join(', ') }})
    values ({% for column in columns %}DBT_INTERNAL_SOURCE.{{ column }}{{ ', ' if not loop.last }}{% endfor %})
{% endmacro %}


{#- Columns as a config names them, quoted. -#}
{% macro streamsql_columns(names) %}
  {%- set columns = [] -%}
  {%- for name in ([names] if names is string else names) -%}
    {%- do columns.append(adapter.streamsql_column(name)) -%}
  {%- endfor -%}
  {%- do return(columns) -%}
{% endmacro %}


{% macro streamsql__get_merge_update_columns(merge_update_columns, merge_exclude_columns, dest_columns) %}
  {%- if merge_update_columns and not merge_exclude_columns -%}
    {%- do return(streamsql_columns(merge_update_columns)) -%}
  {%- endif -%}
  {%- do return(default__get_merge_update_columns(merge_update_columns, merge_exclude_columns, dest_columns)) -%}
{% endmacro %}


{#- Rows with the keys of new ones make way for these. -#}
{% macro streamsql__get_incremental_delete_insert_sql(arg_dict) %}
  {%- set keys = streamsql_columns(arg_dict['unique_key'] or []) | join(', ') -%}
  {%- set conditions = ['(' ~ keys ~ ') in (select ' ~ keys ~ ' from ' ~ arg_dict['temp_relation'] ~ ')'] -%}
  {%- do return(streamsql_replacing(conditions if keys else [], arg_dict)) -%}
{% endmacro %}


{#- The rows of the batch's time make way; written as dbt filters the batch's inputs. -#}
{% macro streamsql__get_incremental_microbatch_sql(arg_dict) %}
  {%- set conditions = [
        config.get('event_time') ~ ' >= ' ~ adapter.streamsql_literal(model.batch.event_time_start),
        config.get('event_time') ~ ' < ' ~ adapter.streamsql_literal(model.batch.event_time_end)] -%}
  {%- do return(streamsql_replacing(conditions, arg_dict)) -%}
{% endmacro %}


{% macro streamsql_replacing(conditions, arg_dict) %}
  {%- if conditions %}
  delete from {{ arg_dict['target_relation'] }} as DBT_INTERNAL_DEST
  where {{ (conditions + (arg_dict['incremental_predicates'] or [])) | join(' and ') }};
  {% endif -%}
  {{ streamsql__get_incremental_append_sql(arg_dict) }}
{% endmacro %}
