"""What the routes answer, to whom, and that nothing but what is listed is served."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from dbt_streamsql.meta import MetaStore, Retention, TableVersion, open_store
from dbt_streamsql.plan.compiled import CompiledPlan
from dbt_streamsql.web import Sees, everything
from dbt_streamsql.web.access import CODE_SECONDS, Codes
from tests.support.histories import (
    CLEAN,
    ITEMS,
    ORDERS,
    REPORT,
    REVENUE,
    SOURCES,
    TOP,
    USERS,
    Clock,
    Story,
    job,
)
from tests.web.service import create_app

TOKEN = "of-this-test-only"  # noqa: S105 - made up

LABELS = ("table", "mode", "change")


def verify(token: str) -> Sees | None:
    if hmac.compare_digest(token.encode(), TOKEN.encode()):
        return everything
    if token == "for one table":  # noqa: S105 - made up
        return lambda table: table == REVENUE
    return None


@pytest.fixture
def client(store: MetaStore, clock: Clock) -> Iterator[TestClient]:
    with TestClient(create_app(store, clock=clock)) as opened:
        yield opened


@pytest.fixture
def guarded(store: MetaStore) -> Iterator[TestClient]:
    app = create_app(store, verify)
    with TestClient(app, base_url="https://testserver") as opened:
        yield opened


def read(client: TestClient, path: str):
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def metrics(client: TestClient) -> dict[tuple[str, ...], float]:
    text = client.get("/metrics").text
    return {
        (sample.name, *(sample.labels[k] for k in LABELS if k in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_status_topology_barriers_and_tables_are_told(client: TestClient) -> None:
    assert read(client, "/ui/api/status")["barrier"] == 12
    told = read(client, "/ui/api/topology")
    assert [step["table"] for step in told["path"]["steps"]] == [CLEAN, REVENUE, REPORT]
    assert [b["id"] for b in read(client, "/ui/api/barriers?newest=2")["barriers"]] == [12, 11]
    assert read(client, "/ui/api/barriers/12")["jobs"][0]["table"] == CLEAN
    table = read(client, f"/ui/api/table?name={CLEAN}")
    assert table["definition"]["columns"][0] == {
        "name": "id",
        "type": "bigint",
        "origins": None,  # no plan is stored
    }
    assert [version["barrier"] for version in table["versions"]] == [*range(12, 0, -1)]
    assert isinstance(table["versions"][0]["snapshot"], str)
    root = read(client, f"/ui/api/table?name={ORDERS}")
    assert (root["definition"], len(root["pins"])) == (None, 12)


def test_what_is_not_there_is_not_found(client: TestClient) -> None:
    for path in ("api/barriers/99", "api/table?name=lake.s.none", "static/none.js", "nothing"):
        assert client.get(f"/ui/{path}").status_code == 404
    assert client.get("/ui/api/barriers?newest=0").status_code == 422


@pytest.mark.parametrize(
    "path", ["../access.py", "%2e%2e/access.py", "..%2faccess.py", "/etc/passwd"]
)
def test_only_the_files_of_the_pages_are_served(client: TestClient, path: str) -> None:
    assert client.get(f"/ui/static/{path}").status_code == 404


def test_the_pages_forbid_all_code_but_their_own(client: TestClient) -> None:
    for path in ("", "static/app.js", "static/style.css", "api/status"):
        headers = client.get(f"/ui/{path}").headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert client.get("/ui/static/app.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/ui", follow_redirects=False).headers["location"] == "ui/"


def test_nothing_that_has_data_is_told_without_a_token(guarded: TestClient) -> None:
    for path in ("/ui/api/status", "/ui/api/topology", "/ui/api/barriers", "/metrics"):
        assert guarded.get(path).status_code == 401
        wrong = guarded.get(path, headers={"Authorization": "Bearer wrong"})
        assert wrong.status_code == 401
        right = guarded.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
        assert right.status_code == 200
    assert guarded.get("/ui/").status_code == 200


def test_who_sees_some_tables_is_told_of_no_others(guarded: TestClient) -> None:
    guarded.headers["Authorization"] = "Bearer for one table"
    # The names that its own definition reads are no secret, but nothing else of those tables is.
    known = {REVENUE, CLEAN, ITEMS}
    for path in ("status", "topology", "barriers", "barriers/12", f"table?name={REVENUE}"):
        text = guarded.get(f"/ui/api/{path}").text
        assert REVENUE in text
        for table in {*SOURCES, ORDERS, USERS, ITEMS} - known:
            assert table not in text, (path, table)
    nodes = read(guarded, "/ui/api/topology")["nodes"]
    assert {node["table"]: node["barrier"] for node in nodes} == {
        REVENUE: 12,
        CLEAN: None,
        ITEMS: None,
    }
    assert [job["table"] for job in read(guarded, "/ui/api/barriers/12")["jobs"]] == [REVENUE]
    assert read(guarded, "/ui/api/barriers/12")["roots"] == []
    assert guarded.get(f"/ui/api/table?name={TOP}").status_code == 404
    tables = {key[1] for key in metrics(guarded) if len(key) > 1}
    assert tables == {REVENUE}


def test_a_browser_keeps_the_token_where_scripts_and_other_sites_cannot_use_it(
    guarded: TestClient,
) -> None:
    assert guarded.post("/ui/login", json={"token": "wrong"}).status_code == 401
    answer = guarded.post("/ui/login", json={"token": TOKEN})
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=strict", "Secure", "Path=/ui"):
        assert word in cookie
    assert guarded.get("/ui/api/status").status_code == 200
    assert guarded.get("/metrics").status_code == 401
    guarded.post("/ui/logout")
    assert guarded.get("/ui/api/status").status_code == 401


def test_a_code_signs_in_one_browser_once_and_only_for_a_while(guarded: TestClient) -> None:
    assert guarded.post("/ui/link").status_code == 401
    asking = {"Authorization": f"Bearer {TOKEN}"}
    answer = guarded.post("/ui/link", headers=asking)
    code = answer.json()["code"]
    assert (answer.headers["cache-control"], TOKEN in answer.text) == ("no-store", False)
    assert guarded.post("/ui/login", json={"token": code}).status_code == 401
    assert guarded.post("/ui/login", json={"code": "wrong"}).status_code == 401
    assert guarded.post("/ui/login", json={"code": code}).status_code == 204
    assert guarded.get("/ui/api/status").status_code == 200
    # The cookie is enough to read, and not to make more of them.
    assert guarded.post("/ui/link").status_code == 401
    guarded.post("/ui/logout")
    assert guarded.post("/ui/login", json={"code": code}).status_code == 401

    clock = Clock(0.0)
    codes = Codes(clock)
    early, late = codes.make("early"), codes.make("late")
    clock.now = CODE_SECONDS - 1
    assert codes.take(early) == "early"
    clock.now = CODE_SECONDS + 1
    assert codes.take(late) == ""


def test_metrics_tell_barrier_age_delay_rows_seconds_modes_and_leases(
    client: TestClient, store: MetaStore, clock: Clock
) -> None:
    lease = store.leases.take("host:1:a", 12)
    clock.now += 7
    found = metrics(client)
    assert found["streamsql_barrier_newest",] == 12
    assert found["streamsql_barrier_age_seconds",] == pytest.approx(7)
    assert found["streamsql_leases_live",] == 1
    assert found["streamsql_table_delay_seconds", CLEAN] == pytest.approx(27.1)
    assert found["streamsql_table_versions_total", TOP, "noop"] == 2
    assert found["streamsql_table_versions_total", TOP, "full"] == 1
    assert found["streamsql_table_rows_total", CLEAN, "inserted"] == 1000 + sum(range(14, 25))
    assert found["streamsql_table_job_seconds_total", CLEAN] == pytest.approx(12 * 1.2)
    assert found["streamsql_table_bottleneck", REVENUE] == 1
    assert ("streamsql_table_delay_seconds", ITEMS) not in found
    store.leases.give_back(lease.id)


def test_the_docs_list_every_metric_and_no_other(client: TestClient) -> None:
    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(streamsql_\w+)` \|", page, re.MULTILINE))
    served = text_string_to_metric_families(client.get("/metrics").text)
    totals = {"counter": "_total"}
    assert documented == {each.name + totals.get(each.type, "") for each in served}


def test_counters_go_on_when_barriers_are_forgotten(
    client: TestClient, store: MetaStore, clock: Clock
) -> None:
    before = metrics(client)
    fence = store.acquire()
    store.keep_from(fence, Retention(barriers=1))
    store.forget(fence, Retention())
    store.release(fence)
    after = metrics(client)
    totals = {key: value for key, value in before.items() if key[0].endswith("_total")}
    assert totals
    assert totals.items() <= after.items()


def test_counters_count_every_barrier_once(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(f"sqlite:///{tmp_path}/other.db", clock=clock)
    story = Story(store, clock)
    key = ("streamsql_table_versions_total", CLEAN, "incremental")
    with TestClient(create_app(store, clock=clock)) as client:
        assert "streamsql_barrier_newest 0.0" in client.get("/metrics").text
        story.barrier()
        for number in range(1, 4):
            story.change(ORDERS)
            story.barrier()
            assert metrics(client)[key] == number
            assert metrics(client)[key] == number
        story.change(ORDERS)
        story.barrier(finish=False)
        assert metrics(client)[key] == 3
        assert metrics(client)["streamsql_barriers_unfinished",] == 1
    store.close()


def test_a_plan_that_is_stored_is_explained_and_one_of_another_version_is_not(
    client: TestClient, store: MetaStore
) -> None:
    assert read(client, f"/ui/api/table?name={CLEAN}")["explain"] == ""
    plan = CompiledPlan(
        sql="SELECT rand() AS r",
        mode="full",
        strategy="",
        reasons=("rand() gives other values each time",),
        tables=(ORDERS,),
        columns=(),
        hidden=(),
        key=(),
        full_sql="",
        steps=(),
        tree={},
        fingerprint="1",
        table=CLEAN,
    )
    stored = json.loads(plan.to_stored())
    for body, explained in ((stored, plan.explain()), ({**stored, "version": 0}, "")):
        fence = store.acquire()
        number = store.begin(fence).id
        store.stage_job(fence, number, replace(job(CLEAN, (ORDERS,)), plan={"plan": body}))
        store.processed(fence, TableVersion(number, CLEAN))
        store.precommit(fence, number)
        store.written(fence, number, CLEAN)
        store.commit(fence, number)
        store.release(fence)
        assert read(client, f"/ui/api/table?name={CLEAN}")["explain"] == explained
