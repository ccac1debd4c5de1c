{#- dbt's own clone; dbt-spark's takes Delta tables only. -#}
{% materialization clone, adapter='streamsql' %}
  {%- do return(materialization_clone_default()) -%}
{% endmaterialization %}


{% macro streamsql__can_clone_table() %}
  {%- do return(True) -%}
{% endmacro %}


{#- Iceberg has no clone that shares files soundly: two tables over the same files would remove
    them from under each other. So the rows are copied, from one version and in one commit. -#}
{% macro streamsql__create_or_replace_clone(this_relation, defer_relation) %}
  {{ create_table_as(False, this_relation, 'select * from ' ~ defer_relation) }}
{% endmacro %}
