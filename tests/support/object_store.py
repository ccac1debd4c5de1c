"""An S3 server with AWS Glue on a loopback port (moto), which keeps a list of its requests."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import boto3
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "lake"
REGION = "us-east-1"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What the environment of its clients holds."""


@dataclass
class ObjectStore:
    """`uri`: where it listens. `requests`: method and path of each request since `cleared`."""

    uri: str
    latency: float = 0.0
    """Seconds that each request waits."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    denied: list[tuple[str, str]] = field(default_factory=list)
    """Access key and path of each request that was not allowed."""
    allows: Callable[[str, str], bool] = lambda *_: True
    """Whether an access key may ask S3 for a path."""

    def cleared(self) -> None:
        self.requests.clear()

    def counts(self) -> Counter[str]:
        """Requests by method, such as GET."""
        return Counter(method for method, _ in self.requests)

    def catalog_properties(self) -> dict[str, str]:
        """Those of a catalog whose files are here."""
        return {"s3.endpoint": self.uri, "s3.path-style-access": "true"}

    @contextmanager
    def allowing(self, allows: Callable[[str, str], bool]) -> Iterator[None]:
        """Inside the block S3 requests for which `allows` says no get 403."""
        self.allows = allows
        try:
            yield
        finally:
            del self.allows

    def client(self, service: str):
        return boto3.client(
            service,
            endpoint_url=self.uri,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_: object) -> None:
        pass


def _asked(environ: dict[str, Any]) -> tuple[str, str]:
    """The access key that a request to S3 is signed with ('': not to S3), and its path; of a list
    that of the folder."""
    signed = re.search(
        r"Credential=([^/]+)/[^/]+/[^/]+/s3/", environ.get("HTTP_AUTHORIZATION", "")
    )
    prefix = parse_qs(environ["QUERY_STRING"]).get("prefix", [""])[0]
    path = f"{environ['PATH_INFO'].rstrip('/')}/{prefix}" if prefix else environ["PATH_INFO"]
    return (signed[1] if signed else ""), path


@contextmanager
def server() -> Iterator[ObjectStore]:
    """The server for the length of the block, with an empty bucket."""
    found = ObjectStore("")
    answer = DomainDispatcherApplication(create_backend_app)

    def application(environ, start_response):
        found.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        if found.latency:
            time.sleep(found.latency)
        key, path = _asked(environ)
        if key and not found.allows(key, path):
            found.denied.append((key, path))
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code></Error>"]
        return answer(environ, start_response)

    listening = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)
    found.uri = f"http://127.0.0.1:{listening.server_port}"
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    try:
        found.client("s3").create_bucket(Bucket=BUCKET)
        found.cleared()
        yield found
    finally:
        listening.shutdown()


@pytest.fixture
def object_store(monkeypatch) -> Iterator[ObjectStore]:
    for key, value in CREDENTIALS.items():
        monkeypatch.setenv(key, value)
    with server() as found:
        yield found
