"""The routes of the query box: who may ask, from where, and what is answered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore
from tests.support.histories import REVENUE, TOP
from tests.web.service import create_app
from tests.web.test_routes import TOKEN, verify

ASKED = {"sql": "select 1", "barrier": 7}


class Asked:
    """What runs no query, and remembers what it was asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int | None, bool, bool]] = []
        self.fails: StreamSqlError | None = None

    def __call__(self, sql, barrier, sees):
        if self.fails is not None:
            raise self.fails
        self.seen.append((sql, barrier, sees(REVENUE), sees(TOP)))
        return {"barrier": 7, "columns": [("a", "int")], "rows": [("1",)], "more": False}


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def client(store: MetaStore, asked: Asked) -> Iterator[TestClient]:
    app = create_app(store, verify, ask=asked)
    with TestClient(app, base_url="https://testserver") as opened:
        yield opened


def login(client: TestClient, token: str = TOKEN) -> None:
    assert client.post("/ui/login", json={"token": token}).status_code == 204


def test_a_browser_with_the_cookie_is_answered_for_what_its_token_sees(client, asked) -> None:
    login(client)
    answer = client.post("/ui/api/query", json=ASKED)
    assert (answer.status_code, answer.json()["rows"]) == (200, [["1"]])
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    login(client, "for one table")
    client.post("/ui/api/query", json={"sql": "select 2"})
    assert asked.seen == [("select 1", 7, True, True), ("select 2", None, True, False)]


def test_without_a_token_nothing_is_run(client, asked) -> None:
    assert client.post("/ui/api/query", json=ASKED).status_code == 401
    assert client.get("/ui/api/queries").status_code == 401
    wrong = {"Authorization": "Bearer wrong"}
    assert client.post("/ui/api/query", json=ASKED, headers=wrong).status_code == 401
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert client.post("/ui/api/query", json=ASKED, headers=right).status_code == 200
    assert len(asked.seen) == 1


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_a_form_of_another_page_cannot_ask(client, asked, kind: str) -> None:
    """Browsers send these without asking, and the cookie to any port of this host."""
    login(client)
    body = '{"sql": "select 1"}'
    answer = client.post("/ui/api/query", content=body, headers={"Content-Type": kind})
    assert (answer.status_code, asked.seen) == (415, [])


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_neither_can_a_script_of_another_page(client, asked, site: str) -> None:
    login(client)
    answer = client.post("/ui/api/query", json=ASKED, headers={"Sec-Fetch-Site": site})
    assert (answer.status_code, asked.seen) == (403, [])
    asks = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
    allowed = client.options("/ui/api/query", headers=asks)
    assert "access-control-allow-origin" not in allowed.headers
    # A link or an image asks with GET.
    assert client.get("/ui/api/query", params={"sql": "select 1"}).status_code == 405
    assert asked.seen == []


def test_only_the_query_is_run_with_the_cookie(client) -> None:
    login(client)
    assert client.post("/ui/link").status_code == 401


@pytest.mark.parametrize(
    "body", [{}, {"sql": 1}, {"sql": "x" * 100_001}, {**ASKED, "barrier": 0}, {**ASKED, "more": 1}]
)
def test_a_body_of_another_form_is_refused(client, asked, body) -> None:
    login(client)
    assert client.post("/ui/api/query", json=body).status_code == 422
    assert asked.seen == []


@pytest.mark.parametrize(
    ("code", "status"),
    [("TABLE_MISSING", 400), ("WAREHOUSE_BUSY", 429), ("QUERY_TIMEOUT", 504)],
)
def test_a_refusal_says_why(client, asked, code: str, status: int) -> None:
    login(client)
    asked.fails = StreamSqlError(code, "it is so", given="a", allowed="b", hint="c")
    answer = client.post("/ui/api/query", json=ASKED)
    assert answer.status_code == status
    told = {"code": code, "message": "it is so", "given": "a", "allowed": "b", "hint": "c"}
    assert answer.json() == told


def test_queries_are_off_unless_they_were_turned_on(store: MetaStore) -> None:
    with TestClient(create_app(store)) as client:
        assert client.get("/ui/api/queries").json() == {"enabled": False, "barrier": 12}
        answer = client.post("/ui/api/query", json=ASKED)
        assert answer.status_code == 403
        assert "meta serve --queries" in answer.json()["detail"]
