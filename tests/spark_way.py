"""How the tests of this process reach Spark: embedded, or what STREAMSQL_TEST_SPARK names.

`sc://host:port/;token=…` is a Spark Connect server, `spark://host:port` a cluster's master. A
process can be a client of one kind only, so `test_ways_to_spark.py` starts a process for each.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from dbt_streamsql.runtime.session import SessionSettings

VARIABLE = "STREAMSQL_TEST_SPARK"
FROM_ENVIRONMENT = "DBT_ENV_SECRET_TEST_SPARK"
# Thousands of small queries: the JVM's optimizing compiler and its concurrent collector cost more
# than they win. Without that compiler the JVM reserves 48 MB for code, and one that has filled them
# may end in the middle of a test.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
QUICK = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    # Nobody looks at a page of Spark's; each query would sort what is kept for it.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "5",
}
SMALL_CLUSTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
}


def profile() -> dict[str, Any]:
    """The keys of a dbt profile that say how Spark is reached."""
    address = os.environ.get(VARIABLE, "")
    place = urlsplit(address)
    if place.scheme == "sc":
        token = place.path.partition(";token=")[2]
        # A profile takes secrets from such a variable only.
        os.environ[FROM_ENVIRONMENT] = token
        return {"method": "connect", "host": place.hostname, "port": place.port, "token": token}
    if address:
        properties = {**QUICK, **SMALL_CLUSTER}
        return {"method": "cluster", "master": address, "spark_properties": properties}
    return {}


def settings(warehouse: str) -> SessionSettings:
    """The same for a session over a warehouse folder."""
    ours = {"spark_properties": QUICK, "connectors": ("avro", "kafka")}
    return SessionSettings(warehouse=warehouse, **{**ours, **_own(profile())})


def _own(keys: dict[str, Any]) -> dict[str, Any]:
    # What Spark is started with means nothing to a server that runs.
    own = {"spark_properties": {}, "connectors": ()}
    return {**own, **keys} if keys.get("method") == "connect" else keys
