"""`incremental` models and python models, through dbt."""

from __future__ import annotations

SOURCE = """
    {{ config(materialized='table') }}
    select * from values (1, 'a'), (2, 'b') as t(id, name)
"""
INCREMENTAL = """
    {{ config(materialized='incremental', unique_key='id', on_schema_change='sync_all_columns') }}
    select * from {{ ref('source') }}
"""


def rows(project, table="kept"):
    return sorted(project.sql(f"select * from lake.shop.{table}"), key=str)


def test_an_incremental_model_with_a_key_merges(project):
    project.write("models/source.sql", SOURCE)
    project.write("models/kept.sql", INCREMENTAL)
    assert project.dbt("run").ok
    project.write("models/source.sql", SOURCE.replace("(1, 'a')", "(1, 'z'), (3, 'c')"))
    assert project.dbt("run").ok
    assert rows(project) == [(1, "z"), (2, "b"), (3, "c")]


def test_columns_come_and_go_with_the_query(project):
    project.write("models/source.sql", SOURCE)
    project.write("models/kept.sql", INCREMENTAL)
    assert project.dbt("run").ok
    other = "{{ config(materialized='table') }} select 2 as id, 7 as size"
    project.write("models/source.sql", other)
    assert project.dbt("run").ok
    assert rows(project) == [(1, None), (2, 7)]


def test_a_full_refresh_that_fails_leaves_the_incremental_table(project):
    project.write("models/source.sql", SOURCE)
    project.write("models/kept.sql", INCREMENTAL)
    assert project.dbt("run").ok
    project.write("models/kept.sql", INCREMENTAL.replace("*", "cast(name as int) as id"))
    failed = project.dbt("run", "--full-refresh", "--select", "kept")
    assert not failed.ok
    assert "CAST_INVALID_INPUT" in failed.messages["kept"]
    assert rows(project) == [(1, "a"), (2, "b")]
    assert project.snapshots("kept") == 1


def test_a_python_model_reads_and_is_read_like_any_other(project):
    project.write("models/source.sql", SOURCE)
    project.write(
        "models/shouted.py",
        """
        def model(dbt, session):
            dbt.config(materialized="table")
            return dbt.ref("source").selectExpr("id", "upper(name) as name")
        """,
    )
    project.write(
        "models/lengths.py",
        """
        import pandas as pd

        def model(dbt, session):
            dbt.config(materialized="incremental", unique_key="name")
            names = [row.name for row in dbt.ref("shouted").collect()]
            return pd.DataFrame({"name": names, "size": [len(name) for name in names]})
        """,
    )
    view = "{{ config(materialized='view') }} select max(size) as size from {{ ref('lengths') }}"
    project.write("models/longest.sql", view)
    assert project.dbt("run").ok
    assert project.dbt("run").ok
    assert rows(project, "shouted") == [(1, "A"), (2, "B")]
    assert rows(project, "lengths") == [("A", 1), ("B", 1)]
    assert rows(project, "longest") == [(1,)]


def test_a_python_model_reads_the_version_that_is_not_published_yet(project):
    project.write("models/source.sql", SOURCE)
    mv = "{{ config(materialized='materialized_view') }} select count(*) as n from {{ ref('source') }}"
    project.write("models/counted.sql", mv)
    project.write(
        "models/copied.py",
        """
        def model(dbt, session):
            dbt.config(materialized="table")
            return dbt.ref("counted")
        """,
    )
    assert project.dbt("run").ok
    assert rows(project, "copied") == [(2,)]


def test_a_python_model_that_fails_says_where(project):
    project.write(
        "models/broken.py",
        """
        def model(dbt, session):
            dbt.config(materialized="table")
            return {}["missing"]
        """,
    )
    project.write("models/number.py", "def model(dbt, session):\n    return 7\n")
    failed = project.dbt("run")
    assert not failed.ok
    for part in ("PYTHON_MODEL", "KeyError: 'missing'", "line 3"):
        assert part in failed.messages["broken"], failed.messages["broken"]
    assert "given: int" in failed.messages["number"]
    assert project.tables() == set()


def test_a_snapshot_keeps_what_a_row_was(project):
    project.write("models/source.sql", SOURCE)
    project.write(
        "snapshots/history.sql",
        """
        {% snapshot history %}
          {{ config(target_schema='shop', unique_key='id', strategy='check', check_cols='all') }}
          select * from {{ ref('source') }}
        {% endsnapshot %}
        """,
    )
    assert project.dbt("build").ok
    project.write("models/source.sql", SOURCE.replace("(1, 'a')", "(1, 'z')"))
    assert project.dbt("build").ok
    assert project.dbt("build").ok
    found = project.sql("select id, name, dbt_valid_to is null from lake.shop.history")
    assert sorted(found) == [(1, "a", False), (1, "z", True), (2, "b", True)]


def test_a_snapshot_may_have_a_key_of_several_columns(project):
    project.write("models/source.sql", SOURCE)
    project.write(
        "snapshots/history.sql",
        """
        {% snapshot history %}
          {{ config(target_schema='shop', unique_key=['id', 'name'], strategy='check', check_cols='all') }}
          select *, 1 as size from {{ ref('source') }}
        {% endsnapshot %}
        """,
    )
    for _ in range(3):
        assert project.dbt("build").ok
    assert project.sql("select count(*) from lake.shop.history") == [(2,)]
    columns = project.sql("describe table lake.shop.history")
    assert not [row[0] for row in columns if row[0].startswith("dbt_unique_key")]
