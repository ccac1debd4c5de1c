{#- dbt's, without the `commit` that it sends before hooks outside of a transaction: Spark has no
    transactions, so that every hook is outside of one. -#}
{% macro run_hooks(hooks, inside_transaction=True) %}
  {%- for hook in hooks | selectattr('transaction', 'equalto', inside_transaction) -%}
    {%- set rendered = render(hook.get('sql')) | trim -%}
    {%- if rendered -%}
      {% call statement(auto_begin=inside_transaction) -%}
        {{ rendered }}
      {%- endcall %}
    {%- endif -%}
  {%- endfor -%}
{% endmacro %}
