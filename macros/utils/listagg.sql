{#- dbt-spark's has no order; Spark has had one since 4.0. A limit is put on the joined values: they
    are joined by a character that no text has, and taken apart again. -#}
{% macro streamsql__listagg(measure, delimiter_text, order_by_clause, limit_num) -%}
  {%- set order = 'within group (' ~ order_by_clause ~ ')' if order_by_clause else '' -%}
  {%- if limit_num -%}
    array_join(slice(split(
      listagg({{ measure }}, '\u0001')
      {{ order }},
      '\u0001'), 1,
      {{ limit_num }}), {{ delimiter_text }})
  {%- else -%}
    listagg({{ measure }}, {{ delimiter_text }}) {{ order }}
  {%- endif -%}
{%- endmacro %}
