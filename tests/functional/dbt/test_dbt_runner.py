"""`streamsql run` on a project, as processes: it follows the project and its inputs, ends when it
is asked, and is succeeded when it dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.support import patience

pytestmark = pytest.mark.processes

STREAMSQL = Path(sys.executable).with_name("streamsql")
EVENTS = 1000
"""After so many what a test waits for does not come."""
VIEW = "{{ config(materialized='materialized_view') }} select "
SOURCES = """
    version: 2
    sources:
      - name: made
        tables:
          - name: clicks
            config: {meta: {streamsql: {connector: rate, options: {rows_per_second: 20}}}}
"""


class Run:
    """A runner as a process of its own; what it says is read while it does."""

    def __init__(self, root, *arguments):
        folders = ["--project-dir", str(root), "--profiles-dir", str(root)]
        self._errors = root / "stderr.txt"
        self.process = subprocess.Popen(
            [STREAMSQL, "run", "--interval", "500ms", *arguments, *folders],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=self._errors.open("a"),
            text=True,
            start_new_session=True,
        )
        self.events = []
        self._more = threading.Condition()
        self._listens = threading.Thread(target=self._listen, daemon=True)
        self._listens.start()

    def _listen(self):
        for line in self.process.stdout:
            with self._more:
                # Java tells its stacks there when a test gives up.
                if line.startswith("{"):
                    self.events.append(json.loads(line))
                self._more.notify_all()

    def wait(self, holds, after=0):
        end = len(self.events) + EVENTS

        def there():
            with self._more:
                found = [event for event in self.events[after:] if holds(event)]
                if not found:
                    self._more.wait(1)
                assert len(self.events) < end, self.events
            # Looked at last: what it said before it ended has been heard.
            assert found or self.process.poll() is None or self._listens.is_alive(), self.events
            return found

        return patience.until(there, self.process, sign=lambda: len(self.events), pause=0)[0]

    def ends(self):
        """The exit code."""
        try:
            code = patience.wait(self.process, sign=lambda: len(self.events))
        except patience.Stuck as stuck:
            told = self._errors.read_text()
            raise AssertionError(f"{stuck}\n{self.events}\n{told}") from None
        patience.join(self._listens)
        return code

    def tick(self, table, after=0):
        return self.wait(lambda event: table in event.get("tables", {}), after)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def runs(project):
    with ExitStack() as processes:

        def start(*arguments):
            run = Run(project.root, *arguments)
            processes.callback(lambda: run.process.poll() is not None or run.kill())
            return run

        yield start


@pytest.fixture
def shop(project):
    project.write("models/sources.yml", SOURCES)
    project.write(
        "models/clicks.sql",
        "{{ config(materialized='streaming_table') }} select value from {{ source('made', 'clicks') }}",
    )
    project.write("models/counted.sql", VIEW + "count(*) as n from {{ ref('clicks') }}")
    return project


def test_a_runner_follows_the_streams_and_the_files_of_a_project(shop, runs):
    run = runs()
    assert run.wait(lambda event: event["event"] == "project") == {
        **run.wait(lambda event: event["event"] == "project"),
        "models": 2,
        "failed": {},
    }
    first = run.tick("lake.shop.counted")
    assert first["tables"]["lake.shop.clicks"]["mode"] == "append"
    assert first["tables"]["lake.shop.counted"]["mode"] == "incremental"

    # A change of a model, made while the runner is at work.
    seen = len(run.events)
    shop.write("models/doubled.sql", VIEW + "value * 2 as twice from {{ ref('clicks') }}")
    run.wait(lambda event: event["event"] == "project", seen)
    run.tick("lake.shop.doubled", seen)

    # A project that cannot be read is told, and what was registered goes on.
    seen = len(run.events)
    shop.write("models/broken.sql", VIEW + "{{ ref('nowhere') }}")
    error = run.wait(lambda event: event["event"] == "error", seen)
    assert error["code"] == "PROJECT_INVALID"
    assert "nowhere" in error["message"]
    run.tick("lake.shop.counted", run.events.index(error))

    # A run of dbt beside it comes in between two epochs.
    shop.remove("models/broken.sql")
    done = shop.dbt("run", "-s", "counted", "--full-refresh")
    assert done.ok, done.messages

    run.process.send_signal(signal.SIGTERM)
    assert run.ends() == 0
    assert run.events[-1]["event"] == "stopping"
    store = shop.host.engine.store
    assert store.unfinished() == []
    assert store.leaders.leader() is None
    assert shop.host.engine.verify("lake.shop.counted") == []
    assert shop.host.engine.verify("lake.shop.doubled") == []


def test_two_runs_of_dbt_and_a_runner_take_turns_on_one_wide_table(shop, runs):
    shop.write(
        "models/crm.sql", "{{ config(materialized='table') }} select 1L as id, 'Ann' as name"
    )
    shop.write(
        "models/wide.sql",
        """
        {{ config(materialized='partial_update', key='id') }}
        INSERT INTO {{ this }} (id, name) SELECT id, name FROM {{ ref('crm') }};
        INSERT INTO {{ this }} (id, clicks) SELECT value % 5, count(*) FROM {{ ref('clicks') }}
        GROUP BY value % 5;
        """,
    )
    assert shop.dbt("run", "-s", "crm").ok
    run = runs()
    run.tick("lake.shop.wide")
    folders = ["--project-dir", str(shop.root), "--profiles-dir", str(shop.root)]
    aside = ["--target-path", f"{shop.root}/target2", "--log-path", f"{shop.root}/logs2"]
    other = subprocess.Popen(
        [Path(sys.executable).with_name("dbt"), "run", *folders, *aside],
        stdout=subprocess.PIPE,
        text=True,
    )
    while other.poll() is None:
        done = shop.dbt("run", "-s", "wide")
        assert done.ok, done.messages
    assert other.returncode == 0, other.stdout.read()
    run.tick("lake.shop.wide", len(run.events))
    run.process.send_signal(signal.SIGTERM)
    assert run.ends() == 0
    assert [event for event in run.events if event["event"] == "error"] == []
    assert shop.host.engine.verify("lake.shop.wide") == []
    assert shop.sql("select name from lake.shop.wide where id = 1") == [("Ann",)]
    assert shop.sql("select sum(clicks) from lake.shop.wide") == shop.sql(
        "select count(*) from lake.shop.clicks"
    )


def test_who_stands_by_takes_over_within_ten_seconds_when_the_leader_is_killed(shop, runs):
    leader = runs()
    leader.tick("lake.shop.counted")
    began = time.time()
    other = runs()
    assert other.wait(lambda event: event["event"] == "standby")["leader"].split(":")[1] == str(
        leader.process.pid
    )
    start = time.time() - began
    killed = time.time()
    leader.kill()
    other.wait(lambda event: event["event"] == "leading")
    taken = time.time() - killed
    # Where a start takes longer than ten seconds, the machine is slow.
    assert taken < max(10, start), f"{taken:.1f} s, a start {start:.1f} s"
    other.tick("lake.shop.counted")
    other.process.send_signal(signal.SIGTERM)
    assert other.ends() == 0
    assert shop.dbt("parse").ok
    assert shop.host.engine.verify("lake.shop.counted") == []
    # Each record is there once, whoever read it.
    assert shop.sql("select count(*) - count(distinct value) from lake.shop.clicks") == [(0,)]
    assert shop.sql("select count(*) - max(value) from lake.shop.clicks") == [(1,)]


def test_once_runs_one_epoch_and_tells_by_its_exit_code_whether_something_failed(shop, runs):
    assert runs("--once").ends() == 0
    shop.write("models/shares.sql", VIEW + "10 / (value - value) as s from {{ ref('clicks') }}")
    run = runs("--once")
    assert run.ends() == 1
    # What failed is not published, the others are.
    run.tick("lake.shop.counted")
    project = run.wait(lambda event: event["event"] == "project")
    assert "zero" in project["failed"]["model.shop.shares"].lower()
    assert shop.dbt("parse").ok
    assert shop.host.engine.verify("lake.shop.counted") == []


def test_only_what_is_selected_is_followed(shop, runs):
    shop.write("models/other.sql", VIEW + "max(value) as top from {{ ref('clicks') }}")
    assert shop.dbt("run").ok
    run = runs("--select", "counted")
    tick = run.tick("lake.shop.counted")
    assert "lake.shop.clicks" in tick["tables"], "what it reads comes along"
    assert "lake.shop.other" not in tick["tables"]
    run.process.send_signal(signal.SIGINT)
    assert run.ends() == 0


def test_two_targets_run_in_parallel_and_one_whose_process_dies_comes_back(shop, runs):
    profiles = yaml.safe_load((shop.root / "profiles.yml").read_text())
    outputs = profiles["shop"]["outputs"]
    outputs["stock"] = {**outputs["dev"], "boundary": "stock"}
    (shop.root / "profiles.yml").write_text(yaml.safe_dump(profiles))
    shop.write("models/stock/kept.sql", VIEW + "max(n) as n from {{ ref('counted') }}")
    run = runs("--target", "dev=+counted", "--target", "stock=kept")
    seen = run.tick("lake.shop.counted")
    assert seen["target"] == "dev"
    # It reads a table that the other target makes: it is tried until that is there.
    assert run.tick("lake.shop.kept")["target"] == "stock"
    stock = run.wait(lambda event: event["event"] == "leading" and event["target"] == "stock")
    seen = len(run.events)
    os.kill(int(stock["owner"].split(":")[1]), signal.SIGKILL)
    error = run.wait(lambda event: event["event"] == "error", seen)
    assert (error["target"], "restarting it" in error["message"]) == ("stock", True)
    run.tick("lake.shop.kept", run.events.index(error))
    run.process.send_signal(signal.SIGTERM)
    assert run.ends() == 0
    assert {e["target"] for e in run.events if e["event"] == "stopping"} == {"dev", "stock"}


def test_two_targets_that_are_one_topology_are_refused(shop, runs):
    run = runs("--target", "dev", "--target", "dev=counted", "--target", "again")
    assert run.ends() == 2
    profiles = yaml.safe_load((shop.root / "profiles.yml").read_text())
    outputs = profiles["shop"]["outputs"]
    outputs["again"] = {**outputs["dev"], "threads": 2}
    (shop.root / "profiles.yml").write_text(yaml.safe_dump(profiles))
    assert runs("--target", "dev", "--target", "again").ends() == 2
    assert "two targets have the same topology" in (shop.root / "stderr.txt").read_text()
