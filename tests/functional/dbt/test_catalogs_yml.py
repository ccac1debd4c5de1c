"""`catalogs.yml`: tables in Iceberg catalogs besides the profile's."""

from __future__ import annotations

import pytest
from dbt.config import catalogs

CATALOGS = """
    catalogs:
      - name: archive
        active_write_integration: local
        write_integrations:
          - name: local
            catalog_type: iceberg
            external_volume: ./archive
            file_format: orc
"""


def test_models_of_every_kind_are_built_in_the_catalog_that_they_name(project):
    project.write("catalogs.yml", CATALOGS)
    project.write("seeds/s.csv", "id\n1\n2\n")
    project.write("dbt_project.yml", "name: shop\nprofile: shop\nseeds: {catalog_name: archive}\n")
    in_archive = "catalog_name='archive'"
    project.write(
        "models/t.sql",
        f"{{{{ config(materialized='table', {in_archive}) }}}} select * from {{{{ ref('s') }}}}",
    )
    project.write(
        "models/v.sql", f"{{{{ config({in_archive}) }}}} select * from {{{{ ref('t') }}}}"
    )
    project.write(
        "models/m.sql",
        """
        {{ config(materialized='materialized_view') }}
        select count(*) as n from {{ ref('t') }}
        """,
    )
    for _ in range(2):
        done = project.dbt("build")
        assert done.ok, done.messages
    assert project.sql("SELECT id FROM archive.shop.v ORDER BY id") == [(1,), (2,)]
    assert project.sql("SELECT n FROM lake.shop.m") == [(2,)]
    assert (project.root / "archive" / "catalog.db").is_file()
    (file,) = project.sql("SELECT file_format FROM archive.shop.t.files")
    assert file == ("ORC",)
    assert project.tables() == {"m"}
    assert project.dbt("docs", "generate").ok
    node = project.json("catalog.json")["nodes"]["model.shop.t"]
    assert node["metadata"]["database"] == "archive"


def test_everything_wrong_with_an_entry_is_in_one_error(project):
    wrong = CATALOGS.replace("external_volume: ./archive", "table_format: delta")
    project.write("catalogs.yml", wrong.replace("orc", "csv"))
    project.write("models/t.sql", "select 1 as id")
    done = project.dbt("run")
    assert not done.ok
    for part in ("CONFIG_INVALID", "`external_volume` is missing", "`table_format`", "csv"):
        assert part in done.error


def test_a_materialized_view_stays_in_the_profiles_catalog(project):
    project.write("catalogs.yml", CATALOGS)
    project.write(
        "models/m.sql",
        "{{ config(materialized='materialized_view', catalog_name='archive') }} select 1 as id",
    )
    done = project.dbt("run")
    assert "a materialized view must be in the profile's catalog" in done.messages["m"]


def test_a_catalog_that_is_not_in_the_file_is_refused(project):
    project.write(
        "models/t.sql", "{{ config(materialized='table', catalog_name='x') }} select 1 i"
    )
    done = project.dbt("run")
    assert not done.ok
    assert "x" in done.messages.get("t", done.error)


@pytest.mark.skipif(
    not hasattr(catalogs, "load_catalogs_v2"),
    reason="dbt-core before 1.12; `make versions ARGS='--only dbt-1.12'` runs it",
)
def test_the_second_version_of_the_file_names_the_same_catalogs(project):
    project.write(
        "catalogs.yml",
        """
        catalogs:
          - name: archive
            type: iceberg
            table_format: iceberg
            config: {streamsql: {external_volume: ./archive, file_format: orc}}
        """,
    )
    project.write("dbt_project.yml", "name: shop\nprofile: shop\nflags: {use_catalogs_v2: true}\n")
    project.write(
        "models/t.sql", "{{ config(materialized='table', catalog_name='archive') }} select 1 as id"
    )
    done = project.dbt("build")
    assert done.ok, done.error or done.messages
    assert project.sql("SELECT id FROM archive.shop.t") == [(1,)]
    assert project.sql("SELECT file_format FROM archive.shop.t.files") == [("ORC",)]
    file = project.root / "catalogs.yml"
    file.write_text(file.read_text().replace("type: iceberg", "type: horizon", 1))
    done = project.dbt("build")
    assert not done.ok
    assert "horizon" in done.error
    assert "iceberg_rest" in done.error
