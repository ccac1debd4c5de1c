{#- A view that the engine keeps up to date. This only decides; the engine stages the new version
    in the run's epoch, and the end of the dbt run publishes all of them together. -#}
{% materialization materialized_view, adapter='streamsql' %}
  {%- set target_relation = this.incorporate(type='materialized_view') -%}
  {%- set old_relation = load_cached_relation(this) -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- set keep = streamsql_keep_configuration(old_relation, target_relation) == 'keep' -%}
  {%- set nodes = [] -%}
  {%- for node in model.depends_on.nodes -%}
    {%- do nodes.append(graph.sources.get(node) or graph.nodes.get(node) or {}) -%}
  {%- endfor -%}
  {%- set response = adapter.streamsql_materialize(
        target_relation, compiled_code, model, nodes, should_full_refresh(), old_relation, keep) -%}
  {{ write(adapter.streamsql_explained(target_relation, compiled_code)) }}
  {%- do store_result('main', response=response) %}

  {% do adapter.streamsql_document(target_relation, model) %}
  {{ streamsql_run_post_hooks(post_hooks) }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{#- dbt's `on_configuration_change`, in the words that dbt's own macros log: 'keep' when the view
    keeps the configuration that it has. -#}
{% macro streamsql_keep_configuration(old_relation, target_relation) %}
  {%- set reaction = config.get('on_configuration_change') -%}
  {%- if old_relation is none or not old_relation.is_materialized_view -%}
    {%- do return('') -%}
  {%- elif should_full_refresh() -%}
    {%- do log('Applying REPLACE to: ' ~ target_relation) -%}
    {%- do return('') -%}
  {%- endif -%}
  {%- set change = adapter.streamsql_changes(target_relation, model) -%}
  {%- if not change -%}
    {%- do return('') -%}
  {%- elif reaction == 'apply' -%}
    {%- do log('Applying ' ~ change | upper ~ ' to: ' ~ target_relation) -%}
    {%- do return('') -%}
  {%- endif -%}
  {%- set text = 'Configuration changes were identified and `on_configuration_change` was set to `%s` for `%s`' | format(reaction, target_relation.render()) -%}
  {%- if reaction == 'fail' -%}
    {%- do exceptions.raise_fail_fast_error(text) -%}
  {%- endif -%}
  {%- do exceptions.warn(text) -%}
  {%- do return('keep') -%}
{% endmacro %}


{#- The changelog table of a materialized view with `changelog: true`: every change of a row, with
    the barrier at which it became visible. `relation` is what `ref()` gives. -#}
{% macro streamsql_changelog(relation) %}
  {%- do return(relation.incorporate(path={'identifier': relation.identifier ~ '__changelog'}, type='table')) -%}
{% endmacro %}
