{#- A python model is run in this process; from then on it is a query over a temporary view. -#}
{% macro streamsql_query(compiled_code) %}
  {%- if model['language'] == 'python' -%}
    {%- do return('select * from ' ~ adapter.streamsql_run_python(compiled_code)) -%}
  {%- endif -%}
  {%- do return(compiled_code) -%}
{% endmacro %}


{#- dbt prints the name as JSON, which needs no quotes escaped before. -#}
{% macro streamsql__resolve_model_name(input_model_name) %}
  {{- input_model_name | string -}}
{% endmacro %}
