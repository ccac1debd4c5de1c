"""The profiles of docs/profile.md, as they stand there: only addresses and folders are the test's."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import psycopg
import pytest

from dbt_streamsql.meta import open_store
from tests.support import dbt_processes, postgres

PAGE = Path(__file__).parents[3] / "docs" / "profile.md"
VIEW = """
{{ config(materialized='materialized_view') }}
select item, count(*) as n from {{ ref('sales') }} group by item
"""


def example(word):
    """The YAML block of the page with this word."""
    (block,) = (
        text.partition("```")[0]
        for text in PAGE.read_text().split("```yaml\n")[1:]
        if word in text.partition("```")[0]
    )
    return block


@pytest.mark.processes
def test_the_catalog_and_metaservice_may_be_in_postgresql(project, monkeypatch):
    monkeypatch.setenv("CATALOG_USER", "postgres")
    monkeypatch.setenv("DBT_ENV_SECRET_CATALOG_PASSWORD", postgres.PASSWORD)
    with postgres.server(postgres.PASSWORD) as port:
        at = {"host": "127.0.0.1", "port": port, "user": "postgres", "password": postgres.PASSWORD}
        with psycopg.connect(**at, autocommit=True) as admin:
            for name in ("catalog", "streamsql"):
                admin.execute(f"CREATE DATABASE {name}")
        told = example("jdbc:postgresql").replace("db:5432", f"127.0.0.1:{port}")
        told = told.replace("/srv/warehouse", str(project.root / "warehouse"))
        outputs = indent(told, "    ")
        project.write("profiles.yml", f"shop:\n  target: dev\n  outputs:\n{outputs}")
        project.write("models/items.sql", VIEW)
        for rows in ("1,a\n2,a\n3,b\n", "1,a\n2,a\n3,b\n4,b\n"):
            project.write("seeds/sales.csv", f"id,item\n{rows}")
            code, said = dbt_processes.run(project, "-c", dbt_processes.DBT, "build")
            assert code == 0, said
        with psycopg.connect(**at, dbname="catalog") as catalog:
            tables = catalog.execute("SELECT table_name FROM iceberg_tables").fetchall()
        assert {("sales",), ("items",)} <= set(tables)
        address = f"postgresql+psycopg://postgres:{postgres.PASSWORD}@127.0.0.1:{port}/streamsql"
        store = open_store(address)
        assert store.last_committed() == 2
        store.close()
