{#- Staged, checked, then published in one step: a failure leaves the old table as it was. -#}
{% materialization table, adapter='streamsql', supported_languages=['sql', 'python'] %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {% do adapter.streamsql_check(target_relation, model) %}
  {%- set old_relation = load_cached_relation(this) -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% do streamsql_run_header() %}
  {% do streamsql_replace(old_relation, target_relation, streamsql_query(compiled_code)) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{#- Build `target_relation` where `old_relation` (or none) stands. A view is built beside what is
    of another kind first, so that a failure leaves the old. -#}
{% macro streamsql_replace(old_relation, target_relation, query, statement_name='main', seed='') %}
  {%- if not target_relation.is_view -%}
    {%- set query = streamsql_contracted(query) -%}
    {{ write(query) }}
    {%- set documented = none -%}
    {%- if config.persist_column_docs() and model.columns -%}
      {#- Says which documented columns the query has not; a quoted name must fit exactly. -#}
      {%- set documented = validate_doc_columns(target_relation, model.columns, get_columns_in_query(query)) -%}
    {%- endif -%}
    {%- set response = adapter.streamsql_create_table(target_relation, query, model, model.config, old_relation, documented, seed) -%}
    {%- do store_result(statement_name, response=response) -%}
  {%- elif old_relation is none or old_relation.is_view -%}
    {% call statement(statement_name) -%}
      {{ get_create_view_as_sql(target_relation, query) }}
    {%- endcall %}
  {%- else -%}
    {%- set staging_relation = make_intermediate_relation(target_relation) -%}
    {% do drop_relation_if_exists(load_cached_relation(staging_relation)) %}
    {% call statement(statement_name) -%}
      {{ get_create_view_as_sql(staging_relation, query) }}
    {%- endcall %}
    {% do adapter.drop_relation(old_relation) %}
    {% do adapter.rename_relation(staging_relation, target_relation) %}
  {%- endif -%}
{% endmacro %}


{#- The query with the columns of an enforced contract, in its order. -#}
{% macro streamsql_contracted(query) %}
  {%- set contract_config = config.get('contract') -%}
  {%- if contract_config and contract_config.enforced -%}
    {{ get_assert_columns_equivalent(query) }}
    {%- do return(get_select_subquery(query)) -%}
  {%- endif -%}
  {%- do return(query) -%}
{% endmacro %}
