"""OpenLineage events: what is told of a job at a barrier, read back from the library's own files."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import RunEvent
from openlineage.client.facet_v2 import (
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    sql_job,
)
from openlineage.client.serde import Serde

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import open_store
from dbt_streamsql.meta.inspect import delay, history
from dbt_streamsql.plan.algebra.lineage import Direct, Lineage
from dbt_streamsql.runtime.publish import openlineage
from dbt_streamsql.runtime.publish.openlineage import Place
from tests.support.histories import CLEAN, ITEMS, REVENUE, Clock, job, tell

PLACE = Place("0123abcd", lambda catalog: f"/data/{catalog}", "4.1.4")
FACETS = {
    "jobType": job_type_job.JobTypeJobFacet,
    "sql": sql_job.SQLJobFacet,
    "nominalTime": nominal_time_run.NominalTimeRunFacet,
    "processing_engine": processing_engine_run.ProcessingEngineRunFacet,
    "errorMessage": error_message_run.ErrorMessageRunFacet,
    "schema": schema_dataset.SchemaDatasetFacet,
    "version": dataset_version_dataset.DatasetVersionDatasetFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
}
"""The library's classes for the facets that we tell."""


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that the library writes events to."""
    file = tmp_path / "events.json"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(file))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    return file


@pytest.fixture
def found(tmp_path: Path) -> Iterator[history.History]:
    clock = Clock(10_000.0)
    store = open_store(f"sqlite:///{tmp_path}/meta.db", clock=clock)
    tell(store, clock, 4)
    yield history.load(store)
    store.close()


def events_of(found: history.History, number: int, table: str) -> list[RunEvent]:
    barrier, version = found.at(number), found.versions[number][table]
    assert barrier is not None
    late = delay.delay(found, version)
    return list(openlineage.events(barrier, version, found.jobs[table], PLACE, late))


def written(file: Path, events: list[RunEvent]) -> list[dict]:
    client = OpenLineageClient()
    for event in events:
        client.emit(event)
    client.close()
    return [json.loads(line) for line in file.read_text().splitlines()]


def facets_of(event: dict) -> Iterator[tuple[str, dict]]:
    yield from event["run"]["facets"].items()
    yield from event["job"]["facets"].items()
    for dataset in (*event["inputs"], *event["outputs"]):
        for group in ("facets", "inputFacets", "outputFacets"):
            yield from dataset.get(group, {}).items()


def test_a_job_at_a_barrier_is_one_run_that_starts_and_completes(found, told: Path) -> None:
    start, complete = written(told, events_of(found, 4, REVENUE))
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert UUID(start["run"]["runId"]).version == 7
    version = found.versions[4][REVENUE]
    assert start["eventTime"] == openlineage._iso(version.started_at)
    assert complete["eventTime"] == openlineage._iso(version.written_at)
    assert complete["job"]["name"] == "model.shop.item_revenue"
    assert {(i["namespace"], i["name"]) for i in complete["inputs"]} == {
        ("file:///data/lake", "shop.clean"),
        ("file:///data/lake", "raw.items"),
    }
    assert [o["name"] for o in complete["outputs"]] == ["shop.item_revenue"]


def test_the_stream_of_a_streaming_table_is_its_input(found) -> None:
    declared = {"connector": "kafka", "options": {"topic": "orders"}}
    stream = {"name": "lake.shop.events", "spec": declared, "connection": "broker"}
    reads = replace(found.jobs[REVENUE], sources=(), config={"stream": stream})
    found = replace(found, jobs={**found.jobs, REVENUE: reads})
    for event in events_of(found, 4, REVENUE):
        assert [(i.namespace, i.name) for i in event.inputs] == [("kafka://broker", "orders")]


def test_columns_are_told_with_those_that_they_are_made_of_and_those_that_decide(
    found, told: Path
) -> None:
    known = Lineage(
        {"amount": {(ITEMS, "price"): Direct.AGGREGATION}, "id": {}},
        {"JOIN": frozenset({(ITEMS, "id")}), "FILTER": frozenset({(ITEMS, "id")})},
    )
    barrier, version = found.at(4), found.versions[4][REVENUE]
    events = openlineage.events(barrier, version, found.jobs[REVENUE], PLACE, None, known)
    facet = written(told, list(events))[1]["outputs"][0]["facets"]["columnLineage"]
    items = {"namespace": "file:///data/lake", "name": "raw.items"}
    ways = [{"type": "INDIRECT", "subtype": kind} for kind in ("FILTER", "JOIN")]
    direct = [{"type": "DIRECT", "subtype": "AGGREGATION"}]
    assert facet["fields"] == {
        "amount": {"inputFields": [{**items, "field": "price", "transformations": direct}]},
        "id": {"inputFields": []},
    }
    assert facet["dataset"] == [{**items, "field": "id", "transformations": ways}]


def test_what_is_told_fits_the_facets_of_the_library(found, told: Path) -> None:
    events = written(told, events_of(found, 4, REVENUE))
    seen = set()
    for event in events:
        assert event["schemaURL"].startswith("https://openlineage.io/spec/")
        for name, facet in facets_of(event):
            if name == "tags":
                continue  # the library's own
            assert facet["_producer"] == openlineage.PRODUCER
            kind = FACETS.get(name)
            if kind is None:
                assert name == "streamsql_barrier"
                continue
            seen.add(name)
            given = {k: v for k, v in facet.items() if not k.startswith("_")}
            if name == "schema":
                fields = schema_dataset.SchemaDatasetFacetFields
                given["fields"] = [fields(**field) for field in given["fields"]]
            again = Serde.to_dict(kind(**given, producer=openlineage.PRODUCER))
            assert again == facet
    assert seen == set(FACETS) - {"errorMessage"}


def test_the_facet_of_the_barrier_tells_mode_rows_cost_and_delay(found, told: Path) -> None:
    _, complete = written(told, events_of(found, 4, REVENUE))
    about = complete["run"]["facets"]["streamsql_barrier"]
    assert about["barrier"] == 4
    assert (about["mode"], about["rowsInserted"], about["rowsDeleted"]) == ("incremental", 16, 4)
    assert about["delaySeconds"] == pytest.approx(60.3)
    assert about["delaySince"] == ITEMS
    assert complete["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 16


def test_telling_a_barrier_again_tells_of_the_same_runs(found) -> None:
    first, again = events_of(found, 4, CLEAN), events_of(found, 4, CLEAN)
    assert [e.run.runId for e in first] == [e.run.runId for e in again]
    others = {events_of(found, n, t)[0].run.runId for n in (3, 4) for t in (CLEAN, REVENUE)}
    assert len(others) == 4


@pytest.mark.parametrize(
    ("why", "end", "message"),
    [
        (StreamSqlError("SQL_INVALID", "Spark refuses the query"), "FAIL", "SQL_INVALID"),
        (ValueError("bad"), "FAIL", "ValueError: bad"),
        (KeyboardInterrupt(), "ABORT", "KeyboardInterrupt"),
    ],
)
def test_a_job_that_failed_is_told_with_its_error(told: Path, why, end: str, message: str) -> None:
    of = job(CLEAN, (ITEMS,))
    start, last = written(told, list(openlineage.failure(of, PLACE, 100.0, 107.0, why)))
    assert (start["eventType"], last["eventType"]) == ("START", end)
    assert start["run"]["runId"] == last["run"]["runId"]
    assert message in last["run"]["facets"]["errorMessage"]["message"]


def test_without_configuration_nothing_is_told(capsys) -> None:
    assert not openlineage.configured()
    with openlineage._telling("barrier 1") as client:
        assert client is None
    assert capsys.readouterr().out == ""


def test_a_setting_that_names_no_transport_prints_no_events(monkeypatch, capsys) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    with openlineage._telling("barrier 1") as client:
        assert client is None
    assert capsys.readouterr().out == ""


def test_a_configuration_file_in_the_working_folder_switches_it_on(tmp_path: Path) -> None:
    file = tmp_path / "told.json"
    (tmp_path / "openlineage.yml").write_text(
        f"transport: {{type: file, log_file_path: {file}, append: true}}\n"
    )
    with openlineage._telling("a job") as client:
        assert client is not None
        for event in openlineage.failure(job(CLEAN, (ITEMS,)), PLACE, 1.0, 2.0, ValueError("bad")):
            client.emit(event)
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "setting",
    [
        {"OPENLINEAGE__TRANSPORT__TYPE": "no-such-transport"},
        {
            "OPENLINEAGE__TRANSPORT__TYPE": "http",
            "OPENLINEAGE__TRANSPORT__URL": "http://127.0.0.1:1",
            "OPENLINEAGE__TRANSPORT__RETRY": '{"total": 0}',
        },
        {"OPENLINEAGE_URL": "not an address"},
    ],
)
def test_a_lineage_server_that_cannot_be_told_is_a_warning(
    monkeypatch, caplog, setting: dict[str, str]
) -> None:
    for key, value in setting.items():
        monkeypatch.setenv(key, value)
    of = job(CLEAN, (ITEMS,))
    with caplog.at_level(logging.WARNING), openlineage._telling("barrier 7") as client:
        if client is not None:
            for event in openlineage.failure(of, PLACE, 1.0, 2.0, ValueError("bad")):
                client.emit(event)
    warned = [r.getMessage() for r in caplog.records if r.name == "dbt_streamsql"]
    assert len(warned) == 1
    assert "OpenLineage" in warned[0]
