{#- dbt's, without the `commit` that it sends before hooks outside of a transaction: Spark has no
    transactions, so that every hook is outside of one. A statement reads what the run has staged;
    one that can only be about what is published (GRANT, ALTER, CALL, ...) waits until then. -#}
{% macro run_hooks(hooks, inside_transaction=True) %}
  {%- for hook in hooks | selectattr('transaction', 'equalto', inside_transaction) -%}
    {%- set rendered = render(hook.get('sql')) | trim -%}
    {%- if rendered and not adapter.streamsql_waits(this, rendered) -%}
      {% call statement(auto_begin=inside_transaction) -%}
        {{ rendered }}
      {%- endcall %}
    {%- endif -%}
  {%- endfor -%}
{% endmacro %}


{#- The hooks after a model that the run stages. The run is its transaction: hooks that are to run
    after the commit (`after_commit`, `transaction: false`) wait until it is published. -#}
{% macro streamsql_run_post_hooks(hooks) %}
  {{ run_hooks(hooks, inside_transaction=True) }}
  {%- for hook in hooks | selectattr('transaction', 'equalto', False) -%}
    {%- set rendered = render(hook.get('sql')) | trim -%}
    {%- if rendered -%}{%- do adapter.streamsql_when_published(this, rendered) -%}{%- endif -%}
  {%- endfor -%}
{% endmacro %}
