"""Targets that need a Spark of their own: a Hive metastore, Delta's jars."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from contract import Target

from dbt_streamsql import Engine
from dbt_streamsql.runtime.session import SessionSettings, open_session

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.ui.enabled": "false"}


def hive(form: str) -> Callable[[Path], Target]:
    """A Hive metastore in a Derby database, and tables of one format."""

    def opened(folder: Path) -> Target:
        database = f"jdbc:derby:;databaseName={folder / 'metastore'};create=true"
        properties = {
            **QUICK,
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.javax.jdo.option.ConnectionURL": database,
            "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
            "spark.hadoop.hive.metastore.schema.verification": "false",
        }
        properties["spark.driver.extraJavaOptions"] += f" -Dderby.system.home={folder}"
        return _target(folder, properties, form, columns_may_change=False)

    return opened


def _target(folder: Path, properties: dict[str, str], form: str, **more: bool) -> Target:
    warehouse = folder / "warehouse"
    settings = SessionSettings(warehouse=str(warehouse), spark_properties=properties)
    spark = open_session(settings)
    engine = Engine.open(warehouse, spark=spark)
    spark.sql("CREATE NAMESPACE spark_catalog.shop")
    files = warehouse / "spark" / "shop.db"
    return Target(engine, "spark_catalog", "shop", form, str(files), **more)


OPENERS: dict[str, Callable[[Path], Target]] = {
    "hive parquet": hive("parquet"),
    "hive orc": hive("orc"),
}
