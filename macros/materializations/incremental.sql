{#- dbt-spark's strategies over a first build and a full refresh that replace in one commit. -#}
{% materialization incremental, adapter='streamsql', supported_languages=['sql', 'python'] %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set file_format = dbt_spark_validate_get_file_format(none) -%}
  {%- set strategy = dbt_spark_validate_get_incremental_strategy(config.get('incremental_strategy') or ('merge' if config.get('unique_key') else 'append'), file_format) -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}
  {%- set predicates = config.get('predicates', none) or config.get('incremental_predicates', none) -%}
  {% do adapter.streamsql_check(target_relation, model.config) %}
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
    {% do process_schema_changes(on_schema_change, new_rows, old_relation) %}
    {%- set by_partition = strategy in ['insert_overwrite', 'microbatch'] and config.get('partition_by') -%}
    {%- if by_partition -%}{% do run_query('set spark.sql.sources.partitionOverwriteMode = DYNAMIC') %}{%- endif -%}
    {% call statement('main') -%}
      {{ dbt_spark_get_incremental_sql(strategy, new_rows, target_relation, old_relation, config.get('unique_key', none), predicates) }}
    {%- endcall %}
    {%- if by_partition -%}{% do run_query('reset spark.sql.sources.partitionOverwriteMode') %}{%- endif -%}
    {% do adapter.streamsql_drop_temporary(new_rows.render()) %}
    {% do persist_docs(target_relation, model) %}
  {%- endif -%}
  {% do streamsql_forget_query() %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
