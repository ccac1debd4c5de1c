"""Python models that return a stream, through dbt: each record once, whoever dies."""

from __future__ import annotations

import json
import signal

import pytest

from dbt_streamsql.connectors.sources.registry import PYTHON, open_source
from dbt_streamsql.errors import Place, StreamSqlError
from tests.support.dbt_processes import DBT, DBT_THAT_DIES, run

CLICKS = """
def model(dbt, session):
    dbt.config(materialized="streaming_table")
    lines = session.readStream.schema("id INT, page STRING").json({folder!r})
    return lines.where("page <> 'health'").selectExpr("id", "upper(page) AS page")
"""
PAGES = """
    {{ config(materialized='materialized_view') }}
    select page, count(*) as n from {{ ref('clicks') }} group by page
"""


@pytest.fixture
def shop(project, tmp_path):
    folder = tmp_path / "incoming"
    folder.mkdir()
    project.write("models/clicks.py", CLICKS.format(folder=str(folder)))
    project.write("models/pages.sql", PAGES)
    project.incoming = folder
    come(project, "first", (1, "home"), (2, "cart"), (3, "health"))
    return project


def come(project, name, *records):
    lines = "".join(json.dumps({"id": i, "page": page}) + "\n" for i, page in records)
    # Under another name first: a file is seen whole or not at all.
    hidden = project.incoming / f".{name}"
    hidden.write_text(lines)
    hidden.rename(project.incoming / f"{name}.json")


def clicks(project):
    return sorted(project.sql("select id, page from lake.shop.clicks"))


def pages(project):
    return sorted(project.sql("select page, n from lake.shop.pages"))


def test_each_record_of_the_stream_is_taken_once(shop):
    done = shop.dbt("run")
    assert done.ok, done.messages
    assert clicks(shop) == [(1, "HOME"), (2, "CART")]
    come(shop, "second", (4, "home"))
    assert shop.dbt("run").ok
    assert clicks(shop) == [(1, "HOME"), (2, "CART"), (4, "HOME")]
    assert pages(shop) == [("CART", 1), ("HOME", 2)]
    assert shop.dbt("run").ok
    assert len(clicks(shop)) == 3


def test_a_runner_takes_what_comes(shop):
    assert shop.dbt("run").ok
    come(shop, "second", (4, "home"))
    done = shop.streamsql("run", "--once")
    assert done.exit_code == 0, done.output
    assert clicks(shop) == [(1, "HOME"), (2, "CART"), (4, "HOME")]
    assert pages(shop) == [("CART", 1), ("HOME", 2)]


@pytest.mark.processes
@pytest.mark.parametrize("step", ["stream.record", "branch.write", "barrier.commit"])
def test_a_run_that_is_killed_loses_nothing_and_repeats_nothing(shop, step):
    assert shop.dbt("run").ok
    come(shop, "second", (4, "home"))
    code, output = run(shop, "-c", DBT_THAT_DIES + DBT, step, "run")
    assert code == -signal.SIGKILL, output
    come(shop, "third", (5, "cart"))
    assert shop.dbt("run").ok
    assert clicks(shop) == [(1, "HOME"), (2, "CART"), (4, "HOME"), (5, "CART")]
    assert pages(shop) == [("CART", 2), ("HOME", 2)]


def test_a_full_refresh_reads_the_stream_from_its_beginning(shop):
    assert shop.dbt("run").ok
    come(shop, "second", (4, "home"))
    assert shop.dbt("run", "--full-refresh").ok
    assert clicks(shop) == [(1, "HOME"), (2, "CART"), (4, "HOME")]


def test_what_is_published_is_not_kept_twice(shop):
    assert shop.dbt("run").ok
    come(shop, "second", (4, "home"))
    assert shop.dbt("run").ok
    assert not list(shop.root.glob("warehouse/.streams/*/*/batches/*/*.parquet"))


def test_a_result_that_ends_is_no_stream_and_the_other_way_round(shop):
    ends = CLICKS.format(folder=str(shop.incoming)).replace("readStream", "read")
    shop.write("models/clicks.py", ends)
    told = shop.dbt("run", "--select", "clicks").messages["clicks"]
    assert "PYTHON_MODEL" in told
    assert "session.readStream" in told
    other = CLICKS.format(folder=str(shop.incoming)).replace("streaming_table", "table")
    shop.write("models/clicks.py", other)
    told = shop.dbt("run", "--select", "clicks").messages["clicks"]
    assert "materialized: streaming_table" in told


def test_the_line_of_an_error_is_told(shop):
    shop.write("models/clicks.py", CLICKS.format(folder=""))
    told = shop.dbt("run", "--select", "clicks").messages["clicks"]
    assert "empty string" in told
    assert "look at line 3" in told


def test_code_runs_only_where_it_was_given(spark, tmp_path):
    declared = {"connector": PYTHON, "options": {"code": "0" * 64, "checkpoint": str(tmp_path)}}
    with pytest.raises(StreamSqlError) as caught:
        open_source(declared, Place("shop.clicks"), "shop.clicks").columns(spark)
    assert caught.value.code == "STREAM_UNREACHABLE"
    assert "does not have the code" in caught.value.message
