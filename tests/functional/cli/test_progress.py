"""What a real epoch leaves in the store: progress, delay from the root's commit, lineage."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from dbt_streamsql.cli import main
from dbt_streamsql.meta.inspect import delay, history, overview


@pytest.fixture
def shop(engine, spark, schema):
    """Two views over one another, built."""
    spark.sql(f"CREATE TABLE lake.{schema}.orders AS SELECT 1 AS id, 10 AS amount")
    table = f"lake.{schema}"
    engine.create_materialized_view(
        f"{table}.totals", f"SELECT id, sum(amount) AS amount FROM {table}.orders GROUP BY id"
    )
    engine.create_materialized_view(
        f"{table}.whole", f"SELECT sum(amount) AS a FROM {table}.totals"
    )
    return table


def found(engine) -> history.History:
    return history.load(engine.store)


def test_a_delay_counts_from_the_oldest_commit_that_an_epoch_takes_up(engine, spark, shop):
    before = time.time()
    spark.sql(f"INSERT INTO {shop}.orders VALUES (2, 5)")
    after = time.time()
    time.sleep(1.5)
    spark.sql(f"INSERT INTO {shop}.orders VALUES (3, 5)")
    report = engine.advance()
    told = found(engine)
    versions = told.versions[report.barrier]
    late = delay.delays(told, versions.values())
    for table in (f"{shop}.totals", f"{shop}.whole"):
        item = late[report.barrier, table]
        assert item.since.root == f"{shop}.orders"
        assert item.since.exact
        # Iceberg keeps whole milliseconds.
        assert before - 0.001 <= item.since.at <= after
        assert item.seconds > 1.5
        spent = item.waiting + sum(step.queued + step.seconds for step in item.steps)
        assert spent + item.aligning + item.publishing == pytest.approx(item.seconds)
        # The job ends before its version is published.
        assert 1.5 < report.tables[table].delay < item.seconds
        assert report.tables[table].started_at > after
    steps = [step.table for step in delay.critical_path(told, report.barrier).steps]
    assert steps == [f"{shop}.totals", f"{shop}.whole"]


def test_an_epoch_without_news_has_neither_delay_nor_barrier(engine, spark, shop):
    before = found(engine).newest_committed
    report = engine.advance()
    assert report.tables[f"{shop}.totals"].delay is None
    assert found(engine).newest_committed == before


def test_a_compaction_of_a_root_makes_nobody_late(engine, spark, shop):
    for number in range(3):
        spark.sql(f"INSERT INTO {shop}.orders VALUES (9, {number})")
    engine.advance()
    name = shop.removeprefix("lake.")
    spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{name}.orders', "
        "options => map('min-input-files', '2'))"
    )
    report = engine.advance()
    assert report.tables[f"{shop}.totals"].delay is None


def test_the_topology_of_a_real_store_is_current_after_an_epoch(engine, spark, shop):
    spark.sql(f"INSERT INTO {shop}.orders VALUES (4, 5)")
    engine.advance()
    nodes = {node.table: node for node in overview.topology(found(engine)).nodes}
    assert nodes[f"{shop}.orders"].kind == "root"
    assert nodes[f"{shop}.totals"].state == nodes[f"{shop}.whole"].state == "current"
    assert nodes[f"{shop}.whole"].delay is not None


@pytest.fixture
def told(monkeypatch, tmp_path):
    file = tmp_path / "events.json"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(file))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    return file


def events(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_an_epoch_tells_openlineage_of_every_job(engine, spark, shop, told):
    spark.sql(f"INSERT INTO {shop}.orders VALUES (5, 5)")
    report = engine.advance()
    found = [(e["job"]["name"], e["eventType"]) for e in events(told)]
    assert sorted(found) == [
        (f"{shop}.{view}", kind) for view in ("totals", "whole") for kind in ("COMPLETE", "START")
    ]
    about = events(told)[0]["run"]["facets"]["streamsql_barrier"]
    assert about["barrier"] == report.barrier
    assert about["delaySeconds"] > 0


def test_a_job_that_fails_is_told_to_openlineage(engine, spark, shop, told):
    broken = f"{shop}.broken"
    with pytest.raises(Exception, match="no"):
        engine.create_materialized_view(
            broken, f"SELECT raise_error('no') AS x FROM {shop}.orders"
        )
    engine.abort()
    kinds = [e["eventType"] for e in events(told) if e["job"]["name"] == broken]
    assert kinds == ["START", "FAIL"]


def test_a_lineage_server_that_is_away_does_not_fail_a_run(
    engine, spark, shop, monkeypatch, caplog
):
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "no-such-transport")
    spark.sql(f"INSERT INTO {shop}.orders VALUES (6, 5)")
    assert engine.advance().tables[f"{shop}.totals"].mode == "append"
    assert "OpenLineage" in caplog.text


def test_dbt_and_the_command_tell_the_same_of_a_run(project):
    """The response of a model ends when it has run, the barrier when dbt's run does."""
    project.write("seeds/orders.csv", "id,user_id,amount\n1,10,5\n2,11,7\n")
    query = "select user_id, sum(amount) as amount from {{ ref('orders') }} group by user_id"
    project.write("models/totals.sql", "{{ config(materialized='materialized_view') }} " + query)
    assert project.dbt("build").ok
    first = project.json("run_results.json")["results"][-1]["adapter_response"]
    assert first["started_at"] > 0
    assert "delay" not in first
    project.sql("INSERT INTO lake.shop.orders VALUES (3, 10, 1)")
    assert project.dbt("run").ok
    response = project.json("run_results.json")["results"][0]["adapter_response"]
    root = str(project.root)
    at = ["--project-dir", root, "--profiles-dir", root, "--json"]
    shown = CliRunner().invoke(main, ["barrier", "show", str(response["barrier"]), *at])
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.output)
    assert told["jobs"][0]["started_at"] == response["started_at"]
    delay_told = told["delays"][0]
    assert delay_told["since"]["root"] == "lake.shop.orders"
    assert 0 < response["delay"] < delay_told["seconds"]
    summary = json.loads(CliRunner().invoke(main, ["status", *at]).output)
    assert [t["state"] for t in summary["tables"]] == ["root", "current"]
