"""How the tests of this process reach Spark: embedded, or what STREAMSQL_TEST_SPARK names.

`sc://host:port/;token=…` is a Spark Connect server, `spark://host:port` a cluster's master. A
process can be a client of one kind only, so `test_ways_to_spark.py` starts a process for each.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from dbt_streamsql.runtime.spark.settings import SessionSettings

VARIABLE = "STREAMSQL_TEST_SPARK"
NATIVE = "STREAMSQL_TEST_NATIVE"
"""1: the embedded Spark runs native code where it can."""
FROM_ENVIRONMENT = "DBT_ENV_SECRET_TEST_SPARK"
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
        return {"method": "cluster", "master": address, "spark_properties": SMALL_CLUSTER}
    return {"native": True} if os.environ.get(NATIVE) == "1" else {}


def settings(warehouse: str) -> SessionSettings:
    """The same for a session over a warehouse folder."""
    way = profile()
    # What Spark is started with means nothing to a server that runs.
    connectors = () if way.get("method") == "connect" else ("avro", "kafka")
    return SessionSettings(warehouse=warehouse, connectors=connectors, **way)
