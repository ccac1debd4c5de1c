"""Secrets come from the environment and are found nowhere afterwards."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import patience
from tests.support.postgres import server

pytestmark = [pytest.mark.spark, pytest.mark.processes]

CATALOG = ("jdbc.password", "credential", "token", "s3.secret-access-key", "s3.session-token")
SPARK = (
    "spark.authenticate.secret",
    "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.session.token",
    "spark.hadoop.javax.jdo.option.ConnectionPassword",
    "spark.kubernetes.authenticate.submission.oauthToken",
    "spark.shop.api-key",
    "spark.sql.catalog.other.jdbc.password",
    "spark.ssl.keyPassword",
    "spark.ssl.trustStorePassword",
)
OTHERS = ("PROFILE_TOKEN", "META", "META_TOKEN", "URI", "UNUSED_1", "UNUSED_2")
COMMANDS = """\
debug
seed
run
build
compile
docs generate
show --inline select_nothing
run-operation no_such_macro
run --target wrong_password
debug --target wrong_password
run --target no_service
debug --target no_service
run --target wrong_uri
debug --target wrong_uri
"""


def _variable(name: str) -> str:
    return "DBT_ENV_SECRET_" + "".join(c if c.isalnum() else "_" for c in name).upper()


def _given(name: str) -> str:
    return f"{{{{ env_var('{_variable(name)}') }}}}"


@pytest.fixture
def secrets():
    """20 secrets, by the variable that holds each."""
    names = [_variable(name) for name in (*CATALOG, *SPARK, *OTHERS)]
    assert len(set(names)) >= 20
    tails = {_variable(name): "-Xy7qz" for name in OTHERS}  # parts of URLs
    return {name: f"canary{i:02d}{tails.get(name, '/@q z%')}" for i, name in enumerate(names)}


@pytest.fixture
def planted(project):
    """A project whose profile uses every secret, and whose models fail in several ways."""
    catalog = {"type": "jdbc", "jdbc.schema-version": "V1"}
    catalog["uri"] = f"jdbc:sqlite:{project.root}/warehouse/catalog.db?journal_mode=WAL"
    catalog |= {key: _given(key) for key in CATALOG}
    spark = {key: _given(key) for key in SPARK}
    spark["spark.driver.memory"] = "1g"
    dev = {"type": "streamsql", "schema": "shop", "catalog_properties": catalog}
    dev |= {"spark_properties": spark, "token": _given("PROFILE_TOKEN")}
    with server("the right one") as port:
        meta = f"postgresql+psycopg://postgres:{_given('META')}@127.0.0.1:{port}/postgres"
        uri = f"jdbc:sqlite:/no/such/folder/catalog.db?password={_given('URI')}"
        outputs = {
            "dev": dev,
            "wrong_password": {**dev, "meta": meta},
            "no_service": {
                **dev,
                "meta": "http://127.0.0.1:1",
                "meta_token": _given("META_TOKEN"),
            },
            "wrong_uri": {**dev, "catalog_properties": {**catalog, "uri": uri}},
        }
        profile = {"shop": {"target": "dev", "outputs": outputs}}
        project.write("profiles.yml", yaml.safe_dump(profile))
        project.write("seeds/orders.csv", "id,amount\n1,10\n2,0\n")
        view = "{{ config(materialized='materialized_view') }} "
        query = "select id, sum(amount) as n from {{ ref('orders') }} group by id"
        project.write("models/view.sql", view + query)
        project.write("models/target.sql", "{{ log(target, info=true) }} select 1 as id")
        project.write(
            "models/divided.sql", view + "select 1 / amount as n from {{ ref('orders') }}"
        )
        project.write("models/missing.sql", "select * from other.shop.nothing")
        yield project


def _holding(folder: Path, secrets: dict[str, str]) -> list[tuple[str, str]]:
    """Files below the folder that hold a secret."""
    return [
        (str(file.relative_to(folder)), name)
        for file in folder.rglob("*")
        if file.is_file()
        for name, secret in secrets.items()
        if secret.encode() in file.read_bytes()
    ]


def test_planted_secrets_are_nowhere(planted, secrets):
    done = patience.run(
        [sys.executable, Path(__file__).with_name("canary.py"), planted.root],
        given=COMMANDS,
        env={**os.environ, **secrets},
    )
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown[-3000:]
    for command in ("debug", "seed", "compile", "docs generate"):
        assert f"canary: {command} -> True" in shown, shown[-3000:]
    for command in ("run --target wrong_password", "run --target wrong_uri", "build"):
        assert f"canary: {command} -> False" in shown
    assert "META_UNREACHABLE" in shown
    assert [name for name, secret in secrets.items() if secret in shown] == []
    assert "in the list of processes" not in shown
    assert (planted.root / "logs" / "dbt.log").stat().st_size > 10_000
    assert list((planted.root / "warehouse").rglob("*.metadata.json"))
    assert _holding(planted.root, secrets) == []
