"""An Iceberg REST catalog on a loopback port: Iceberg's own handlers over a database of its own."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.java_parts import java_with
from tests.support.object_store import BUCKET
from tests.support.spark_servers import free_port

JARS = Path(__file__).parent / "rest_catalog.jars"
SERVER_KEY = "server"
"""The access key of a server whose clients have none."""


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
def of_format_2(uri: str) -> Iterator[str]:
    """The address of the same catalog as a server that knows no newer format of tables."""

    def asked(path: str, body: dict[str, Any]) -> None:
        if path.endswith("/tables"):
            body["properties"]["format-version"] = "2"

    with _before(uri, asked=asked) as other:
        yield other


@dataclass
class Vended:
    """Keys that a server gives to its clients, one for each answer about a table."""

    uri: str = ""
    locations: dict[str, str] = field(default_factory=dict)
    """The location of each key's table."""

    def allows(self, key: str, path: str) -> bool:
        """Whether a key of this server, or the server itself, may ask S3 for a path. A delete of
        many files names them in its body, which is not looked at."""
        if key == SERVER_KEY or (key in self.locations and path.strip("/") == BUCKET):
            return True
        return f"s3:/{path}/".startswith(f"{self.locations.get(key, '-')}/")


@contextmanager
def vending(uri: str) -> Iterator[Vended]:
    """The same catalog as a server that gives a key for each table to those who ask for it: as the
    table's config, and as storage credentials, in turn."""
    vended = Vended()

    def answered(headers: Mapping[str, str], body: dict[str, Any]) -> None:
        wanted = headers.get("X-Iceberg-Access-Delegation") == "vended-credentials"
        if not wanted or "location" not in body.get("metadata", {}):
            return
        location, key = body["metadata"]["location"], f"vended{len(vended.locations)}"
        vended.locations[key] = location
        own = {
            "s3.access-key-id": key,
            "s3.secret-access-key": "secret",
            "s3.session-token": "token",
        }
        if len(vended.locations) % 2:
            body["config"] = {**body.get("config", {}), **own}
        else:
            body["storage-credentials"] = [{"prefix": location, "config": own}]

    with _before(uri, answered=answered) as vended.uri:
        yield vended


def _none_refused(_: str, __: str) -> bool:
    return False


def _as_it_is(_: Any, __: dict[str, Any]) -> None:
    """What is passed on."""


@contextmanager
def _before(
    uri: str,
    refused: Callable[[str, str], bool] = _none_refused,
    asked: Callable[[str, dict[str, Any]], None] = _as_it_is,
    answered: Callable[[Mapping[str, str], dict[str, Any]], None] = _as_it_is,
) -> Iterator[str]:
    """A server that passes requests on, unless `refused` says of a method and a path: 403.

    `asked` changes the bodies of requests by their paths; `answered` those of answers, by the
    request's headers.
    """

    class Between(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length) if length else None
            if refused(self.command, self.path):
                told = {"message": "not allowed", "type": "ForbiddenException", "code": 403}
                self._answer(403, json.dumps({"error": told}).encode())
                return
            there = http.client.HTTPConnection(uri.removeprefix("http://"))
            headers = {**self.headers, "Accept-Encoding": "identity"}
            if self.headers.get("Content-Type") == "application/json":
                body = _changed(body, partial(asked, self.path))
                headers["Content-Length"] = str(len(body or b""))
            there.request(self.command, self.path, body, headers)
            answer = there.getresponse()
            found = _changed(answer.read(), partial(answered, self.headers))
            self._answer(answer.status, found or b"")
            there.close()

        do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815 - the library's names

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if body:
                self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                with suppress(ConnectionError):  # a client may not wait for the answer
                    self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Between) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}"
        finally:
            listening.shutdown()


def _changed(body: bytes | None, change: Callable[[dict[str, Any]], None]) -> bytes | None:
    if not body:
        return body
    content = json.loads(body)
    change(content)
    return json.dumps(content).encode()


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory) -> Iterator[RestCatalog]:
    """One catalog for the whole run; each test makes its own namespaces."""
    with server(tmp_path_factory.mktemp("rest")) as catalog:
        yield catalog
