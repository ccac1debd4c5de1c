"""A server of Google Cloud Storage on a loopback port (gcp-storage-emulator)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gcp_storage_emulator.server import create_server

from tests.support.spark_servers import free_port

BUCKET = "lake"


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """The properties of a catalog whose files are on the server, which has an empty bucket."""
    port = free_port()
    listening = create_server("127.0.0.1", port, in_memory=True, default_bucket=BUCKET)
    listening.start()
    try:
        yield {"gcs.service.host": f"http://127.0.0.1:{port}", "gcs.no-auth": "true"}
    finally:
        listening.stop()
