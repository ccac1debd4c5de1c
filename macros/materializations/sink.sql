{#- What is delivered of a maintained table to a system outside. This only defines it: what the run
    publishes is delivered at its end. It is no relation: nothing of it is in the lake. -#}
{% materialization sink, adapter='streamsql' %}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- set response = adapter.streamsql_sink(
        this, compiled_code, model, should_full_refresh(), load_cached_relation(this)) -%}
  {%- do store_result('main', response=response) %}

  {{ streamsql_run_post_hooks(post_hooks) }}

  {{ return({'relations': []}) }}
{% endmaterialization %}
