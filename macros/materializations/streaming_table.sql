{#- A table that takes each record of a stream once. This only decides; the engine stages the
    records in the run's epoch, and the end of the dbt run publishes them with all the rest. -#}
{% materialization streaming_table, adapter='streamsql', supported_languages=['sql', 'python'] %}
  {%- set target_relation = this.incorporate(type='materialized_view') -%}
  {%- set old_relation = load_cached_relation(this) -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- set sources = graph.sources.values() | selectattr('unique_id', 'in', model.depends_on.nodes) | list -%}
  {%- set response = adapter.streamsql_stream(
        target_relation, compiled_code, model, sources, should_full_refresh(), old_relation) -%}
  {{ write(adapter.streamsql_explained(target_relation, compiled_code)) }}
  {%- do store_result('main', response=response) %}

  {% do adapter.streamsql_document(target_relation, model) %}
  {{ streamsql_run_post_hooks(post_hooks) }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
