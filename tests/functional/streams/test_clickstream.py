"""The example of streams, small: Kafka, a runner that goes on, PostgreSQL."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from dbt_streamsql import Engine
from dbt_streamsql.runtime.spark.session import open_session
from integration_tests.clickstream import produce
from tests.support import patience, spark_way
from tests.support import postgres as server_of

pytestmark = [pytest.mark.spark, pytest.mark.processes]

EXAMPLE = Path(__file__).resolve().parents[3] / "integration_tests" / "clickstream"
STREAMSQL = Path(sys.executable).with_name("streamsql")
EVENTS = 6_000
BIDS = EVENTS * 46 // 50


@pytest.fixture(scope="module")
def database():
    with server_of.server(server_of.PASSWORD) as port:
        yield port


@pytest.fixture(scope="module")
def played(kafka, database, tmp_path_factory):
    """The project's folder and environment, after events came before and beside a runner."""
    folder = tmp_path_factory.mktemp("example") / "clickstream"
    leave = shutil.ignore_patterns("warehouse", "target", "logs", "__pycache__")
    shutil.copytree(EXAMPLE, folder, ignore=leave)
    env = {
        **os.environ,
        "CLICKSTREAM_KAFKA": kafka.address,
        "CLICKSTREAM_POSTGRES": str(database),
        "DBT_ENV_SECRET_CLICKSTREAM": server_of.PASSWORD,
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    }
    produce.make_topics(kafka.address)
    sender = produce.Sender(kafka.address, produce.Events(seed=3))
    now = int(time.time() * 1000)
    sender.send(EVENTS // 2, now - 30_000, now)
    sender.flush()
    said, log = folder / "said.jsonl", folder / "stderr.txt"
    with said.open("w") as out, log.open("w") as err:
        process = subprocess.Popen(
            [STREAMSQL, "run", "--continuous", "--json"],
            cwd=folder,
            env=env,
            stdout=out,
            stderr=err,
        )
    try:
        until(lambda: delivered(database) >= BIDS // 2, process, said, log)
        sender.run(EVENTS // 20, 10)
        until(lambda: delivered(database) >= BIDS, process, said, log)
    finally:
        process.send_signal(signal.SIGTERM)
        assert patience.wait(process) == 0, log.read_text()[-3000:]
    return folder, env


@pytest.fixture(scope="module")
def ran(played):
    return played[0]


def until(holds, process, said, log):
    """As long as the runner works, for a thousand epochs."""

    def settled():
        assert process.poll() is None, log.read_text()[-3000:]
        assert said.read_text().count("\n") < 1000, said.read_text()[-3000:]
        return holds()

    patience.until(settled, process, pause=0.5)


def rows(port, query):
    with psycopg.connect(
        host="127.0.0.1",
        port=port,
        user="postgres",
        password=server_of.PASSWORD,
        dbname="postgres",
    ) as connection:
        return connection.execute(query).fetchall()


def delivered(port):
    """How many bids PostgreSQL has been told of."""
    try:
        return int(rows(port, "SELECT coalesce(sum(bids), 0) FROM channel_minutes")[0][0])
    except psycopg.errors.UndefinedTable:
        return 0


@pytest.fixture(scope="module")
def engine(spark, ran):
    warehouse = str(ran / "warehouse")
    engine = Engine.open(warehouse, spark=open_session(spark_way.settings(warehouse)))
    yield engine
    engine.close()


def names(folder):
    return sorted(
        f"lake.clickstream.{file.stem}"
        for kind in ("bids", "auctions")
        for file in (folder / "models" / kind).glob("*.sql")
    )


def test_all_twelve_views_equal_their_queries(engine, ran):
    views = names(ran)
    assert len(views) == 12
    assert [view for view in views if engine.verify(view)] == []
    for view in views:
        assert engine.sql(f"SELECT 1 FROM {view} LIMIT 1").collect(), f"{view} is empty"


def test_each_event_is_in_its_stream_once(engine):
    counts = {
        topic: engine.sql(f"SELECT count(*) FROM lake.clickstream.{topic}").collect()[0][0]
        for topic in produce.TOPICS
    }
    assert counts == {"persons": EVENTS // 50, "auctions": EVENTS * 3 // 50, "bids": BIDS}


def test_postgresql_has_what_the_views_have(engine, database):
    for view, columns in (
        ("channel_minutes", "channel, bids, small_bids, great_bids, total"),
        ("category_prices", "category, average, auctions"),
    ):
        ours = engine.sql(f"SELECT {columns} FROM lake.clickstream.{view}").collect()
        theirs = rows(database, f"SELECT {columns} FROM {view}")
        assert sorted(map(tuple, ours)) == sorted(theirs)


def test_once_the_project_runs_no_view_is_made_anew(ran):
    events = [json.loads(line) for line in (ran / "said.jsonl").read_text().splitlines()]
    modes = {
        (name, told["mode"])
        for event in events
        if event["event"] == "tick"
        for name, told in event["tables"].items()
    }
    assert {name for name, mode in modes if mode == "full"} == set()
    assert not [event for event in events if event["event"] == "error" or event.get("failed")]


def test_the_tests_of_the_example_pass(played):
    folder, env = played
    dbt = [sys.executable, "-c", "from dbt.cli.main import cli; cli()", "test"]
    done = patience.run(dbt, cwd=folder, env=env)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "PASS=6" in done.stdout
