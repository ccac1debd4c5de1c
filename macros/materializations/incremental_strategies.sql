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
  {%- set updated = default__get_merge_update_columns(config.get('merge_update_columns'), config.get('merge_exclude_columns'), arg_dict['dest_columns']) -%}
  {%- set conditions = (arg_dict['incremental_predicates'] or []) + [] -%}
  {%- set keys = arg_dict['unique_key'] or [] -%}
  {%- for key in ([keys] if keys is string else keys) -%}
    {%- do conditions.append('DBT_INTERNAL_SOURCE.' ~ key ~ ' = DBT_INTERNAL_DEST.' ~ key) -%}
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


{#- The rows that the new ones stand for: those with their keys, or those of the batch. -#}
{% macro streamsql_replaced_rows(strategy, new_rows, unique_key, predicates) %}
  {%- set conditions = [] -%}
  {%- if strategy == 'microbatch' -%}
    {#- Written as dbt writes the filter of the batch's inputs. -#}
    {%- do conditions.append(config.get('event_time') ~ ' >= ' ~ adapter.streamsql_literal(model.batch.event_time_start)) -%}
    {%- do conditions.append(config.get('event_time') ~ ' < ' ~ adapter.streamsql_literal(model.batch.event_time_end)) -%}
  {%- elif unique_key -%}
    {%- set keys = ([unique_key] if unique_key is string else unique_key) | join(', ') -%}
    {%- do conditions.append('(' ~ keys ~ ') in (select ' ~ keys ~ ' from ' ~ new_rows ~ ')') -%}
  {%- else -%}
    {%- do return('') -%}
  {%- endif -%}
  {%- do return((conditions + (predicates or [])) | join(' and ')) -%}
{% endmacro %}
