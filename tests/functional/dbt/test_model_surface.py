"""Headers, hooks, clones and changed configs of models, through dbt."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

SOURCE = (
    "{{ config(materialized='table') }} select * from values (1, 'a'), (2, 'b') as t(id, name)"
)
VIEW = """
    {{ config(materialized='materialized_view', CONFIG) }}
    select count(*) as n from {{ ref('source') }}
"""


@pytest.mark.parametrize("kind", ["table", "view", "incremental"])
def test_a_header_runs_before_its_model_and_for_no_other(project, kind):
    config = f"{{{{ config(materialized='{kind}') }}}}"
    header = (
        "{% call set_sql_header(config) %} set time zone 'Asia/Kolkata'; select ';' {% endcall %}"
    )
    project.write(
        "models/first.sql", f"{config} {header} select 1 as id, current_timezone() as zone"
    )
    project.write("models/other.sql", "select 2 as id, current_timezone() as zone")
    project.write("models/after.sql", "select zone from {{ ref('other') }} -- {{ ref('first') }}")
    done = project.dbt("run", "--threads", "1")
    assert done.ok, done.messages
    if kind != "view":
        assert project.sql("select zone from lake.shop.first") == [("Asia/Kolkata",)]
    assert project.sql("select zone from lake.shop.after") != [("Asia/Kolkata",)]


def test_hooks_outside_of_a_transaction_run(project):
    project.write("models/source.sql", SOURCE)
    hook = "insert into lake.shop.source values (9, 'hook')"
    config = f'{{{{ config(materialized="table", post_hook={{"sql": "{hook}", "transaction": false}}) }}}}'
    project.write("models/t.sql", f"{config} select * from {{{{ ref('source') }}}}")
    done = project.dbt("run")
    assert done.ok, done.messages
    assert (9, "hook") in project.sql("select * from lake.shop.source")


def test_a_clone_is_a_table_of_its_own_with_the_layout_of_its_model(project):
    config = "materialized='table', partition_by='id', tblproperties={'team': 'blue'}"
    project.write("models/source.sql", SOURCE.replace("materialized='table'", config))
    project.write("models/seen.sql", "select * from {{ ref('source') }}")
    assert project.dbt("run").ok
    (project.root / "target").rename(project.root / "state")
    project.profile({"schema": "dev", "threads": 2})
    done = project.dbt("clone", "--state", "state")
    assert done.ok, done.messages
    project.sql("insert into lake.shop.source values (3, 'c')")
    assert len(project.sql("select * from lake.dev.source")) == 2
    # What was a view is a view of the original.
    assert len(project.sql("select * from lake.dev.seen")) == 3
    assert len(project.sql("select * from lake.dev.source.partitions")) == 2
    assert ("team", "blue") in project.sql("show tblproperties lake.dev.source")
    project.sql("drop table lake.shop.source purge")
    assert len(project.sql("select * from lake.dev.source")) == 2


def properties(project):
    return dict(project.sql("show tblproperties lake.shop.counted"))


def test_table_properties_of_a_materialized_view_follow_its_config(project):
    project.write("models/source.sql", SOURCE)
    project.write("models/counted.sql", VIEW.replace("CONFIG", "tblproperties={'a': 'x', 'b': 1}"))
    assert project.dbt("run").ok
    assert (properties(project)["a"], properties(project)["b"]) == ("x", "1")
    snapshots = project.snapshots("counted")
    project.write("models/counted.sql", VIEW.replace("CONFIG", """tblproperties={'a': "it's"}"""))
    assert project.dbt("run", "--select", "counted").messages == {"counted": "NOOP"}
    assert properties(project)["a"] == "it's"
    assert "b" not in properties(project)
    assert project.snapshots("counted") == snapshots


def test_a_change_of_config_is_refused_or_left_alone_on_request(project):
    project.write("models/source.sql", SOURCE)
    project.write("models/counted.sql", VIEW.replace("CONFIG", "tblproperties={'a': 'x'}"))
    assert project.dbt("run").ok
    for reaction in ("fail", "continue"):
        config = f"tblproperties={{'a': 'y'}}, on_configuration_change='{reaction}'"
        project.write("models/counted.sql", VIEW.replace("CONFIG", config))
        done = project.dbt("run", "--select", "counted")
        assert done.ok is (reaction == "continue")
        assert properties(project)["a"] == "x"


@pytest.mark.parametrize(
    "config", ["tblproperties={'format-version': '2'}", "sql_header='select 1'"]
)
def test_what_a_materialized_view_cannot_have_is_refused(project, config):
    project.write("models/source.sql", SOURCE)
    project.write("models/counted.sql", VIEW.replace("CONFIG", config))
    failed = project.dbt("run")
    assert not failed.ok
    assert "CONFIG_INVALID" in failed.messages["counted"]
    assert project.tables() == {"source"}


def test_an_empty_build_makes_every_table_without_rows(project):
    project.write("seeds/numbers.csv", "id,price\n1,1.5\n2,2.5\n")
    project.write(
        "models/t.sql", "{{ config(materialized='table') }} select * from {{ ref('numbers') }}"
    )
    assert project.dbt("build", "--empty").ok
    types = [row[1] for row in project.sql("describe table lake.shop.numbers")]
    assert types[0] == "bigint"
    assert project.sql("select count(*) from lake.shop.numbers") == [(0,)]
    assert project.sql("select count(*) from lake.shop.t") == [(0,)]
    assert project.dbt("build").ok
    assert project.sql("select count(*) from lake.shop.t") == [(2,)]
