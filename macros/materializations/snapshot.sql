{#- dbt's snapshot: the first build is one atomic create, every other run one MERGE. -#}
{% materialization snapshot, adapter='streamsql' %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {% do adapter.streamsql_check(target_relation, model) %}
  {%- set old_relation = load_cached_relation(this) -%}
  {%- if old_relation is not none and not old_relation.is_table -%}
    {% do exceptions.relation_wrong_type(old_relation, 'table') %}
  {%- endif -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- set strategy_macro = strategy_dispatch(config.get('strategy')) -%}
  {%- set strategy = strategy_macro(model, 'snapshotted_data', 'source_data', model['config'], old_relation is not none) -%}

  {%- if old_relation is none -%}
    {% do streamsql_replace(none, target_relation, build_snapshot_table(strategy, model['compiled_code'])) %}
  {%- else -%}
    {%- set columns = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() -%}
    {% do adapter.valid_snapshot_target(target_relation, columns) %}
    {%- set changes = this.incorporate(path={'identifier': this.identifier ~ '__dbt_tmp'}).include(database=false, schema=false) -%}
    {% call statement('build_snapshot_staging_relation') -%}
      {{ create_table_as(True, changes, snapshot_staging_table(strategy, sql, target_relation)) }}
    {%- endcall %}
    {%- set helpers = ['dbt_change_type', 'dbt_unique_key'] -%}
    {%- for key in config.get('unique_key') if config.get('unique_key') is not string -%}
      {% do helpers.append('dbt_unique_key_' ~ loop.index) %}
    {%- endfor -%}
    {%- set missing = adapter.get_missing_columns(changes, target_relation) | rejectattr('name', 'in', helpers) | list -%}
    {% do create_columns(target_relation, missing) %}
    {% call statement('main') -%}
      {{ snapshot_merge_sql(target=target_relation, source=changes, insert_cols=[]) }}
    {%- endcall %}
    {% do persist_docs(target_relation, model) %}
  {%- endif -%}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
