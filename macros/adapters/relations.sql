{#- `catalog_name` of a model is an entry of catalogs.yml, whose name is the Spark catalog's. What
    dbt asks for besides (the exports of saved queries) has another config, or none. -#}
{% macro streamsql__generate_database_name(custom_database_name=none, node=none) -%}
  {%- if custom_database_name is none and node is not none and node.config.get is defined -%}
    {%- if node.config.get('catalog_name') -%}
      {% do return(node.config.get('catalog_name')) %}
    {%- endif -%}
  {%- endif -%}
  {% do return(default__generate_database_name(custom_database_name, node)) %}
{%- endmacro %}


{#- dbt-spark's snapshot asks without a database. -#}
{% macro streamsql__get_or_create_relation(database, schema, identifier, type) %}
  {% do return(default__get_or_create_relation(database or model.database, schema, identifier, type)) %}
{% endmacro %}


{% macro streamsql__rename_relation(from_relation, to_relation) -%}
  {#- Spark reads the new name inside the old one's catalog. -#}
  {%- set kind = 'view' if from_relation.is_view else 'table' -%}
  {% call statement('rename_relation') -%}
    alter {{ kind }} {{ from_relation }} rename to {{ to_relation.include(database=false) }}
  {%- endcall %}
{% endmacro %}


{% macro streamsql__drop_relation(relation) -%}
  {% call statement('drop_relation', auto_begin=False) -%}
    {%- if relation.is_view -%}
      drop view if exists {{ relation }}
    {%- else -%}
      drop table if exists {{ relation }} purge
    {%- endif -%}
  {%- endcall %}
{% endmacro %}


{% macro streamsql__drop_schema(relation) -%}
  {% call statement('drop_schema') -%}
    drop schema if exists {{ relation }}
  {%- endcall %}
{% endmacro %}


{#- Only for macros of packages that call it; the adapter itself asks in Python. -#}
{% macro streamsql__get_columns_in_relation(relation) -%}
  {% do return(adapter.get_columns_in_relation(relation)) %}
{%- endmacro %}


{% macro streamsql__list_schemas(database) -%}
  {% call statement('list_schemas', fetch_result=True, auto_begin=False) -%}
    show namespaces in {{ adapter.quote(database) }}
  {%- endcall %}
  {% do return(load_result('list_schemas').table) %}
{%- endmacro %}


{% macro streamsql__alter_column_comment(relation, column_dict) %}
  {% for column_name in column_dict %}
    {% call statement('alter_column_comment') -%}
      alter table {{ relation.render() }} alter column {{ adapter.quote(column_name) }}
      comment {{ adapter.streamsql_literal(column_dict[column_name]['description']) }}
    {%- endcall %}
  {% endfor %}
{% endmacro %}


{#- A ref() may print itself as a sub-query (`--empty`, `--sample`); DDL needs the bare name. -#}
{% macro streamsql__alter_column_type(relation, column_name, new_column_type) -%}
  {% call statement('alter_column_type') -%}
    alter table {{ relation.render() }} alter column {{ adapter.quote(column_name) }} type {{ new_column_type }}
  {%- endcall %}
{% endmacro %}


{#- dbt-spark's default is parquet; in an Iceberg catalog every table is Iceberg. -#}
{% macro dbt_spark_validate_get_file_format(raw_file_format) %}
  {% do return(config.get('file_format', default='iceberg')) %}
{% endmacro %}


{% macro streamsql__alter_relation_add_remove_columns(relation, add_columns, remove_columns) %}
  {%- if add_columns -%}
    {% call statement('add_columns') -%}
      alter table {{ relation.render() }} add columns (
        {%- for column in add_columns %}{{ adapter.quote(column.name) }} {{ column.data_type }}{{ ', ' if not loop.last }}{% endfor -%}
      )
    {%- endcall %}
  {%- endif -%}
  {%- if remove_columns -%}
    {% call statement('drop_columns') -%}
      alter table {{ relation.render() }} drop columns (
        {%- for column in remove_columns %}{{ adapter.quote(column.name) }}{{ ', ' if not loop.last }}{% endfor -%}
      )
    {%- endcall %}
  {%- endif -%}
{% endmacro %}


{#- Of a snapshot whose query has new columns. -#}
{% macro streamsql__create_columns(relation, columns) %}
  {%- if columns -%}
    {% do streamsql__alter_relation_add_remove_columns(relation, columns, none) %}
  {%- endif -%}
{% endmacro %}
