"""The strategies of `incremental`, through dbt: what stays, what goes, and in one version."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

SOURCE = """
    {{ config(materialized='table') }}
    select * from values (1, 'a'), (2, 'b') as t(id, name)
"""
KEPT = """
    {{ config(materialized='incremental', STRATEGY) }}
    select * from {{ ref('source') }}
"""


def write(project, strategy, source=SOURCE):
    project.write("models/source.sql", source)
    project.write("models/kept.sql", KEPT.replace("STRATEGY", strategy))


def rows(project, table="kept"):
    return sorted(project.sql(f"select * from lake.shop.{table}"), key=str)


def refs(project):
    return [row[0] for row in project.sql("select name from lake.shop.kept.refs")]


def test_append_keeps_what_is_there(project):
    write(project, "incremental_strategy='append'")
    assert project.dbt("run").ok
    assert project.dbt("run").ok
    assert rows(project) == [(1, "a"), (1, "a"), (2, "b"), (2, "b")]


def test_insert_overwrite_replaces_the_partitions_that_the_new_rows_have(project):
    write(project, "incremental_strategy='insert_overwrite', partition_by='id'")
    assert project.dbt("run").ok
    write(
        project,
        "incremental_strategy='insert_overwrite', partition_by='id'",
        SOURCE.replace("(1, 'a'), (2, 'b')", "(2, 'x'), (2, 'y')"),
    )
    assert project.dbt("run").ok
    assert rows(project) == [(1, "a"), (2, "x"), (2, "y")]


def test_delete_insert_replaces_the_rows_of_the_new_keys_in_one_version(project):
    write(project, "incremental_strategy='delete+insert', unique_key=['id']")
    assert project.dbt("run").ok
    before = refs(project)
    new = SOURCE.replace("(1, 'a'), (2, 'b')", "(2, 'x'), (2, 'y'), (3, 'c')")
    write(project, "incremental_strategy='delete+insert', unique_key=['id']", new)
    assert project.dbt("run").ok
    assert rows(project) == [(1, "a"), (2, "x"), (2, "y"), (3, "c")]
    assert refs(project) == before == ["main"]
    # Nobody saw the table between the delete and the insert: main never stood there.
    seen = project.sql(
        "select h.snapshot_id, s.operation from lake.shop.kept.history h "
        "join lake.shop.kept.snapshots s using (snapshot_id) order by h.made_current_at"
    )
    assert [operation for _, operation in seen] == ["append", "append"]


def test_delete_insert_that_fails_leaves_the_table_and_no_branch(project):
    write(project, "incremental_strategy='delete+insert', unique_key='id'")
    assert project.dbt("run").ok
    project.write(
        "models/kept.sql",
        KEPT.replace("STRATEGY", "incremental_strategy='delete+insert', unique_key='id'").replace(
            "*", "id, if(id = 2, raise_error('no'), name) as name"
        ),
    )
    assert not project.dbt("run", "--select", "kept").ok
    assert rows(project) == [(1, "a"), (2, "b")]
    assert refs(project) == ["main"]


def test_delete_insert_removes_the_branch_that_a_dead_writer_left(project):
    write(project, "incremental_strategy='delete+insert', unique_key='id'")
    assert project.dbt("run").ok
    project.sql("alter table lake.shop.kept create branch streamsql_rows_dead")
    assert project.dbt("run").ok
    assert refs(project) == ["main"]


def test_a_strategy_of_the_project_is_a_macro(project):
    project.write(
        "macros/strategy.sql",
        """
        {% macro get_incremental_twice_sql(arg_dict) %}
          insert into {{ arg_dict['target_relation'] }}
          select * from {{ arg_dict['temp_relation'] }}
          union all select * from {{ arg_dict['temp_relation'] }}
        {% endmacro %}
        """,
    )
    write(project, "incremental_strategy='twice'")
    assert project.dbt("run").ok
    assert project.dbt("run").ok
    assert len(rows(project)) == 6


def test_a_strategy_that_nobody_defined_is_refused_and_changes_nothing(project):
    write(project, "incremental_strategy='nothing_such'")
    failed = project.dbt("run")
    assert not failed.ok
    assert "get_incremental_nothing_such_sql" in failed.messages["kept"]
    assert project.tables() == {"source"}


def test_a_batch_replaces_exactly_its_time_whatever_the_partitions(project):
    times = "{{ config(materialized='table', event_time='at') }} select * from values TIMES as t(id, at)"
    first = "(1, timestamp '2020-01-01 10:00:00'), (2, timestamp '2020-01-02 10:00:00')"
    project.write("models/times.sql", times.replace("TIMES", first))
    project.write(
        "models/batched.sql",
        """
        {{ config(materialized='incremental', incremental_strategy='microbatch', event_time='at',
                  batch_size='day', begin='2020-01-01', partition_by='months(at)') }}
        select * from {{ ref('times') }}
        """,
    )
    window = ("--event-time-start", "2020-01-01", "--event-time-end", "2020-01-03")
    assert project.dbt("run", *window).ok
    later = "(7, timestamp '2020-01-01 11:00:00'), (8, timestamp '2020-01-02 11:00:00')"
    project.write("models/times.sql", times.replace("TIMES", later))
    second = ("--event-time-start", "2020-01-02", "--event-time-end", "2020-01-03")
    assert project.dbt("run", *second).ok
    found = project.sql("select id from lake.shop.batched order by id")
    assert found == [(1,), (8,)]


@pytest.mark.parametrize("strategy", ["append", "merge", "delete+insert", "insert_overwrite"])
def test_rows_that_break_the_contract_never_show(project, strategy):
    project.write(
        "models/models.yml",
        """
        models:
          - name: kept
            config: {contract: {enforced: true}, on_schema_change: append_new_columns}
            columns:
              - {name: id, data_type: int, constraints: [{type: not_null}, {type: primary_key}]}
              - {name: name, data_type: string}
        """,
    )
    write(project, f"incremental_strategy='{strategy}', unique_key='id'")
    assert project.dbt("run").ok
    for new, part in (
        ("(cast(null as int), 'x')", "not_null"),
        ("(7, 'x'), (7, 'y')", "primary_key"),
    ):
        write(
            project,
            f"incremental_strategy='{strategy}', unique_key='id'",
            SOURCE.replace("(1, 'a'), (2, 'b')", new),
        )
        failed = project.dbt("run")
        assert not failed.ok
        assert "CONSTRAINT_VIOLATED" in failed.messages["kept"]
        assert part in failed.messages["kept"]
        assert rows(project) == [(1, "a"), (2, "b")]
        assert refs(project) == ["main"]


def test_columns_with_special_characters_come_and_go(project):
    project.write("models/source.sql", SOURCE)
    config = "{{ config(materialized='incremental', on_schema_change='sync_all_columns') }}"
    project.write("models/kept.sql", f"{config} select 1 as id, 2 as `a b`")
    assert project.dbt("run").ok
    project.write("models/kept.sql", f"{config} select 3 as id, 4 as `c-d.e`")
    done = project.dbt("run")
    assert done.ok, done.messages
    fields = project.sql("describe table lake.shop.kept")
    assert [row[0] for row in fields] == ["id", "c-d.e"]
    assert rows(project) == [(1, None), (3, 4)]
