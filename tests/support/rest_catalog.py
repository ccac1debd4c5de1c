"""An Iceberg REST catalog on a loopback port: Iceberg's own handlers over a database of its own."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.java_parts import java_with
from tests.support.spark_servers import free_port

JARS = Path(__file__).parent / "rest_catalog.jars"


@dataclass(frozen=True)
class RestCatalog:
    """`uri`: where it listens; `folder`: where the files of its tables are."""

    uri: str
    folder: Path

    def settings(self, name: str, uri: str | None = None) -> dict[str, str]:
        """Spark's, for a catalog of that name."""
        prefix = f"spark.sql.catalog.{name}"
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.type": "rest",
            f"{prefix}.uri": uri or self.uri,
            f"{prefix}.cache-enabled": "false",
        }


@contextmanager
def server(folder: Path, **properties: str) -> Iterator[RestCatalog]:
    """A catalog for the length of the block; `properties`: of where its tables are."""
    port = free_port()
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    with java_with(JARS, folder / "rest.log") as gateway:
        jvm = gateway.jvm
        iceberg, jetty = jvm.org.apache.iceberg, jvm.org.eclipse.jetty
        catalog = iceberg.jdbc.JdbcCatalog()
        catalog.setConf(jvm.org.apache.hadoop.conf.Configuration(False))
        own = {
            "uri": f"jdbc:sqlite:{folder / 'rest.db'}",
            "warehouse": warehouse.as_uri(),
            "jdbc.schema-version": "V1",
        }
        catalog.initialize("rest", own | properties)
        adapter = iceberg.rest.RESTCatalogAdapter(catalog)
        holder = jetty.ee10.servlet.ServletHolder(iceberg.rest.RESTCatalogServlet(adapter))
        context = jetty.ee10.servlet.ServletContextHandler()
        context.setContextPath("/")
        context.addServlet(holder, "/*")
        listening = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", port))
        listening.setHandler(context)
        listening.start()
        try:
            yield RestCatalog(f"http://127.0.0.1:{port}", warehouse)
        finally:
            listening.stop()


@contextmanager
def read_only(catalog: RestCatalog) -> Iterator[str]:
    """The address of the same catalog for who may read and not write."""
    with _before(catalog.uri, lambda method, _: method == "POST") as uri:
        yield uri


@contextmanager
def without_transactions(uri: str) -> Iterator[str]:
    """The address of the same catalog as a server that commits one table at a time."""
    with _before(uri, lambda _, path: path.endswith("/transactions/commit")) as other:
        yield other


@contextmanager
def _before(uri: str, refused: Callable[[str, str], bool]) -> Iterator[str]:
    """A server that passes requests on, unless `refused` says of a method and a path: 403."""

    class Between(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length) if length else None
            if refused(self.command, self.path):
                told = {"message": "not allowed", "type": "ForbiddenException", "code": 403}
                self._answer(403, json.dumps({"error": told}).encode())
                return
            there = http.client.HTTPConnection(uri.removeprefix("http://"))
            there.request(self.command, self.path, body, dict(self.headers))
            answer = there.getresponse()
            self._answer(answer.status, answer.read())
            there.close()

        do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815 - the library's names

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if body:
                self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Between) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}"
        finally:
            listening.shutdown()


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory) -> Iterator[RestCatalog]:
    """One catalog for the whole run; each test makes its own namespaces."""
    with server(tmp_path_factory.mktemp("rest")) as catalog:
        yield catalog
