{% macro streamsql__create_view_as(relation, sql) -%}
  {%- set contract_config = config.get('contract') -%}
  {%- if relation.schema is none -%}
    {#- dbt-spark's snapshot stages through a view without a schema: for us a temporary one. -#}
    {{ create_temporary_view(relation, sql) }}
  {%- else -%}
    create or replace view {{ relation }}
    {%- if config.persist_column_docs() %}
    ({{ get_persist_docs_column_list(model.columns, get_columns_in_query(sql)) }})
    {%- endif %}
    {{ comment_clause() }}
    {%- if contract_config and contract_config.enforced %}
    {{ get_assert_columns_equivalent(sql) }}
    {%- endif %}
    as
    {{ adapter.streamsql_visible(sql) }}
  {%- endif -%}
{%- endmacro %}


{#- Not dispatched by dbt-spark; macros of this package win by name. -#}
{% macro get_column_comment_sql(column_name, column_dict) -%}
  {{ adapter.quote(column_name) }}
  {%- if column_name in column_dict and column_dict[column_name]['description'] %} comment {{ adapter.streamsql_literal(column_dict[column_name]['description']) }}
  {%- endif -%}
{%- endmacro %}
