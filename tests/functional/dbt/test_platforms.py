"""The profiles of docs/platforms.md run a project of seven models: only addresses are the test's.

`make platforms` prints what each run takes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from tests.support import (
    dbt_processes,
    gcs_store,
    hive_metastore,
    nessie,
    object_store,
    platform_project,
    postgres,
    rest_catalog,
    spark_servers,
)
from tests.support.object_store import BUCKET, CREDENTIALS, REGION, ObjectStore
from tests.support.spark_way import SMALL_CLUSTER

pytestmark = pytest.mark.processes

PAGE = Path(__file__).parents[3] / "docs" / "platforms.md"
CHECK = """
import sys
from dbt_streamsql.adapter.profile.profiles import credentials_of
from dbt_streamsql.adapter.session.host import host_of_profile
from tests.support.platform_project import VIEWS

engine = host_of_profile(*credentials_of(sys.argv[2], sys.argv[4], None, None)).engine
assert all(engine.verify(f"lake.shop.{view}") == [] for view in VIEWS)
found = engine.sql("SELECT city, total FROM lake.shop.cities ORDER BY city").collect()
print("cities", [tuple(row) for row in found])
assert 0 < engine.sql("SELECT count(*) FROM lake.shop.clicks").first()[0] < 10
"""
TOTALS: list[str] = []


def profile_of(heading: str) -> dict[str, Any]:
    """The first YAML block of the page below a heading."""
    told = PAGE.read_text().partition(f"# {heading}\n")[2].partition("```yaml\n")[2]
    (output,) = yaml.safe_load(told.partition("```")[0]).values()
    return output


@contextmanager
def local(_: Path, __: ObjectStore) -> Iterator[dict[str, Any]]:
    yield {"type": "streamsql", "schema": "shop"}


@contextmanager
def glue(_: Path, store: ObjectStore) -> Iterator[dict[str, Any]]:
    profile = profile_of("Amazon S3 and AWS Glue")
    del profile["meta"]
    profile["warehouse"] = f"s3://{BUCKET}/glue"
    profile["catalog_properties"] = {**store.catalog_properties(), "glue.endpoint": store.uri}
    yield profile


@contextmanager
def with_postgresql(profile: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The profile with the addresses of a server that has both of its databases."""
    with postgres.server(postgres.PASSWORD) as port:
        at = {"host": "127.0.0.1", "port": port, "user": "postgres", "password": postgres.PASSWORD}
        with psycopg.connect(**at, autocommit=True) as admin:
            for name in ("catalog", "streamsql"):
                admin.execute(f"CREATE DATABASE {name}")
        text = yaml.safe_dump(profile).replace("db:5432", f"127.0.0.1:{port}")
        yield yaml.safe_load(text)


@contextmanager
def database(_: Path, store: ObjectStore) -> Iterator[dict[str, Any]]:
    profile = profile_of("S3 with a database")
    profile["warehouse"] = f"s3://{BUCKET}/database"
    profile["catalog_properties"] |= store.catalog_properties()
    with with_postgresql(profile) as found:
        yield found


@contextmanager
def google(_: Path, __: ObjectStore) -> Iterator[dict[str, Any]]:
    profile = profile_of("Google Cloud Storage")
    profile["warehouse"] = f"gs://{gcs_store.BUCKET}/warehouse"
    with gcs_store.server() as properties:
        profile["catalog_properties"] |= properties
        with with_postgresql(profile) as found:
            yield found


@contextmanager
def rest(folder: Path, store: ObjectStore) -> Iterator[dict[str, Any]]:
    profile = profile_of("REST catalogs")
    properties = {
        "warehouse": f"s3://{BUCKET}/rest",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": REGION,
        **store.catalog_properties(),
    }
    with rest_catalog.server(folder, **properties) as found:
        profile["catalog_properties"] |= {"uri": found.uri, **store.catalog_properties()}
        yield profile


@contextmanager
def hive(folder: Path, _: ObjectStore) -> Iterator[dict[str, Any]]:
    profile = profile_of("Hive metastore")
    with hive_metastore.server(folder / "hive") as uri:
        profile["warehouse"] = str(folder / "tables")
        profile["catalog_properties"] |= {"uri": uri}
        yield profile


@contextmanager
def vended(folder: Path, store: ObjectStore) -> Iterator[dict[str, Any]]:
    """The keys of the environment are refused, and those of a table elsewhere."""
    profile = profile_of("Credentials of each table")
    properties = {
        "warehouse": f"s3://{BUCKET}/vended",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": REGION,
        "s3.access-key-id": rest_catalog.SERVER_KEY,
        "s3.secret-access-key": "secret",
        **store.catalog_properties(),
    }
    with (
        rest_catalog.server(folder, **properties) as found,
        rest_catalog.vending(found.uri) as keys,
        store.allowing(keys.allows),
    ):
        profile["catalog_properties"] |= {"uri": keys.uri, **store.catalog_properties()}
        yield profile
    assert keys.locations
    assert store.denied == []


@contextmanager
def cluster(folder: Path, store: ObjectStore) -> Iterator[dict[str, Any]]:
    at = folder / "cluster"
    at.mkdir()
    with glue(folder, store) as profile, spark_servers.cluster(at) as master:
        profile["warehouse"] = f"s3://{BUCKET}/cluster"
        small = {"spark_properties": SMALL_CLUSTER}
        yield {**profile, "method": "cluster", "master": master, **small}


PLATFORMS = {
    "local": local,
    "glue": glue,
    "database": database,
    "rest": rest,
    "vended": vended,
    "cluster": cluster,
    "google": google,
    "hive": hive,
}
SIMPLE = dict.fromkeys(PLATFORMS, ()) | dict.fromkeys(
    ("glue", "cluster"), ("--vars", "simple: ephemeral")
)
"""Glue stores no views."""


MOST = {"database": 60}
"""Requests of a whole `dbt build` where nothing is new."""


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store.server() as found:
        yield found
    print("\n" + "\n".join(TOTALS))


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for key, value in {
        **CREDENTIALS,
        "CATALOG_USER": "postgres",
        "DBT_ENV_SECRET_CATALOG_PASSWORD": postgres.PASSWORD,
        "DBT_ENV_SECRET_CATALOG_CREDENTIAL": "shop:secret",
    }.items():
        monkeypatch.setenv(key, value)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_project_of_seven_models_follows_its_inputs(platform, project, store, tmp_path):
    with PLATFORMS[platform](tmp_path, store) as profile:
        text = yaml.safe_dump({"shop": {"target": "dev", "outputs": {"dev": profile}}})
        (project.root / "profiles.yml").write_text(text)
        for run, cities in enumerate(platform_project.CITIES):
            platform_project.write(project, run)
            _measured(project, store, f"{platform}, run {run + 1}", "build", *SIMPLE[platform])
            code, said = dbt_processes.run(project, "-c", CHECK)
            assert code == 0, said
            assert f"cities {cities}" in said
        told, changed = f"{platform}, nothing new", ("--select", "per_customer+")
        _measured(project, store, told, "run", *changed, *SIMPLE[platform])
        # The stream has news each time.
        told, others = f"{platform}, whole build", ("--exclude", "clicks")
        asked = _measured(project, store, told, "build", *others, *SIMPLE[platform])
        assert asked <= MOST.get(platform, asked)
        _measured(project, store, f"{platform}, docs", "docs", "generate")


@pytest.mark.skipif(
    "STREAMSQL_LARGE_SERVERS" not in os.environ,
    reason="a server of 245 MB; `make platforms` runs it",
)
def test_nessie_makes_no_tables_for_views_and_is_refused(project, tmp_path):
    profile = profile_of("Credentials of each table")
    given = {"warehouse": nessie.WAREHOUSE, "view-endpoints-supported": "true"}
    for name in ("credential", "scope"):
        del profile["catalog_properties"][name]
    platform_project.write(project, 0)
    # The client's own key is refused: it gets one from Nessie, which gets it from the store.
    only_nessie = CREDENTIALS["AWS_ACCESS_KEY_ID"]
    with object_store.server() as store, nessie.server(tmp_path, store) as uri:
        profile["catalog_properties"] |= {"uri": uri, **given}
        text = yaml.safe_dump({"shop": {"target": "dev", "outputs": {"dev": profile}}})
        (project.root / "profiles.yml").write_text(text)
        with store.allowing(lambda key, _: key != only_nessie):
            code, said = dbt_processes.run(
                project, "-c", dbt_processes.DBT, "build", "--select", "+per_customer"
            )
    assert code != 0
    assert "does not make tables of format version 3" in said
    assert "OK loaded seed file shop.orders" in said
    assert store.denied == []


def _measured(project: Any, store: ObjectStore, what: str, *command: str) -> int:
    """The number of requests."""
    store.cleared()
    started = time.monotonic()
    code, said = dbt_processes.run(project, "-c", dbt_processes.DBT, *command)
    assert code == 0, said
    seconds, counts = time.monotonic() - started, store.counts()
    asked = sum(counts.values())
    TOTALS.append(f"{what:24} {seconds:6.1f} s {asked:5} requests {dict(counts)}")
    return asked
