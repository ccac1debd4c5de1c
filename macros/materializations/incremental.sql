{#- dbt's strategies over a first build and a full refresh that replace in one commit. -#}
{% materialization incremental, adapter='streamsql', supported_languages=['sql', 'python'] %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set unique_key = config.get('unique_key') -%}
  {%- set strategy = config.get('incremental_strategy') or ('merge' if unique_key else 'append') -%}
  {%- set strategy_macro = adapter.get_incremental_strategy_macro(context, strategy) -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}
  {%- set predicates = config.get('predicates', none) or config.get('incremental_predicates', none) -%}
  {% do adapter.streamsql_check(target_relation, model) %}
  {%- set old_relation = load_cached_relation(this) -%}
  {%- set replaces = old_relation is none or not old_relation.is_table or should_full_refresh() -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% do streamsql_run_header() %}
  {%- set query = streamsql_query(compiled_code) -%}
  {%- if replaces -%}
    {% do streamsql_replace(old_relation, target_relation, query) %}
  {%- else -%}
    {%- set new_rows = this.incorporate(path={'identifier': this.identifier ~ '__dbt_tmp'}).include(database=false, schema=false) -%}
    {% call statement('create_tmp_relation') -%}
      {{ create_table_as(True, new_rows, query) }}
    {%- endcall %}
    {%- set dest_columns = process_schema_changes(on_schema_change, new_rows, old_relation) or adapter.get_columns_in_relation(old_relation) -%}
    {%- set by_partition = strategy == 'insert_overwrite' and config.get('partition_by') -%}
    {%- if by_partition -%}{% do run_query('set spark.sql.sources.partitionOverwriteMode = DYNAMIC') %}{%- endif -%}
    {%- set changes = strategy_macro({'target_relation': target_relation, 'temp_relation': new_rows, 'unique_key': unique_key, 'dest_columns': dest_columns, 'incremental_predicates': predicates}) -%}
    {{ write(changes) }}
    {%- do store_result('main', response=adapter.streamsql_change_rows(target_relation, adapter.streamsql_statements(changes), model, new_rows if strategy == 'delete+insert' else none)) -%}
    {%- if by_partition -%}{% do run_query('reset spark.sql.sources.partitionOverwriteMode') %}{%- endif -%}
    {% do persist_docs(target_relation, model) %}
  {%- endif -%}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
