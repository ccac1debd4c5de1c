"""A profile as the commands read it that are not dbt's."""

from __future__ import annotations

from contextvars import Context

import pytest
import yaml
from click.testing import CliRunner

from dbt_streamsql.adapter.profile.profiles import credentials_of
from dbt_streamsql.cli import main

PROFILE = """
shop:
  target: dev
  outputs:
    dev:
      type: streamsql
      schema: "{{ env_var('SHOP_SCHEMA') }}"
      connections:
        db: {password: "{{ env_var('DBT_ENV_SECRET_SHOP') }}"}
"""


def test_a_command_reads_a_profile_that_asks_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_SCHEMA", "sales")
    monkeypatch.setenv("DBT_ENV_SECRET_SHOP", "open sesame")
    (tmp_path / "dbt_project.yml").write_text("name: shop\nprofile: shop\n")
    (tmp_path / "profiles.yml").write_text(PROFILE)
    folder = str(tmp_path)
    # In a context of its own: another test's dbt may have left its invocation in this one.
    credentials, _ = Context().run(credentials_of, folder, folder, None, None)
    assert credentials.schema == "sales"
    assert credentials.connections == {"db": {"password": "open sesame"}}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A project with two targets in one folder, its profiles in another, and a third to work in."""
    outputs = {
        name: {"type": "streamsql", "schema": name, "warehouse": str(tmp_path / name)}
        for name in ("dev", "prod")
    }
    profiles = {name: {"target": "dev", "outputs": outputs} for name in ("shop", "other")}
    for folder in ("project", "profiles", "work"):
        (tmp_path / folder).mkdir()
    (tmp_path / "project" / "dbt_project.yml").write_text("name: shop\nprofile: other\n")
    (tmp_path / "profiles" / "profiles.yml").write_text(yaml.safe_dump(profiles))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.mark.parametrize("prefix", ["DBT", "DBT_ENGINE"])
def test_dbts_variables_say_which_project_profile_and_target_are_meant(
    elsewhere, monkeypatch, prefix
):
    monkeypatch.setenv(f"{prefix}_PROJECT_DIR", str(elsewhere / "project"))
    monkeypatch.setenv(f"{prefix}_PROFILES_DIR", str(elsewhere / "profiles"))
    monkeypatch.setenv(f"{prefix}_PROFILE", "shop")
    monkeypatch.setenv(f"{prefix}_TARGET", "prod")
    credentials, root = Context().run(credentials_of, None, None, None, None)
    assert (credentials.schema, root) == ("prod", elsewhere / "project")
    told, _ = Context().run(credentials_of, None, None, None, "dev")
    assert told.schema == "dev", "an option goes before"


def test_a_command_finds_its_warehouse_by_dbts_variables(elsewhere, monkeypatch):
    monkeypatch.setenv("DBT_PROJECT_DIR", str(elsewhere / "project"))
    monkeypatch.setenv("DBT_PROFILES_DIR", str(elsewhere / "profiles"))
    monkeypatch.setenv("DBT_TARGET", "prod")
    done = CliRunner().invoke(main, ["topology", "--json"])
    assert "nothing has run in this warehouse yet" in done.output
    # A warehouse by its folder is none of a project: the variables are not for it.
    alone = CliRunner().invoke(main, ["topology", "--json", "--warehouse", str(elsewhere / "dev")])
    assert "cannot be combined" not in alone.output
