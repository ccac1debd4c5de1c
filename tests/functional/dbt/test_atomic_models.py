"""Models whose tables are staged, checked and then published, as dbt's user meets them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dbt_streamsql.meta.store.staged_tables import SqlStagedLedger
from dbt_streamsql.quoting import TableName
from dbt_streamsql.storage.staged_table import StagingPurpose, TableSpec
from dbt_streamsql.storage.tables import jdbc, registry
from tests.support.postgres import server

pytestmark = pytest.mark.spark

CONTRACT = """
models:
  - name: m
    config: {contract: {enforced: true}, on_schema_change: fail}
    constraints:
      - {type: check, expression: "id < 100", name: small}
      - {type: primary_key, columns: [id]}
    columns:
      - {name: id, data_type: int}
      - {name: name, data_type: string, constraints: [{type: unique}, {type: not_null}]}
"""
GOOD = "select 1 as id, 'a' as name union all select 2, 'b'"
BROKEN = {
    "small": "select 1 as id, 'x' as name union all select 100, 'y'",
    "primary_key": "select 1 as id, 'x' as name union all select 1, 'y'",
    "not_null": "select 1 as id, 'x' as name union all select 2, null",
    "unique": "select 1 as id, 'x' as name union all select 2, 'x'",
}


def model(text, **config):
    pairs = ", ".join(f"{key}={value!r}" for key, value in config.items())
    return f"{{{{ config({pairs}) }}}}\n{text}"


@pytest.mark.parametrize("kind", ["table", "incremental"])
def test_rows_that_break_a_contract_are_never_published(project, kind):
    project.write("models/m.yml", CONTRACT)
    project.write("models/m.sql", model(BROKEN["small"], materialized=kind))
    assert "CONSTRAINT_VIOLATED" in project.dbt("run").messages["m"]
    assert project.tables() == set()
    project.write("models/m.sql", model(GOOD, materialized=kind))
    done = project.dbt("run")
    assert done.ok, done.messages
    for constraint, query in BROKEN.items():
        project.write("models/m.sql", model(query, materialized=kind))
        message = project.dbt("run", "--full-refresh").messages["m"]
        assert "CONSTRAINT_VIOLATED" in message
        assert constraint in message
        assert "lake.shop.m" in message
    assert sorted(project.sql("SELECT * FROM lake.shop.m")) == [(1, "a"), (2, "b")]
    assert project.snapshots("m") == 1


def test_comments_and_properties_are_part_of_the_one_new_version(project):
    project.write(
        "models/m.yml",
        """
        models:
          - name: m
            description: what it is
            columns: [{name: id, description: the key}]
        """,
    )
    docs = {"relation": True, "columns": True}
    text = model("select 1 as id", materialized="table", persist_docs=docs, partition_by="id")
    project.write("models/m.sql", text)
    assert project.dbt("run").ok
    log = (
        "SELECT count(*) FROM lake.shop.m.metadata_log_entries WHERE file NOT LIKE '%_streamsql_%'"
    )
    before = project.sql(log)[0][0]
    assert project.dbt("run").ok
    told = {row[0]: row for row in project.sql("DESCRIBE EXTENDED lake.shop.m")}
    assert (told["Comment"][1], told["id"][2]) == ("what it is", "the key")
    assert project.snapshots("m") == 2
    assert project.sql(log)[0][0] == before + 1, "comments came by commits of their own"


@pytest.mark.parametrize("kind", ["table", "view", "incremental", "materialized_view"])
def test_grants_are_refused_before_anything_is_built(project, kind):
    project.write(
        "models/m.sql", model("select 1 as id", materialized=kind, grants={"select": ["ann"]})
    )
    done = project.dbt("run")
    assert "GRANTS_UNSUPPORTED" in done.messages["m"]
    assert project.tables() == set()


def test_a_table_that_is_not_atomic_is_created_first_and_stays_when_its_build_fails(project):
    failing = "select id, 1 div (id - 5) as x from range(9)"
    project.write("models/m.sql", model(failing, materialized="table", atomic=False))
    assert "DIVIDE_BY_ZERO" in project.dbt("run").messages["m"]
    assert project.sql("SELECT count(*) FROM lake.shop.m") == [(0,)]
    project.write("models/m.sql", model("select 1 as id", materialized="table", atomic=False))
    assert project.dbt("run").ok
    assert project.sql("SELECT * FROM lake.shop.m") == [(1,)]
    project.write("models/m.sql", model("select 1 as id", materialized="table", atomic="perhaps"))
    assert "CONFIG_INVALID" in project.dbt("run").messages["m"]


def test_the_option_of_flip_305_sets_it_for_a_whole_profile(project):
    option = {"table.ctas.atomicity-enabled": "false"}
    project.profile({"schema": "shop", "spark_properties": option})
    project.write(
        "models/m.sql", model("select 1 div (id - 5) as x from range(9)", materialized="table")
    )
    assert "DIVIDE_BY_ZERO" in project.dbt("run").messages["m"]
    assert project.tables() == {"m"}


def test_a_target_without_staging_says_so(project):
    text = model("select 1 as id", materialized="table", file_format="hudi")
    project.write("models/m.sql", text)
    message = project.dbt("run").messages["m"]
    assert "ATOMIC_UNSUPPORTED" in message
    assert "atomic: false" in message
    assert project.tables() == set()


def test_a_materialized_view_may_become_a_table_and_keeps_its_history(project):
    project.write("models/m.sql", model("select 1 as id", materialized="materialized_view"))
    assert project.dbt("run").ok
    project.write("models/m.sql", model("select 1 / 0 as id", materialized="table"))
    assert not project.dbt("run").ok
    assert project.host.engine.queries.knows("lake.shop.m")
    project.write("models/m.sql", model("select 2 as id", materialized="table"))
    done = project.dbt("run")
    assert done.ok, done.messages
    assert project.sql("SELECT id FROM lake.shop.m") == [(2,)]
    assert not project.host.engine.queries.knows("lake.shop.m")
    assert project.snapshots("m") == 2


def test_what_a_dead_run_left_goes_with_the_sweep_and_with_the_next_run(project):
    project.write("models/m.sql", model("select 1 as id", materialized="table"))
    assert project.dbt("run").ok
    warehouse = project.host.engine.warehouse
    spark = project.host.engine.spark

    def die():
        ledger = SqlStagedLedger(warehouse.store.database)
        spec = TableSpec(TableName("lake", "shop", "m"))
        purpose = StagingPurpose.CREATE_OR_REPLACE_TABLE_AS
        staged = registry.apply_staging(spark, spec, purpose, warehouse.location)
        ledger.record(staged.token, "lake.shop.m", registry.to_json(staged))
        staged.begin(spark, "SELECT 2 AS id")
        ledger.close()  # as a death does: the lock is free, the record stays

    die()
    assert project.dbt("run-operation", "streamsql_sweep").ok
    assert warehouse.store.staged.records() == []
    assert project.sql("SHOW TABLES IN lake.__streamsql_staging") == []
    die()
    project.host.engine.epochs.swept = False  # as in a new process
    assert project.dbt("run").ok
    assert warehouse.store.staged.records() == []
    assert project.sql("SELECT id FROM lake.shop.m") == [(1,)]


def test_models_may_be_parquet_under_the_metastore(project):
    text = model(
        GOOD, materialized="table", database="spark_catalog", schema="files", file_format="parquet"
    )
    project.write("models/p.sql", text)
    reader = "{{ config(materialized='table') }} select count(*) as n from {{ ref('p') }}"
    project.write("models/n.sql", reader)
    for _ in range(2):
        done = project.dbt("run")
        assert done.ok, done.messages
    assert project.sql("SELECT n FROM lake.shop.n") == [(2,)]
    project.write("models/p.sql", text.replace("as id, 'a'", "div 0 as id, 'a'"))
    assert not project.dbt("run", "--select", "p").ok
    assert project.sql("SELECT count(*) FROM spark_catalog.shop_files.p") == [(2,)]


@pytest.mark.processes
def test_models_may_be_tables_of_another_database_and_are_read_back(
    project, tmp_path, monkeypatch
):
    password = "it's \\ a secret"  # noqa: S105 - made up for a test
    monkeypatch.setenv("DBT_ENV_SECRET_PG", password)
    prefix = "spark.sql.catalog.pg"
    with server(password) as port:
        project.profile(
            {
                "schema": "shop",
                "server": False,
                "connectors": ["postgres"],
                "spark_properties": {
                    prefix: jdbc.CATALOG,
                    f"{prefix}.url": f"jdbc:postgresql://127.0.0.1:{port}/postgres",
                    f"{prefix}.driver": "org.postgresql.Driver",
                    f"{prefix}.user": "postgres",
                    f"{prefix}.password": "{{ env_var('DBT_ENV_SECRET_PG') }}",
                },
            }
        )
        project.write(
            "macros/names.sql",
            "{% macro generate_schema_name(custom, node) %}{{ custom or target.schema }}{% endmacro %}",
        )
        project.write("models/m.yml", CONTRACT.replace("name: m", "name: j"))
        options = {"database": "pg", "schema": "public", "file_format": "jdbc"}
        project.write("models/j.sql", model(GOOD, materialized="table", **options))
        reader = "select id, name from {{ ref('j') }} order by id"
        project.write(
            "tests/read_back.sql", f"select count(*) from ({reader}) having count(*) <> 2"
        )
        assert_dbt(project, 0, "build")
        project.write("models/j.sql", model(BROKEN["small"], materialized="table", **options))
        assert "CONSTRAINT_VIOLATED" in assert_dbt(project, 1, "run")
        assert_dbt(project, 0, "test")
    logs = (project.root / "logs" / "dbt.log").read_text()
    assert password not in logs


def assert_dbt(project, code, *arguments):
    """Run dbt in a process of its own, whose Spark has the jars of the profile; its output."""
    command = [sys.executable, "-c", "from dbt.cli.main import cli; cli()", *arguments]
    folders = ["--project-dir", str(project.root), "--profiles-dir", str(project.root)]
    done = subprocess.run(
        [*command, *folders, "--log-path", str(project.root / "logs")],
        capture_output=True,
        text=True,
        check=False,
        cwd=project.root,
    )
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-1000:]
    return done.stdout
