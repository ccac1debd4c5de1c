"""`streamsql status`, `topology` and `barrier` over a store that has run for a while."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dbt_streamsql.cli import main
from dbt_streamsql.meta import TableVersion, open_store
from tests.support.histories import CLEAN, ITEMS, ORDERS, REVENUE, Clock, job, tell


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    clock = Clock(10_000.0)
    store = open_store(f"sqlite:///{tmp_path}/streamsql.db", clock=clock)
    tell(store, clock, 4)
    store.close()
    return tmp_path


def run(warehouse: Path, *words: str) -> Result:
    piped = {"COLUMNS": None}  # a width that somebody set would fold the long names
    return CliRunner().invoke(main, [*words, "--warehouse", str(warehouse)], env=piped)


def read(warehouse: Path, *words: str):
    done = run(warehouse, *words)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_status_tells_each_table_and_the_job_that_contributes_most(warehouse: Path) -> None:
    done = run(warehouse, "status")
    assert done.exit_code == 0
    assert "newest barrier: 4" in done.output
    assert f"contributes most: {REVENUE}" in done.output
    told = read(warehouse, "status", "--json")
    assert told["barrier"] == 4
    assert {t["table"]: t["delay"] for t in told["tables"]}[CLEAN] == pytest.approx(27.1)


def test_the_topology_is_told_as_text_json_mermaid_and_dot(warehouse: Path) -> None:
    text = run(warehouse, "topology").output
    assert f"{ITEMS}  [root]\n  {REVENUE}  [current, barrier 4" in text
    told = read(warehouse, "topology", "--format", "json")
    assert {"source": ITEMS, "sink": REVENUE}.items() <= told["edges"][0].items()
    assert told == read(warehouse, "topology", "--json")
    assert "flowchart LR" in run(warehouse, "topology", "--format", "mermaid").output
    dot = run(warehouse, "topology", "--format", "dot").output
    assert f'"{ORDERS}" -> "{CLEAN}"' in dot


def test_barriers_are_listed_and_shown(warehouse: Path) -> None:
    assert [b["id"] for b in read(warehouse, "barrier", "list", "--json")] == [4, 3, 2, 1]
    assert len(read(warehouse, "barrier", "list", "--newest", "2", "--json")) == 2
    assert "greatest delay" in run(warehouse, "barrier", "list").output
    shown = run(warehouse, "barrier", "show", "4").output
    assert f"critical path: {CLEAN}" in shown
    told = read(warehouse, "barrier", "show", "4", "--json")
    assert told["jobs"][0]["table"] == CLEAN
    assert {j["state"] for j in told["jobs"]} == {"WRITTEN"}


@pytest.mark.parametrize(
    "words", [("status",), ("topology",), ("barrier", "list"), ("barrier", "show", "1")]
)
def test_a_warehouse_without_a_store_is_told_by_the_exit_code_and_stays_empty(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = run(tmp_path, *words)
    assert (done.exit_code, done.output) == (3, "nothing has run in this warehouse yet.\n")
    assert json.loads(run(tmp_path, *words, "--json").output)["found"] is False
    assert list(tmp_path.iterdir()) == []


def test_a_barrier_that_never_was_is_told_by_the_exit_code(warehouse: Path) -> None:
    assert run(warehouse, "barrier", "show", "99").exit_code == 3


def test_a_warehouse_and_a_profile_exclude_each_other(warehouse: Path) -> None:
    done = run(warehouse, "status", "--profile", "shop")
    assert done.exit_code == 2
    assert "CONFIG_INVALID" in done.output


def test_the_store_is_found_by_the_profile_of_a_project(warehouse: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "dbt_project.yml").write_text("name: shop\nprofile: shop\nversion: '1'\n")
    (project / "profiles.yml").write_text(
        "shop:\n  target: dev\n  outputs:\n"
        f"    dev: {{type: streamsql, schema: shop, warehouse: '{warehouse}'}}\n"
    )
    at = ["--project-dir", str(project), "--profiles-dir", str(project)]
    done = CliRunner().invoke(main, ["barrier", "list", "--json", *at])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.output)) == 4


def test_no_spark_is_started(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(SparkContext, "_ensure_initialized", started.append)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", started.append)
    monkeypatch.setattr(SparkSession.Builder, "create", started.append)
    assert run(warehouse, "status").exit_code == 0
    assert started == []


def test_names_are_shown_as_they_are_and_cannot_command_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    clock = Clock()
    store = open_store(f"sqlite:///{tmp_path}/streamsql.db", clock=clock)
    fence = store.acquire()
    number = store.begin(fence).id
    evil = 'lake.s.[red]x"<b>\x1b[2J'
    store.stage_job(fence, number, job(evil, (ORDERS,)))
    store.processed(fence, TableVersion(number, evil, created=True, started_at=1000.0))
    store.precommit(fence, number)
    store.written(fence, number, evil)
    store.commit(fence, number)
    store.close()
    told = [("status",), ("barrier", "show", "1"), ("barrier", "list"), ("topology",)]
    told += [("topology", "--format", kind) for kind in ("mermaid", "dot")]
    for words in told:
        done = run(tmp_path, *words)
        assert done.exit_code == 0, done.output
        assert "\x1b" not in done.output
        assert "[red]x" in done.output
    assert "&lt;b" not in run(tmp_path, "topology", "--format", "mermaid").output
    assert "#lt;b#gt;" in run(tmp_path, "topology", "--format", "mermaid").output


def test_status_names_who_leads_in_each_boundary_and_for_how_long(tmp_path: Path) -> None:
    for file, owner in (("streamsql.db", "host:1"), ("streamsql-payments.db", "host:2")):
        store = open_store(f"sqlite:///{tmp_path}/{file}")
        store.leaders.lead(owner, 600)
        store.close()
    shown = run(tmp_path, "status").output
    assert "leader: host:1, lease expires in " in shown
    assert "leader of boundary payments: host:2, lease expires in " in shown
    told = read(tmp_path, "status", "--json")
    assert (told["leader"], told["boundaries"]["payments"]["leader"]) == ("host:1", "host:2")
    assert 500 < told["leads_for"] <= 600


def test_a_leader_that_fell_silent_leads_no_more(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/streamsql.db")
    store.leaders.lead("host:1", -1)
    store.close()
    assert "leader" not in run(tmp_path, "status").output
    assert read(tmp_path, "status", "--json")["leader"] == ""


def test_a_stream_is_above_the_table_that_reads_it(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/streamsql.db")
    fence = store.acquire()
    number = store.begin(fence).id
    declared = {"connector": "kafka", "options": {"topic": "orders"}}
    stream = {"name": "lake.shop.events", "spec": declared, "connection": "broker"}
    made = replace(job(CLEAN, ("",)), sources=(), config={"stream": stream})
    store.stage_job(fence, number, made)
    store.processed(fence, TableVersion(number, CLEAN, created=True, started_at=1000.0))
    store.precommit(fence, number)
    store.written(fence, number, CLEAN)
    store.commit(fence, number)
    store.close()
    assert f"kafka://broker/orders  [root]\n  {CLEAN}" in run(tmp_path, "topology").output
    edges = read(tmp_path, "topology", "--json")["edges"]
    assert [(edge["source"], edge["sink"]) for edge in edges] == [("kafka://broker/orders", CLEAN)]
    assert "kafka://broker/orders" in run(tmp_path, "status").output
