"""A Hive metastore on a loopback port: the server that is among Spark's jars, over Derby."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from dbt_streamsql.runtime.spark.java import find_java
from tests.support import spark_servers

_SERVER = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_SITE = """<configuration>
{properties}
</configuration>
"""


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Its address, such as `thrift://127.0.0.1:9083`, for the length of the block."""
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'db'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder / "hive"),
        # Needs a library that Spark does not have.
        "hive.async.log.enabled": "false",
    }
    properties = (
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    folder.mkdir()
    (folder / "hive-site.xml").write_text(_SITE.format(properties="\n".join(properties)))
    jars, port = Path(pyspark.__file__).parent / "jars" / "*", spark_servers.free_port()
    java = find_java().home / "bin" / "java"
    command = [java, "-Xmx256m", "-cp", f"{folder}{os.pathsep}{jars}", _SERVER, "-p", port]
    log = folder / "metastore.log"
    with spark_servers.running(command, log, "256m") as process:
        spark_servers.wait(process, log, lambda: spark_servers.is_open(port))
        yield f"thrift://127.0.0.1:{port}"
