"""`dbt --log-format json` in a process of its own: what a program reads that runs dbt."""

from __future__ import annotations

import json

import pytest

from tests.support import dbt_processes

pytestmark = pytest.mark.processes

MODELS = {
    "t": "{{ config(materialized='table') }} select id, id % 3 as k from range(10)",
    "v": "{{ config(materialized='materialized_view') }} select k, count(*) as n "
    "from {{ ref('t') }} group by k",
    "bad": "{{ config(materialized='materialized_view') }} select nope from {{ ref('t') }}",
    "below": "{{ config(materialized='materialized_view') }} select * from {{ ref('bad') }}",
}


def test_every_line_is_json_also_of_what_the_adapter_tells_and_of_failures(project):
    for name, query in MODELS.items():
        project.write(f"models/{name}.sql", query)
    code, said = dbt_processes.run(
        project, "-c", dbt_processes.DBT, "--log-format", "json", "build"
    )
    assert code == 1
    events = [json.loads(line)["info"] for line in said.splitlines()]
    told = {event["name"]: event["msg"] for event in events if event["level"] == "error"}
    assert "[STREAMSQL.SQL_INVALID]" in told["RunResultError"]
    warned = [event["msg"] for event in events if event["level"] == "warn"]
    assert any(
        "Nothing from this run is published, because these failed: bad" in w for w in warned
    )
    done = [event["msg"] for event in events if event["name"] == "LogModelResult"]
    assert any("FULL +3 -0" in message for message in done)
    project.remove("models/bad.sql")
    project.remove("models/below.sql")
    code, said = dbt_processes.run(
        project, "-c", dbt_processes.DBT, "--log-format", "json", "build"
    )
    assert code == 0
    told = [json.loads(line)["info"] for line in said.splitlines()]
    (warning,) = [each["msg"] for each in told if each["level"] == "warn"]
    assert "an earlier run stopped before barrier 1 was published" in warning
