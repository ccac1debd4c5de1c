{#- A python model is run in this process; from then on it is a query over a temporary view. -#}
{% macro streamsql_query(compiled_code) %}
  {%- if model['language'] == 'python' -%}
    {% do adapter.streamsql_run_python(compiled_code, streamsql_python_view()) %}
    {%- do return('select * from ' ~ adapter.quote(streamsql_python_view())) -%}
  {%- endif -%}
  {%- do return(compiled_code) -%}
{% endmacro %}


{% macro streamsql_forget_query() %}
  {%- if model['language'] == 'python' -%}
    {% do adapter.streamsql_drop_temporary(streamsql_python_view()) %}
  {%- endif -%}
{% endmacro %}


{% macro streamsql_python_view() %}
  {%- do return('__streamsql_python_' ~ local_md5(model['unique_id'])) -%}
{% endmacro %}


{#- dbt prints the name as JSON, which needs no quotes escaped before. -#}
{% macro streamsql__resolve_model_name(input_model_name) %}
  {{- input_model_name | string -}}
{% endmacro %}
