"""dbt with a profile that says `meta: http://…`: runs, a service that dies, and what is kept."""

from __future__ import annotations

import signal
import socket

import httpx
import pytest

from dbt_streamsql.cache import cache_folder
from dbt_streamsql.meta import open_store
from dbt_streamsql.meta.client import local_tokens
from tests.support.meta_service import command, url_of

pytestmark = [pytest.mark.spark, pytest.mark.processes]

VIEW = "SELECT kind, price FROM lake.shop.totals ORDER BY kind"


@pytest.fixture
def service(project, monkeypatch):
    """A function that starts `streamsql meta serve` for the project, always on the same port."""
    cache = project.root / "cache"
    cache.mkdir()
    for kept in ("jars", "java"):
        (cache / kept).symlink_to(cache_folder() / kept)
    monkeypatch.setenv("STREAMSQL_CACHE", str(cache))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    project.profile({"schema": "shop", "threads": 2, "meta": f"http://127.0.0.1:{port}"})
    started = []

    def start(*more: str):
        where = ("--project-dir", str(project.root), "--profiles-dir", str(project.root))
        started.append(command(project.root, *where, "--quiet", *more))
        assert url_of(started[-1]) == f"http://127.0.0.1:{port}"
        return started[-1]

    start.url = f"http://127.0.0.1:{port}"
    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_runs_go_through_a_service_and_wait_for_one_that_died(project, service):
    project.write("seeds/items.csv", "id,kind,price\n1,a,1\n2,b,2\n3,a,4\n")
    project.write(
        "models/totals.sql",
        """
        {{ config(materialized='materialized_view') }}
        select kind, sum(price) as price from {{ ref('items') }} group by kind
        """,
    )
    project.write("models/plain.sql", "{{ config(materialized='table') }} select 1 as id")
    process = service()
    built = project.dbt("build")
    assert built.ok, built.text
    assert project.sql(VIEW) == [("a", 5), ("b", 2)]

    project.sql("INSERT INTO lake.shop.items VALUES (4, 'b', 8)")
    again = project.dbt("run")
    assert again.ok, again.text
    assert "INCREMENTAL" in again.messages["totals"]
    assert project.sql(VIEW) == [("a", 5), ("b", 10)]

    process.kill()
    process.wait()
    project.sql("INSERT INTO lake.shop.items VALUES (5, 'c', 9)")
    before = project.snapshots("totals")
    refused = project.dbt("run")
    assert not refused.ok
    told = refused.text + str(refused.messages)
    assert "META_UNREACHABLE" in told
    assert "streamsql meta serve" in told
    assert project.snapshots("totals") == before
    assert project.sql(VIEW) == [("a", 5), ("b", 10)]

    service()
    recovered = project.dbt("run")
    assert recovered.ok, recovered.text
    assert project.sql(VIEW) == [("a", 5), ("b", 10), ("c", 9)]
    store = open_store(project.host.meta)
    commits = [entry for entry in store.audit() if entry.action == "commit"]
    assert {entry.who for entry in commits} == {"default"}
    assert commits[0].detail["tables"] == ["lake.shop.totals"]
    assert store.last_committed() == len(commits) == 3
    assert store.unfinished() == []
    assert store.staged.records() == []
    assert store.fence().owner == ""
    store.close()


def test_a_service_with_queries_answers_them_on_a_spark_of_its_own(project, service):
    project.write("seeds/items.csv", "id,kind,price\n1,a,1\n2,b,2\n3,a,4\n")
    project.write(
        "models/totals.sql",
        "{{ config(materialized='materialized_view') }} "
        "select kind, sum(price) as price from {{ ref('items') }} group by kind",
    )
    process = service("--queries")
    assert project.dbt("build").ok
    token = local_tokens.find(int(service.url.rpartition(":")[2]))
    with httpx.Client(
        base_url=service.url,
        headers={"Authorization": f"Bearer {token}"},
        timeout=240,
        trust_env=False,
    ) as client:
        refused = client.post("/ui/api/query", json={"sql": "select * from text.`/etc/passwd`"})
        assert (refused.status_code, refused.json()["code"]) == (400, "TABLE_MISSING")
        answer = client.post("/ui/api/query", json={"sql": f"{VIEW} desc"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["rows"] == [["b", "2"], ["a", "5"]]
    process.send_signal(signal.SIGTERM)
    process.wait(60)
