{#- dbt's cross-database macros in Spark's own functions: dbt-spark's forms raise errors on purpose,
    which makes a query volatile, go through seconds, or fail under ANSI. -#}
{% macro streamsql__dateadd(datepart, interval, from_date_or_timestamp) -%}
  timestampadd({{ streamsql_datepart(datepart) }}, cast({{ interval }} as bigint), cast({{ from_date_or_timestamp }} as timestamp))
{%- endmacro %}


{#- How many boundaries of the unit lie between the two: weeks begin on Sunday, as dbt-spark's do. -#}
{% macro streamsql__datediff(first_date, second_date, datepart) -%}
  {%- set unit = streamsql_datepart(datepart) -%}
  {%- set whole = adapter.streamsql_literal(unit) -%}
  {%- set first = 'cast(' ~ first_date ~ ' as timestamp)' -%}
  {%- set second = 'cast(' ~ second_date ~ ' as timestamp)' -%}
  {%- if unit == 'day' -%}
    cast(datediff(cast({{ second }} as date), cast({{ first }} as date)) as bigint)
  {%- elif unit == 'week' -%}
    cast(datediff(date_trunc({{ whole }}, timestampadd(day, 1, {{ second }})), date_trunc({{ whole }}, timestampadd(day, 1, {{ first }}))) div 7 as bigint)
  {%- elif unit in ('month', 'quarter') -%}
    {%- set units = {'month': 12, 'quarter': 4}[unit] -%}
    cast((year({{ second }}) - year({{ first }})) * {{ units }} + {{ unit }}({{ second }}) - {{ unit }}({{ first }}) as bigint)
  {%- elif unit == 'year' -%}
    cast(year({{ second }}) - year({{ first }}) as bigint)
  {%- else -%}
    timestampdiff({{ unit }}, date_trunc({{ whole }}, {{ first }}), date_trunc({{ whole }}, {{ second }}))
  {%- endif -%}
{%- endmacro %}


{#- A unit by its name, of which nothing else may be a part of a statement. -#}
{% macro streamsql_datepart(datepart) %}
  {%- set allowed = ['year', 'quarter', 'month', 'week', 'day', 'hour', 'minute', 'second', 'millisecond', 'microsecond'] -%}
  {%- set unit = datepart | string | trim | lower -%}
  {%- if unit not in allowed -%}
    {{ exceptions.raise_compiler_error("unknown unit of time: " ~ datepart ~ "; allowed: " ~ allowed | join(', ')) }}
  {%- endif -%}
  {%- do return(unit) -%}
{% endmacro %}


{% macro streamsql__position(substring_text, string_text) -%}
  locate({{ substring_text }}, {{ string_text }})
{%- endmacro %}


{# A fixture of a unit test quotes what it gives for an array, map or struct, which Spark casts from no text. #}
{% macro streamsql__safe_cast(field, type) -%}
  {%- set quoted = field is string and cast_from_string_unsupported_for(type) -%}
  try_cast({{ field.strip('"').strip("'") if quoted else field }} as {{ type }})
{%- endmacro %}


{% macro streamsql__split_part(string_text, delimiter_text, part_number) -%}
  split_part({{ string_text }}, {{ delimiter_text }}, {{ part_number }})
{%- endmacro %}
