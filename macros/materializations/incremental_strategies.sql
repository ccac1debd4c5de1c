{#- How each strategy puts new rows into a table that exists, by dbt's names: a project may add
    its own as `get_incremental_<name>_sql`. -#}
{% macro streamsql__get_incremental_append_sql(arg_dict) %}
  {%- do return(get_insert_into_sql(arg_dict['temp_relation'], arg_dict['target_relation'])) -%}
{% endmacro %}


{% macro streamsql__get_incremental_merge_sql(arg_dict) %}
  {%- do return(get_merge_sql(arg_dict['target_relation'], arg_dict['temp_relation'], arg_dict['unique_key'], none, arg_dict['incremental_predicates'])) -%}
{% endmacro %}


{% macro streamsql__get_incremental_insert_overwrite_sql(arg_dict) %}
  {%- do return(get_insert_overwrite_sql(arg_dict['temp_relation'], arg_dict['target_relation'], arg_dict['target_relation'])) -%}
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
