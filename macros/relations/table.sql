{#- Iceberg swaps a table's metadata in one step: both forms, new and replacing, are atomic. -#}
{% macro streamsql__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- if temporary -%}
    {{ create_temporary_view(relation, compiled_code) }}
  {%- else -%}
    {%- do adapter.streamsql_check_name(relation) -%}
    {#- Stored failures of a test are a table too. -#}
    {%- do adapter.streamsql_reads(model) -%}
    create or replace table {{ relation }}
    {%- set contract_config = config.get('contract') -%}
    {%- if contract_config and contract_config.enforced -%}
      {{ get_assert_columns_equivalent(compiled_code) }}
      {%- set compiled_code = get_select_subquery(compiled_code) -%}
    {%- endif %}
    {{ file_format_clause() }}
    {{ options_clause() }}
    {{ partition_cols(label="partitioned by") }}
    {{ clustered_cols(label="clustered by") }}
    {{ location_clause() }}
    {{ comment_clause() }}
    {{ tblproperties_clause() }}
    as
    {{ adapter.streamsql_rewrite(compiled_code) }}
  {%- endif -%}
{%- endmacro %}


{% macro streamsql__create_temporary_view(relation, compiled_code) -%}
  create or replace temporary view {{ relation }} as
  {{ adapter.streamsql_rewrite(compiled_code) }}
{%- endmacro %}


{% macro streamsql__file_format_clause() -%}
  using {{ adapter.quote(config.get('file_format', default='iceberg')) }}
{%- endmacro %}


{% macro streamsql__tblproperties_clause() -%}
  {%- set properties = adapter.streamsql_table_properties(config.get('tblproperties')) -%}
  tblproperties (
    {%- for key, value in properties.items() -%}
      {{ adapter.streamsql_literal(key) }} = {{ adapter.streamsql_literal(value) }}{{ ', ' if not loop.last }}
    {%- endfor -%}
  )
{%- endmacro %}


{% macro streamsql__options_clause() -%}
  {%- set options = config.get('options') -%}
  {%- if options %}
  options (
    {%- for key, value in adapter.streamsql_located(options).items() -%}
      {{ adapter.streamsql_literal(key) }} {{ adapter.streamsql_literal(value) }}{{ ', ' if not loop.last }}
    {%- endfor -%}
  )
  {%- endif -%}
{%- endmacro %}


{% macro streamsql__location_clause() -%}
  {%- set location_root = config.get('location_root') -%}
  {%- if location_root is not none -%}
    location {{ adapter.streamsql_literal(adapter.streamsql_location(location_root) ~ '/' ~ model['alias']) }}
  {%- endif -%}
{%- endmacro %}


{% macro streamsql__comment_clause() -%}
  {%- set persist_docs = config.get('persist_docs', {}) -%}
  {%- if persist_docs is not mapping -%}
    {{ exceptions.raise_compiler_error("`persist_docs` must be a mapping with `relation` and `columns`, not: " ~ persist_docs) }}
  {%- elif persist_docs.get('relation', false) -%}
    comment {{ adapter.streamsql_literal(model.description) }}
  {%- endif -%}
{%- endmacro %}
