{#- Replaced in one commit: a failing query leaves the old table as it was. -#}
{% materialization table, adapter='streamsql', supported_languages=['sql', 'python'] %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set grant_config = config.get('grants') -%}
  {% do adapter.streamsql_check(target_relation, model.config) %}
  {%- set old_relation = load_cached_relation(this) -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% do streamsql_replace(old_relation, target_relation, streamsql_query(compiled_code)) %}
  {% do streamsql_forget_query() %}

  {% do apply_grants(target_relation, grant_config, should_revoke(old_relation, full_refresh_mode=True)) %}
  {% do persist_docs(target_relation, model) %}
  {% do persist_constraints(target_relation, model) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{#- Build `target_relation` where `old_relation` (or none) stands. What is of another kind cannot
    be replaced in place: the new one is built beside it first, so that a failure leaves the old. -#}
{% macro streamsql_replace(old_relation, target_relation, query, statement_name='main') %}
  {%- if old_relation is none or old_relation.type == target_relation.type -%}
    {% call statement(statement_name) -%}
      {{ streamsql_create(target_relation, query) }}
    {%- endcall %}
  {%- else -%}
    {%- set staging_relation = make_intermediate_relation(target_relation) -%}
    {% do drop_relation_if_exists(load_cached_relation(staging_relation)) %}
    {% call statement(statement_name) -%}
      {{ streamsql_create(staging_relation, query) }}
    {%- endcall %}
    {% do adapter.drop_relation(old_relation) %}
    {% do adapter.rename_relation(staging_relation, target_relation) %}
  {%- endif -%}
{% endmacro %}


{% macro streamsql_create(relation, query) %}
  {%- if relation.is_view -%}
    {{ get_create_view_as_sql(relation, query) }}
  {%- else -%}
    {{ create_table_as(False, relation, query) }}
  {%- endif -%}
{% endmacro %}
