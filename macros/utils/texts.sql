{#- Texts of YAML files in SQL: dbt's own macros leave a backslash as it is, or print them bare. -#}
{% macro streamsql__escape_single_quotes(expression) -%}
  {#- What a caller puts between quotes of its own: a literal without its quotes. -#}
  {%- do return(adapter.streamsql_literal(expression)[1:-1]) -%}
{%- endmacro %}


{% macro streamsql__test_accepted_values(model, column_name, values, quote=True) %}
with all_values as (
    select {{ column_name }} as value_field, count(*) as n_records
    from {{ model }}
    group by {{ column_name }}
)
select *
from all_values
where value_field not in (
    {%- for value in values -%}
      {{ adapter.streamsql_literal(value) if quote else adapter.streamsql_expression(value | string, 'values') }}{{ ', ' if not loop.last }}
    {%- endfor -%}
)
{% endmacro %}
