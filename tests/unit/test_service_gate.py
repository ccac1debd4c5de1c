"""What a request passes before anything is asked of the store."""

from __future__ import annotations

import json
import logging
import socket
from typing import TYPE_CHECKING

import httpx
import pytest
from fastapi import APIRouter

from dbt_streamsql.meta import TableVersion
from dbt_streamsql.meta.service.gate import BODY_BYTES
from tests.support import patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.meta_service import Server

FENCE = {"token": 1, "owner": "host:1:x"}


@pytest.fixture
def server(meta_server: Server, tmp_path: Path) -> Iterator[Server]:
    with meta_server.serving(f"sqlite:///{tmp_path}/meta.db"):
        yield meta_server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=server.url, headers=headers) as opened:
        yield opened


def test_it_answers_to_names_of_this_host_only(client: httpx.Client) -> None:
    for host in ("localhost", "127.0.0.1:1", "[::1]:8123", "LOCALHOST"):
        assert client.get("/v1/whoami", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", ""):
        answer = client.get("/v1/whoami", headers={"Host": host})
        assert (answer.status_code, answer.json()["code"]) == (421, "META_DENIED")


def test_it_answers_to_no_page_of_another_site(client: httpx.Client) -> None:
    for origin, status in (
        ("http://localhost:8123", 200),
        ("https://evil.example", 421),
        ("null", 421),
        ("http://[", 421),
    ):
        answer = client.get("/v1/whoami", headers={"Origin": origin})
        assert answer.status_code == status, origin


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Basic {}", "bearer x{}", "Bearer {} {}", "Bearer {}x"]
)
def test_only_the_whole_token_counts(client: httpx.Client, server: Server, header: str) -> None:
    value = header.replace("{}", server.token)
    answer = client.get("/v1/whoami", headers={"Authorization": value})
    assert answer.status_code == 401
    assert server.token not in answer.text


def test_a_body_that_is_too_long_is_refused_before_it_is_read(
    client: httpx.Client, server: Server
) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        head = f"POST /v1/runner HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {server.token}"
        connection.sendall(f"{head}\r\nContent-Length: {BODY_BYTES + 1}\r\n\r\n".encode())
        assert b" 413 " in connection.recv(4096).split(b"\r\n")[0]

    def chunks() -> Iterator[bytes]:
        for _ in range(17):
            yield b" " * (1 << 20)

    answer = client.post(
        "/v1/runner", content=chunks(), headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["code"]) == (413, "META_REQUEST")


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"owner=a", "application/x-www-form-urlencoded", 415),
        (b"{}", "text/plain", 415),
        (b"{}", "application/json-patch+json", 415),
        (b"{", "application/json", 400),
        (b'{"owner": NaN}', "application/json", 400),
        (b'{"owner": "\\ud800"}', "application/json", 400),
        (b'{"owner": "\xff"}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"owner": "h:1:x", "more": 1}', "application/json; charset=utf-8", 422),
        (b"[]", "application/json", 422),
    ],
)
def test_a_body_is_json_and_says_what_it_has_to(
    client: httpx.Client, content: bytes, kind: str, status: int
) -> None:
    answer = client.post("/v1/runner", content=content, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["code"]) == (status, "META_REQUEST")


@pytest.mark.parametrize(
    "fields",
    [
        {"snapshot": 1 << 63},
        {"snapshot": -(1 << 63) - 1},
        {"snapshot": 1.5},
        {"snapshot": "1"},
        {"snapshot": True},
        {"jobs": 1 << 31},
        {"table": "a\x00b"},
        {"table": ""},
        {"state": "COMMIT"},
        {"inputs": {"a": "b"}},
    ],
)
def test_a_record_holds_what_the_store_can_keep(client: httpx.Client, fields: dict) -> None:
    version = {"barrier": 1, "table": "lake.shop.t", **fields}
    body = {"fence": FENCE, "versions": [version]}
    answer = client.post("/v1/barriers/1/versions", json=body)
    assert answer.status_code == 422
    assert answer.json()["given"].startswith("body.versions.0.")


def test_snapshots_keep_all_of_their_64_bits(client: httpx.Client) -> None:
    fence = client.post("/v1/runner", json={"owner": "h:1:x"}).json()["fence"]
    assert client.post("/v1/barriers", json={"fence": fence, "inputs": {}}).status_code == 201
    versions = [
        vars(TableVersion(1, f"lake.shop.t{number}", snapshot=snapshot))
        for number, snapshot in enumerate(((1 << 63) - 1, -(1 << 63), (1 << 53) + 1))
    ]
    body = {"fence": fence, "versions": versions}
    assert client.post("/v1/barriers/1/versions", json=body).is_success
    found = json.loads(client.get("/v1/barriers/1/versions").text)
    assert [v["snapshot"] for v in found] == [v["snapshot"] for v in versions]


def test_an_error_inside_is_told_without_its_trace(client: httpx.Client, server: Server) -> None:
    with server.service.store.database.write() as connection:
        connection.exec_driver_sql("UPDATE streamsql_runner SET token = 'no number'")
    for path, status in (("/v1/runner", 500), ("/v1/no/such/path", 404)):
        answer = client.get(path)
        assert answer.status_code == status
        assert set(answer.json()) == {"code", "message", "given", "allowed", "hint"}
        for word in ("Traceback", ".py", "ValueError", "no number"):
            assert word not in answer.text
    assert client.put("/v1/runner").status_code == 405


def test_a_store_that_is_broken_is_told_as_such(client: httpx.Client, server: Server) -> None:
    with server.service.store.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE streamsql_job")
    answer = client.get("/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (503, "META_UNREACHABLE")


def test_requests_are_logged_with_the_name_of_the_token_and_without_secrets(
    client: httpx.Client, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dbt_streamsql.meta")
    client.get("/v1/versions/latest", params={"table": "lake.shop.secret"})
    client.get("/v1/jobs", headers={"Authorization": "Bearer wrong-token"})
    client.get("/v1/a%0Ab")

    def told() -> list[str]:
        return [
            line for line in (record.getMessage() for record in caplog.records) if "GET" in line
        ]

    # The answer goes out before its line is written.
    patience.until(lambda: len(told()) >= 3)
    lines = told()
    assert lines[0].startswith("default GET /v1/versions/latest 404 ")
    assert lines[1].startswith("- GET /v1/jobs 401 ")
    assert lines[2].startswith("default GET /v1/a\\nb 404 ")
    for word in (server.token, "wrong-token", "lake.shop.secret"):
        assert word not in caplog.text


def test_answers_are_not_kept_and_tell_nothing_of_the_server(client: httpx.Client) -> None:
    answer = client.get("/v1/whoami")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "server" not in answer.headers


def test_what_is_added_is_behind_the_gate_unless_it_is_said_to_be_public(
    meta_server: Server, tmp_path: Path
) -> None:
    added = APIRouter()
    for path in ("/pages/first", "/pages", "/figures", "/figures/x"):
        added.get(path)(lambda: "here")
    options = {"routers": [added], "public": ["/pages/", "/figures"]}
    with meta_server.serving(f"sqlite:///{tmp_path}/meta.db", **options):
        statuses = {
            path: httpx.get(meta_server.url + path).status_code
            for path in ("/pages/first", "/pages", "/figures", "/figures/x", "/v1/jobs")
        }
        elsewhere = {"Host": "evil.example"}
        assert httpx.get(f"{meta_server.url}/figures", headers=elsewhere).status_code == 421
    assert statuses == {
        "/pages/first": 200,
        "/pages": 401,
        "/figures": 200,
        "/figures/x": 401,
        "/v1/jobs": 401,
    }
