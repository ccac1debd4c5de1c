from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from dbt.artifacts.resources import CatalogWriteIntegrationConfig

from dbt_streamsql.adapter.session.integrations import IcebergCatalog
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark import connect, jars, session
from dbt_streamsql.runtime.spark.settings import SessionSettings, catalog_settings
from dbt_streamsql.storage.iceberg.caching_io import BEHIND, BYTES, CLASS, RESOLVING


@pytest.fixture(autouse=True)
def no_download(monkeypatch):
    monkeypatch.setattr(jars, "ensure", lambda wanted: [Path(f"/jars/{jar}.jar") for jar in "ab"])


def test_the_default_catalog_is_a_sqlite_file_in_the_warehouse(tmp_path):
    made = catalog_settings(SessionSettings(warehouse=str(tmp_path)))
    assert made["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert made["spark.sql.catalog.lake.uri"].startswith(f"jdbc:sqlite:{tmp_path}/catalog.db?")
    assert made["spark.sql.catalog.lake.cache-enabled"] == "false"
    assert made["spark.sql.catalog.lake.jdbc.schema-version"] == "V1"
    assert made["spark.sql.defaultCatalog"] == "lake"


def test_a_catalog_of_the_users_own_has_nothing_of_sqlite(tmp_path):
    own = {"type": "rest", "uri": "https://catalog", "cache-enabled": "true"}
    settings = SessionSettings(catalog="ice", warehouse="s3://b", catalog_properties=own)
    made = catalog_settings(settings)
    assert "sqlite" not in str(made)
    assert made["spark.sql.catalog.ice.type"] == "rest"
    assert made["spark.sql.catalog.ice.cache-enabled"] == "true"
    assert made["spark.sql.catalog.ice.warehouse"] == "s3://b"


def test_the_users_spark_properties_win_and_class_paths_add_up(tmp_path):
    properties = {
        "spark.driver.memory": "9g",
        "spark.driver.extraClassPath": "/mine.jar",
        "spark.sql.extensions": "my.Extension",
        "spark.custom": "1",
    }
    made = session.start_settings(
        SessionSettings(warehouse=str(tmp_path), spark_properties=properties)
    )
    assert made["spark.driver.memory"] == "9g"
    assert made["spark.custom"] == "1"
    path = made["spark.driver.extraClassPath"].split(os.pathsep)
    assert path == ["/jars/a.jar", "/jars/b.jar", "/mine.jar"]
    assert made["spark.sql.extensions"].endswith("IcebergSparkSessionExtensions,my.Extension")


def test_the_connectors_of_the_profile_come_with_the_other_jars(tmp_path, monkeypatch):
    monkeypatch.setattr(jars, "ensure", lambda wanted: [Path(jar.file_name) for jar in wanted])
    settings = SessionSettings(warehouse=str(tmp_path), connectors=("kafka", "avro"))
    path = session.start_settings(settings)["spark.driver.extraClassPath"]
    for part in ("iceberg", "spark-avro", "spark-sql-kafka", "kafka-clients", "commons-pool2"):
        assert part in path
    with pytest.raises(StreamSqlError, match="pulsar, not one of avro, delta"):
        SessionSettings(warehouse=str(tmp_path), connectors=("pulsar",))


def test_a_catalog_with_files_elsewhere_keeps_small_ones_in_memory(tmp_path):
    def io_of(**given):
        made = catalog_settings(SessionSettings(**given))
        prefix = "spark.sql.catalog.lake."
        return {key: made.get(prefix + key) for key in ("type", "warehouse", "io-impl", BEHIND)}

    jdbc = {"type": "jdbc", "uri": "jdbc:postgresql://db/catalog"}
    found = io_of(warehouse="s3://b/w", catalog_properties=jdbc)
    assert (found["io-impl"], found[BEHIND]) == (CLASS, RESOLVING)
    mine = io_of(warehouse="s3://b/w", catalog_properties={**jdbc, "io-impl": "my.IO"})
    assert (mine["io-impl"], mine[BEHIND]) == (CLASS, "my.IO")
    off = io_of(warehouse="s3://b/w", catalog_properties={**jdbc, BYTES: "0"})
    assert (off["io-impl"], off[BEHIND]) == (RESOLVING, None)
    glue = io_of(warehouse="s3://b/w", connectors=("glue",))
    assert (glue["type"], glue["io-impl"]) == ("glue", CLASS)
    hdfs = io_of(warehouse="hdfs://n/w", catalog_properties=jdbc)
    assert hdfs["io-impl"] is None
    kryo = {"spark.serializer": "org.apache.spark.serializer.KryoSerializer"}
    away = {"method": "cluster", "master": "spark://h:1", "spark_properties": kryo}
    assert io_of(warehouse="s3://b/w", catalog_properties=jdbc, **away)["io-impl"] is None
    named = {"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", BYTES: "0"}
    own = io_of(warehouse=str(tmp_path), catalog_properties=named)
    assert (own["warehouse"], own["io-impl"]) == (None, None)
    rest = io_of(
        warehouse=str(tmp_path), catalog_properties={"type": "rest", "uri": "https://catalog"}
    )
    assert rest["warehouse"] is None
    assert rest["io-impl"] == CLASS
    assert io_of(warehouse=str(tmp_path))["io-impl"] is None
    # The class would have to be on the server.
    there = io_of(method="connect", host="h", warehouse="s3://b/w", catalog_properties=jdbc)
    assert there["io-impl"] is None


def test_delta_comes_with_its_extension_and_catalog(tmp_path):
    made = session.start_settings(SessionSettings(warehouse=str(tmp_path), connectors=("delta",)))
    assert made["spark.sql.extensions"].endswith("DeltaSparkSessionExtension")
    assert made["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")


def test_iceberg_1_10_needs_another_catalog_than_sqlite(tmp_path, monkeypatch):
    monkeypatch.setattr(jars, "spark_version", lambda: "4.0")
    monkeypatch.setenv("STREAMSQL_ICEBERG", "1.10.1")
    with pytest.raises(StreamSqlError, match="needs a catalog of your own"):
        SessionSettings(warehouse=str(tmp_path))
    sqlite = {"type": "jdbc", "uri": "jdbc:sqlite:/catalog.db"}
    with pytest.raises(StreamSqlError, match="needs a catalog of your own"):
        SessionSettings(warehouse=str(tmp_path), catalog_properties=sqlite)
    SessionSettings(warehouse="s3://b/w", connectors=("glue",))


def test_an_embedded_session_is_quiet_and_stays_on_loopback(tmp_path):
    made = session.start_settings(SessionSettings(warehouse=str(tmp_path)))
    assert made["spark.driver.bindAddress"] == made["spark.driver.host"] == "127.0.0.1"
    assert made["spark.ui.enabled"] == made["spark.ui.showConsoleProgress"] == "false"
    assert made["spark.scheduler.mode"] == "FAIR"
    assert made["spark.sql.session.timeZone"] == "UTC"
    assert made["spark.master"] == "local[*]"
    assert "spark.sql.ansi.enabled" not in made
    assert "log4j2.properties" in made["spark.driver.extraJavaOptions"]


def test_a_cluster_gets_the_jars_on_its_executors_too(tmp_path):
    settings = SessionSettings(method="cluster", master="spark://h:7077", warehouse=str(tmp_path))
    made = session.start_settings(settings)
    assert made["spark.master"] == "spark://h:7077"
    assert made["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    assert "spark.driver.host" not in made


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"method": "thrift"}, "not one of"),
        ({"method": "connect"}, "needs a `host`"),
        ({"method": "cluster", "warehouse": "w"}, "needs a `master`"),
        ({}, "needs a `warehouse`"),
        ({"warehouse": "s3://b"}, "needs `catalog_properties`"),
        ({"warehouse": "/folder", "connectors": ("glue",)}, "needs a `warehouse` URI"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, part):
    with pytest.raises(StreamSqlError, match=part) as refused:
        SessionSettings(**settings)
    assert refused.value.code == "CONFIG_INVALID"


def test_a_catalog_name_cannot_smuggle_settings():
    with pytest.raises(StreamSqlError) as refused:
        SessionSettings(catalog="lake`; DROP", warehouse="w")
    assert refused.value.code == "IDENTIFIER_INVALID"


@pytest.mark.parametrize(
    ("host", "token", "url"),
    [
        ("h", "", "sc://h:15002"),
        ("127.0.0.1", "", "sc://127.0.0.1:15002"),
        ("127.0.0.1", "a", "sc://localhost:15002/;token=a"),
        ("h", "a;b=/ c", "sc://h:15002/;token=a%3Bb%3D%2F%20c"),
    ],
)
def test_the_connect_address_spells_the_host_so_that_a_local_token_works(host, token, url):
    settings = SessionSettings(method="connect", host=host, token=token)
    assert connect.url(settings) == url


def test_settings_reach_the_jvm_in_a_private_file_and_leave_no_trace(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    properties = {"spark.a": "x=y\\z", "spark.secret": "hush\nhush", "spark.ü": " é"}
    with session._started_by(properties, "/java"):
        options = os.environ["PYSPARK_SUBMIT_ARGS"]
        assert os.environ["JAVA_HOME"] == "/java"
        assert "hush" not in options
        assert options.endswith("--verbose pyspark-shell")
        file = Path(options.split()[1])
        assert file.stat().st_mode & 0o077 == 0
        lines = file.read_text(encoding="latin-1").splitlines()
        assert lines == [
            "spark.a=x\\=y\\\\z",
            "spark.secret=hush\\nhush",
            "spark.\\u00fc=\\ \\u00e9",
        ]
    assert not file.exists()
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--verbose pyspark-shell"
    assert "JAVA_HOME" not in os.environ


def test_a_catalog_counts_as_made_only_with_all_its_tables(tmp_path):
    file = tmp_path / "catalog.db"
    assert not session._catalog_is_made(file)
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE iceberg_tables (table_name TEXT)")
        assert not session._catalog_is_made(file)
        database.execute("ALTER TABLE iceberg_tables ADD COLUMN iceberg_type TEXT")
        assert not session._catalog_is_made(file)
        database.execute("CREATE TABLE iceberg_namespace_properties (namespace TEXT)")
        assert session._catalog_is_made(file)
    (tmp_path / "broken.db").write_text("not a database, but long enough to be looked at" * 9)
    assert not session._catalog_is_made(tmp_path / "broken.db")


def test_a_warehouse_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamSqlError) as refused:
        session._make_folder(tmp_path / "file" / "warehouse")
    assert refused.value.code == "CONNECTION"
    assert "warehouse" in refused.value.hint


def test_a_rest_catalog_of_catalogs_yml_needs_no_folder_and_its_warehouse_is_a_name(tmp_path):
    def made(volume: str | None) -> dict[str, str]:
        entry = CatalogWriteIntegrationConfig(
            name="archive",
            catalog_name="archive",
            catalog_type="iceberg",
            external_volume=volume,
            adapter_properties={"type": "rest", "uri": "https://catalog"},
        )
        return catalog_settings(IcebergCatalog(entry).settings(tmp_path))

    key = "spark.sql.catalog.archive.warehouse"
    assert made("my_warehouse")[key] == "my_warehouse"
    assert made("s3://lake/tables")[key] == "s3://lake/tables"
    assert key not in made(None)
