{#- All rows in one commit, the table's history stays. A table that is as the seed says is left alone. -#}
{% materialization seed, adapter='streamsql' %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {% do adapter.streamsql_check(target_relation, model) %}
  {%- set old_relation = load_cached_relation(this) -%}
  {%- set agate_table = load_agate_table() -%}
  {%- do store_result('agate_table', response='OK', agate_table=agate_table) -%}

  {% if old_relation is not none and not old_relation.is_table %}
    {{ exceptions.raise_compiler_error("Cannot seed to '{}', it is a {}".format(old_relation.render(), old_relation.type)) }}
  {% endif %}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- set fingerprint = '' if flags.EMPTY else adapter.streamsql_seed_fingerprint(target_relation, agate_table, model, model['config']) -%}
  {%- if old_relation is not none and fingerprint and not should_full_refresh() and adapter.streamsql_seed_is_loaded(target_relation, model, model['config'], fingerprint) -%}
    {%- set code, query = 'UNCHANGED', 'select * from ' ~ target_relation -%}
  {%- else -%}
    {%- set source = adapter.streamsql_seed_source(agate_table, model['config'].get('column_types', {}), model['config'].get('quote_columns')) -%}
    {%- set code, query = 'CREATE' if should_full_refresh() else 'INSERT', 'select * from ' ~ source ~ (' limit 0' if flags.EMPTY else '') -%}
    {% do streamsql_replace(old_relation, target_relation, query, 'seed', fingerprint) %}
  {%- endif -%}

  {%- set rows_affected = 0 if flags.EMPTY else agate_table.rows | length -%}
  {% call noop_statement('main', code ~ ' ' ~ rows_affected, code, rows_affected) -%}
    {{ query }}
  {%- endcall %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
