{#- A view that the engine keeps up to date. This only decides; the engine stages the new version
    in the run's epoch, and the end of the dbt run publishes all of them together. -#}
{% materialization materialized_view, adapter='streamsql' %}
  {%- set target_relation = this.incorporate(type='materialized_view') -%}
  {%- set old_relation = load_cached_relation(this) -%}
  {%- set grant_config = config.get('grants') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- set response = adapter.streamsql_materialize(
        target_relation, compiled_code, model.unique_id, model.config, should_full_refresh(), old_relation) -%}
  {{ write(compiled_code) }}
  {%- do store_result('main', response=response) %}

  {% do apply_grants(target_relation, grant_config, should_revoke(old_relation, full_refresh_mode=True)) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
