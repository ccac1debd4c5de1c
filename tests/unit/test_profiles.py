"""A profile as the commands read it that are not dbt's."""

from __future__ import annotations

from contextvars import Context

from dbt_streamsql.adapter.profiles import credentials_of

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
