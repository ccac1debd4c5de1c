{#- A plain Spark view. It is checked against visible tables, so what the run has staged and the
    view reads is published first. -#}
{% materialization view, adapter='streamsql' -%}
  {%- set target_relation = this.incorporate(type='view') -%}
  {% do adapter.streamsql_check(target_relation, model) %}
  {%- set old_relation = load_cached_relation(this) -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% do streamsql_run_header() %}
  {% do adapter.streamsql_flush_for(compiled_code) %}
  {% do streamsql_replace(old_relation, target_relation, compiled_code) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}
{%- endmaterialization %}
