{#- A wide table that several branches write, each its own columns. This only decides; the engine
    stages the new version in the run's epoch, and the end of the dbt run publishes all together. -#}
{% materialization partial_update, adapter='streamsql' %}
  {%- set target_relation = this.incorporate(type='materialized_view') -%}
  {%- set old_relation = load_cached_relation(this) -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- set keep = streamsql_keep_configuration(old_relation, target_relation) == 'keep' -%}
  {%- set response = adapter.streamsql_partial_update(
        target_relation, compiled_code, model, graph.nodes.values() | list, should_full_refresh(), old_relation, keep) -%}
  {{ write(adapter.streamsql_explained(target_relation, compiled_code)) }}
  {%- do store_result('main', response=response) %}

  {% do adapter.streamsql_document(target_relation, model) %}
  {{ streamsql_run_post_hooks(post_hooks) }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{#- A branch of a wide table that is a model of its own: `relation` is what `ref()` gives. It writes
    `columns`: those named here, else those of its config, else all but its key. `key` are its key
    columns where they have other names than those of the wide table. -#}
{% macro branch(relation, columns=none, key=none) -%}
  {%- if execute -%}
    {{ adapter.streamsql_branch(this, relation, graph.nodes.values() | list, config.get('key'), columns, key) }}
  {%- endif -%}
{%- endmacro %}
