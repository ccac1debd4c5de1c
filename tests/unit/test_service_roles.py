"""Every route against every kind of token, and what a token for some schemas sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dbt_streamsql.meta import ChangeFile, Fence, Job, MetaStore, TableVersion, open_store
from dbt_streamsql.meta.model.tokens import Identity, Tokens, digest_of
from dbt_streamsql.meta.service import create_app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.meta_service import Server

TABLE, ELSEWHERE, HEX = "lake.shop.totals", "lake.mart.prices", "0" * 32
FENCE = {"token": 1, "owner": "host:1:x"}
RETAIN = {"fence": FENCE, "retention": {"seconds": 1.0, "barriers": 1}}
OF_TABLE = {"fence": FENCE, "table": TABLE}
JOB = {"table": TABLE, "unique_id": "m", "sql": "select 1"}
VERSION = {"barrier": 1, "table": TABLE}
SINK = {"name": TABLE, "table": TABLE, "unique_id": "m", "sql": "select 1"}
CHANGE = {"table": TABLE, "barrier": 1, "path": "p", "rows": 1}
STAGED = {"owner": "", "token": "t"}
IN_QUERY = f"table={TABLE}"

# method, path, body or query, the least role ('' for none), what it asks of the table
ROUTES: dict[tuple[str, str], tuple[Any, str, str]] = {
    ("GET", "/openapi.json"): (None, "", ""),
    ("GET", "/v1/health"): (None, "", ""),
    ("GET", "/v1/whoami"): (None, "read", ""),
    ("GET", "/v1/audit"): (None, "admin", ""),
    ("GET", "/v1/barriers/newest"): ("most=1", "read", ""),
    ("GET", "/v1/barriers/recent"): ("newest=1", "read", ""),
    ("GET", "/v1/barriers/unfinished"): (None, "read", ""),
    ("GET", "/v1/barriers/last-committed"): (None, "read", ""),
    ("GET", "/v1/barriers/kept-from"): (None, "read", ""),
    ("GET", "/v1/barriers/committed"): ("before=2&most=1", "read", ""),
    ("GET", "/v1/barriers/{barrier}"): (None, "read", ""),
    ("GET", "/v1/barriers/{barrier}/inputs"): (None, "read", ""),
    ("GET", "/v1/barriers/{barrier}/inputs-as-of"): (None, "read", ""),
    ("GET", "/v1/barriers/{barrier}/input-times"): (None, "read", ""),
    ("GET", "/v1/barriers/{barrier}/spans"): (None, "read", ""),
    ("GET", "/v1/barriers/{barrier}/versions"): (None, "read", ""),
    ("GET", "/v1/barriers/{barrier}/jobs"): (None, "read", ""),
    ("POST", "/v1/barriers"): ({"fence": FENCE, "inputs": {TABLE: 1}}, "run", ""),
    ("GET", "/v1/barriers/old/outlook"): ("seconds=1&barriers=1", "read", ""),
    ("GET", "/v1/barriers/old/surplus"): ("barrier=1", "read", ""),
    ("POST", "/v1/barriers/old/keep"): (RETAIN, "run", ""),
    ("POST", "/v1/barriers/old/forget"): (RETAIN, "run", ""),
    ("POST", "/v1/barriers/{barrier}/inputs"): ({"fence": FENCE, "inputs": {}}, "run", ""),
    ("POST", "/v1/barriers/{barrier}/spans"): (
        {"fence": FENCE, "spans": {TABLE: {"after": None, "upto": {"n": 1}}}},
        "run",
        "changes",
    ),
    ("POST", "/v1/barriers/{barrier}/jobs"): ({"fence": FENCE, "job": JOB}, "run", "changes"),
    ("POST", "/v1/barriers/{barrier}/versions"): (
        {"fence": FENCE, "versions": [VERSION]},
        "run",
        "changes",
    ),
    ("POST", "/v1/barriers/{barrier}/unstage"): (OF_TABLE, "run", "changes"),
    ("POST", "/v1/barriers/{barrier}/precommit"): ({"fence": FENCE}, "run", ""),
    ("POST", "/v1/barriers/{barrier}/written"): (OF_TABLE, "run", ""),
    ("POST", "/v1/barriers/{barrier}/commit"): ({"fence": FENCE}, "run", ""),
    ("POST", "/v1/barriers/{barrier}/abort"): ({"fence": FENCE}, "run", ""),
    ("GET", "/v1/outside-tables"): (None, "read", ""),
    ("GET", "/v1/versions"): (None, "read", ""),
    ("GET", "/v1/versions/newest"): ("most=1", "read", ""),
    ("GET", "/v1/versions/between"): ("first=1&last=2", "read", ""),
    ("GET", "/v1/pins"): ("first=1&last=2", "read", ""),
    ("GET", "/v1/versions/latest"): (IN_QUERY, "read", "sees"),
    ("GET", "/v1/versions/history"): (IN_QUERY, "read", "sees"),
    ("GET", "/v1/states"): (None, "read", ""),
    ("GET", "/v1/jobs"): (None, "read", ""),
    ("GET", "/v1/jobs/provisional"): (None, "read", ""),
    ("POST", "/v1/jobs/drop"): (OF_TABLE, "run", "changes"),
    ("GET", "/v1/topology"): (None, "read", ""),
    ("GET", "/v1/topology/readers"): (IN_QUERY, "read", "sees"),
    ("GET", "/v1/change-files"): (f"{IN_QUERY}&after=0&upto=1", "read", "sees"),
    ("GET", "/v1/change-files/tables"): (None, "read", ""),
    ("GET", "/v1/change-files/aborted"): (None, "read", ""),
    ("POST", "/v1/change-files"): ({"fence": FENCE, "change": CHANGE}, "run", "changes"),
    ("POST", "/v1/change-files/forget"): ({**OF_TABLE, "barrier": 1}, "run", "changes"),
    ("POST", "/v1/change-files/forget-aborted"): ({"fence": FENCE}, "run", ""),
    ("POST", "/v1/change-files/forget-paths"): ({"fence": FENCE, "paths": ["p"]}, "run", ""),
    ("GET", "/v1/runner"): (None, "read", ""),
    ("GET", "/v1/runner/holder"): (None, "run", ""),
    ("POST", "/v1/runner"): ({"owner": "host:1:x"}, "run", ""),
    ("POST", "/v1/runner/heartbeat"): ({"fence": FENCE}, "run", ""),
    ("POST", "/v1/runner/release"): ({"fence": FENCE}, "run", ""),
    ("POST", "/v1/runner/let-go"): ({"fence": FENCE}, "run", ""),
    ("POST", "/v1/runner/newest-barrier"): ({"fence": FENCE}, "run", ""),
    ("POST", "/v1/runner/note"): ({"fence": FENCE, "action": "a", "detail": {}}, "run", ""),
    ("GET", "/v1/published"): (None, "read", ""),
    ("POST", "/v1/published"): ({"fence": FENCE, "views": {"schema": "bi"}}, "run", ""),
    ("POST", "/v1/published/stop"): ({"fence": FENCE, "schema_name": "bi"}, "run", ""),
    ("GET", "/v1/sinks"): (None, "read", ""),
    ("POST", "/v1/sinks"): ({"fence": FENCE, "sink": SINK}, "run", "changes"),
    ("POST", "/v1/sinks/drop"): ({"fence": FENCE, "name": TABLE}, "run", "changes"),
    ("GET", "/v1/leader"): (None, "read", ""),
    ("POST", "/v1/leader"): ({"owner": "o", "seconds": 1}, "run", ""),
    ("POST", "/v1/leader/resign"): ({"owner": "o"}, "run", ""),
    ("GET", "/v1/leases"): (None, "read", ""),
    ("POST", "/v1/leases"): ({"owner": "o", "barrier": 1, "seconds": 1}, "read", ""),
    ("GET", "/v1/leases/records/ended"): (None, "run", ""),
    ("POST", "/v1/leases/records/forget"): ({"leases": [HEX]}, "run", ""),
    ("POST", "/v1/leases/{lease}/renew"): ({"seconds": 1}, "read", ""),
    ("DELETE", "/v1/leases/{lease}"): (None, "read", ""),
    ("GET", "/v1/staged"): (None, "run", ""),
    ("POST", "/v1/staged"): ({**STAGED, "table": TABLE, "body": "{}"}, "run", "changes"),
    ("POST", "/v1/staged/confirm"): (STAGED, "run", ""),
    ("POST", "/v1/staged/forget"): (STAGED, "run", ""),
    ("POST", "/v1/staged/heartbeat"): ({"owner": "o"}, "run", ""),
    ("POST", "/v1/staged/end"): ({"owner": "o"}, "run", ""),
    ("POST", "/v1/staged/sweeps"): (None, "run", ""),
    ("POST", "/v1/staged/sweeps/{sweep}/heartbeat"): (None, "run", ""),
    ("DELETE", "/v1/staged/sweeps/{sweep}"): (None, "run", ""),
}
TOKENS = {
    "read": Identity("reader", "read"),
    "run": Identity("runner", "run"),
    "admin": Identity("admin", "admin"),
    "read shop": Identity("reader-shop", "read", frozenset({"shop"})),
    "run shop": Identity("runner-shop", "run", frozenset({"shop"})),
    "read mart": Identity("reader-mart", "read", frozenset({"mart"})),
    "run mart": Identity("runner-mart", "run", frozenset({"mart"})),
}
LEVEL = {"read": 0, "run": 1, "admin": 2}


def text(kind: str) -> str:
    return kind.replace(" ", "-") * 10


def allowed(kind: str, role: str, asks: str) -> bool:
    has, _, schema = kind.partition(" ")
    if not role:
        return True
    if LEVEL.get(has, -1) < LEVEL[role]:
        return False
    sees = schema in ("", "shop") or has == "run"
    changes = schema in ("", "shop")
    return {"": True, "sees": sees, "changes": changes}[asks]


@pytest.fixture
def client(meta_server: Server, tmp_path: Path) -> Iterator[httpx.Client]:
    known = Tokens((digest_of(text(kind)), who) for kind, who in TOKENS.items())
    with (
        meta_server.serving(f"sqlite:///{tmp_path}/meta.db", known) as store,
        httpx.Client(base_url=meta_server.url) as opened,
    ):
        fill(store)
        yield opened


def fill(store: MetaStore) -> None:
    """One committed barrier with a view in each of two schemas, one of which reads the other."""
    fence = store.acquire()
    barrier = store.begin(fence, {"lake.shop.orders": 1, "lake.mart.rates": 2}, {}).id
    for table, source in ((TABLE, "lake.shop.orders"), (ELSEWHERE, TABLE)):
        store.stage_job(fence, barrier, Job(table, table, "select 1", sources=(source,)))
        store.processed(fence, TableVersion(barrier, table, mode="noop"))
        store.add_change_file(fence, ChangeFile(table, barrier, f"c/{table}", 1))
    store.precommit(fence, barrier)
    store.commit(fence, barrier)
    given_up = store.begin(fence).id
    for table in (TABLE, ELSEWHERE):
        store.add_change_file(fence, ChangeFile(table, given_up, f"c/2/{table}", 1))
    store.abort(fence, given_up)
    store.release(fence)


def ask(client: httpx.Client, route: tuple[str, str], body: Any, token: str) -> httpx.Response:
    method, path = route
    path = path.format(barrier=1, lease=HEX, sweep=HEX)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if isinstance(body, str):
        return client.request(method, f"{path}?{body}", headers=headers)
    return client.request(method, path, headers=headers, json=body)


def test_the_table_has_every_route(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/meta.db")
    paths = create_app(store, Tokens([])).openapi()["paths"]
    routes = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert routes == {route for route in ROUTES if route[1] != "/openapi.json"}
    store.close()


@pytest.mark.parametrize("kind", ["none", "wrong", *TOKENS])
def test_every_route_lets_in_whom_it_should_and_nobody_else(
    client: httpx.Client, kind: str
) -> None:
    token = {"none": "", "wrong": "x" * 43}.get(kind) if kind not in TOKENS else text(kind)
    for route, (body, role, asks) in ROUTES.items():
        answer = ask(client, route, body, token or "")
        told = (route, kind, answer.status_code, answer.text)
        if kind not in TOKENS and role:
            assert answer.status_code == 401, told
            assert answer.json()["code"] == "META_DENIED", told
            assert answer.headers["www-authenticate"] == "Bearer", told
        elif allowed(kind, role, asks):
            assert answer.status_code in (200, 201, 404, 409), told
        else:
            assert answer.status_code == 403, told
            assert answer.json()["code"] == "META_DENIED", told


def test_a_reader_of_one_schema_sees_only_its_tables(client: httpx.Client) -> None:
    def seen(path: str, kind: str) -> str:
        return ask(client, ("GET", path), None, text(kind)).text

    for path in (
        "/v1/versions",
        "/v1/versions/newest?most=9",
        "/v1/versions/between?first=0&last=9",
        "/v1/pins?first=0&last=9",
        "/v1/jobs",
        "/v1/topology",
        "/v1/outside-tables",
        "/v1/change-files/tables",
        "/v1/change-files/aborted",
        "/v1/barriers/1/inputs",
        "/v1/barriers/1/inputs-as-of",
        "/v1/barriers/1/input-times",
        "/v1/barriers/1/versions",
        "/v1/topology/readers?table=lake.shop.totals",
    ):
        assert "lake.mart." in seen(path, "read"), path
        assert "lake.mart." in seen(path, "run shop"), path
        assert "lake.mart." not in seen(path, "read shop"), path


def test_only_runners_are_told_the_ids_of_leases_of_others(client: httpx.Client) -> None:
    body = {"owner": "host:1:x", "barrier": 1, "seconds": 60}
    taken = ask(client, ("POST", "/v1/leases"), body, text("read")).json()
    for kind, told in (("read", ""), ("run", taken["id"])):
        (lease,) = ask(client, ("GET", "/v1/leases"), None, text(kind)).json()
        assert lease == {**taken, "id": told}


def test_a_refused_write_changes_nothing(client: httpx.Client) -> None:
    run = {"Authorization": f"Bearer {text('run mart')}"}
    granted = client.post("/v1/runner", json={"owner": "host:1:x"}, headers=run).json()
    body = {"fence": granted["fence"], "table": TABLE}
    refused = client.post("/v1/jobs/drop", json=body, headers=run)
    assert refused.status_code == 403
    assert refused.json()["given"] == TABLE
    assert refused.json()["allowed"] == "mart"
    assert TABLE in client.get("/v1/jobs", headers=run).json()
    assert client.post("/v1/jobs/drop", json={**body, "table": ELSEWHERE}, headers=run).is_success
    assert list(client.get("/v1/jobs", headers=run).json()) == [TABLE]


def test_nobody_uses_what_another_token_holds(client: httpx.Client) -> None:
    mine = {"Authorization": f"Bearer {text('run')}"}
    theirs = {"Authorization": f"Bearer {text('run mart')}"}
    staged = client.post(
        "/v1/staged", json={**STAGED, "table": TABLE, "body": "{}"}, headers=mine
    ).json()
    beat = {"owner": staged["owner"]}
    assert client.post("/v1/staged/heartbeat", json=beat, headers=mine).status_code == 200
    assert client.post("/v1/staged/heartbeat", json=beat, headers=theirs).status_code == 409
    granted = client.post("/v1/runner", json={"owner": "host:1:x"}, headers=mine).json()
    fence = Fence(**granted["fence"])
    body = {"fence": vars(fence)}
    assert client.post("/v1/runner/let-go", json=body, headers=theirs).is_success
    busy = client.post("/v1/runner", json={"owner": "host:2:x"}, headers=theirs)
    assert (busy.status_code, busy.json()["code"]) == (409, "WAREHOUSE_BUSY")
