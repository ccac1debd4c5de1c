"""Targets that need a Spark of their own: a warm engine, a Hive metastore, Delta's jars."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from dbt_streamsql import Engine
from dbt_streamsql.runtime.spark import jars
from dbt_streamsql.runtime.spark.session import open_session
from dbt_streamsql.runtime.spark.settings import SessionSettings
from dbt_streamsql.storage.tables import jdbc
from dbt_streamsql.warm import discover, lifecycle
from tests.staged import databases
from tests.staged.contract import Target
from tests.support.postgres import server

POSTGRESQL_DRIVER = "org.postgresql.Driver"
SQLITE_DRIVER = "org.sqlite.JDBC"
STACK = ExitStack()
"""What a target has started; closed when the process has done its checks."""


def hive(form: str) -> Callable[[Path], Target]:
    """A Hive metastore in a Derby database, and tables of one format."""

    def opened(folder: Path) -> Target:
        database = f"jdbc:derby:;databaseName={folder / 'metastore'};create=true"
        properties = {
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.javax.jdo.option.ConnectionURL": database,
            "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
            "spark.hadoop.hive.metastore.schema.verification": "false",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        }
        target = _target(folder, properties, form, columns_may_change=False)
        assert (folder / "metastore" / "service.properties").is_file(), "Hive has not been used"
        return target

    return opened


def delta(folder: Path) -> Target:
    """Delta's catalog in the place of Spark's own."""
    properties = {"spark.databricks.delta.snapshotPartitions": "1"}
    return _target(folder, properties, "delta", ("delta",))


def warm(folder: Path) -> Target:
    """Iceberg over a warm engine: Spark Connect, with the catalog's file on this machine."""
    found = jars.cache_folder() / "jars"
    cache = folder / "cache"
    cache.mkdir(mode=0o700)
    (cache / "jars").symlink_to(found)
    os.environ["STREAMSQL_CACHE"] = str(cache)
    warehouse = folder / "warehouse"
    settings = SessionSettings(warehouse=str(warehouse))
    lifecycle.start(settings, 0)
    STACK.callback(lifecycle.stop, settings, force=True)
    spark = discover.open_warm(settings)
    assert spark is not None
    engine = Engine.open(warehouse, spark=spark)
    spark.sql("CREATE NAMESPACE lake.shop")
    return Target(engine, "lake", "shop", "iceberg", str(warehouse / "shop"))


def postgresql(folder: Path) -> Target:
    """A cluster that runs as long as this process."""
    port = STACK.enter_context(server(databases.PASSWORD))
    properties = {
        **jdbc_catalog("pg", f"jdbc:postgresql://127.0.0.1:{port}/postgres", POSTGRESQL_DRIVER),
        "spark.sql.catalog.pg.user": "postgres",
        "spark.sql.catalog.pg.password": databases.PASSWORD,
    }
    warehouse = folder / "warehouse"
    spark = open_session(
        SessionSettings(
            warehouse=str(warehouse), spark_properties=properties, connectors=("postgres",)
        )
    )
    engine = Engine.open(warehouse, spark=spark)

    def names() -> list[str]:
        return databases.names_in_postgresql(port)

    return Target(engine, "pg", "public", "jdbc", has_comments=False, names=names)


def jdbc_catalog(name: str, url: str, driver: str) -> dict[str, str]:
    """Settings of a Spark JDBC catalog."""
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: jdbc.CATALOG, f"{prefix}.url": url, f"{prefix}.driver": driver}


def _target(
    folder: Path,
    properties: dict[str, str],
    form: str,
    connectors: tuple[str, ...] = (),
    **more: bool,
) -> Target:
    warehouse = folder / "warehouse"
    settings = SessionSettings(
        warehouse=str(warehouse), spark_properties=properties, connectors=connectors
    )
    spark = open_session(settings)
    engine = Engine.open(warehouse, spark=spark)
    spark.sql("CREATE NAMESPACE spark_catalog.shop")
    files = warehouse / "spark" / "shop.db"
    return Target(engine, "spark_catalog", "shop", form, str(files), **more)


OPENERS: dict[str, Callable[[Path], Target]] = {
    "warm engine": warm,
    "postgresql": postgresql,
    "delta": delta,
    "hive parquet": hive("parquet"),
    "hive orc": hive("orc"),
}
