"""Servers and writers of Java that tests start: their jars of Maven Central, and a Java for them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from dbt_streamsql.runtime.spark import jars
from dbt_streamsql.runtime.spark.java import find_java
from dbt_streamsql.runtime.spark.pinned_jars import Jar
from tests.support.spark_servers import end

OF_SPARK = Path(pyspark.__file__).parent / "jars"


def class_path(file: Path) -> str:
    """The jars that a file lists as `group:artifact:version[:classifier] sha256`, fetched once."""
    wanted = []
    for line in file.read_text(encoding="utf-8").splitlines():
        name, sha256 = line.split()
        group, artifact, version, *classifier = name.split(":")
        wanted.append(Jar(group, artifact, version, sha256, *classifier))
    return os.pathsep.join(map(str, jars.ensure(tuple(wanted))))


@contextmanager
def java_with(file: Path, log: Path, options: Sequence[str] = ()) -> Iterator[JavaGateway]:
    """The classes of the jars that a file lists, and Hadoop's, in a process of their own.

    It ends with the block, and with the test run. `options`: those of Java.
    """
    hadoop = map(str, OF_SPARK.glob("hadoop-client-*.jar"))
    with log.open("w", encoding="utf-8") as out:
        port, token, process = launch_gateway(
            jarpath=str(next(OF_SPARK.glob("py4j-*.jar"))),
            classpath=os.pathsep.join([class_path(file), *hadoop]),
            javaopts=["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options],
            java_path=str(find_java().binary),
            die_on_exit=True,
            return_proc=True,
            enable_auth=True,
            redirect_stderr=out,
        )
        known = GatewayParameters(port=port, auth_token=token, auto_convert=True)
        gateway = JavaGateway(gateway_parameters=known)
        try:
            yield gateway
        finally:
            gateway.shutdown()
            end(process)
