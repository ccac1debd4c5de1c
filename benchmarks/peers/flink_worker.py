"""Streaming queries of Flink, one after the other, over folders that slices are put into.

Runs in Flink's own environment, where nothing of this project is: `flink.py` starts it, sends a
job a line (the name of a JSON file) and reads the figures from a line that starts with `DONE`.

A slice is done when the sources have read all its rows and a checkpoint that was triggered after
that is complete and its files are committed: a reader of the sink's folder sees every change.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

DONE = "DONE"
POLL = 0.05
"""Seconds between two looks at the job."""


class Job:
    """The running query, seen through Flink's REST interface."""

    def __init__(self, port: int, outbox: Path) -> None:
        self._root = f"http://127.0.0.1:{port}"
        self._outbox = outbox
        self._id = self._running()

    def read(self, expected: dict[str, int]) -> bool:
        """Whether the sources have read that many rows of each table."""
        found: dict[str, int] = {}
        for vertex in self._ask(f"/jobs/{self._id}")["vertices"]:
            path = f"/jobs/{self._id}/vertices/{vertex['id']}/metrics"
            names = [one["id"] for one in self._ask(path)]
            chosen = [n for n in names if "Source__" in n and n.endswith(".numRecordsOut")]
            if not chosen:
                continue
            for metric in self._ask(f"{path}?get={','.join(chosen)}"):
                table = metric["id"].split("Source__")[1].split("[")[0].split("_")[0]
                found[table] = found.get(table, 0) + int(metric["value"])
        return all(found.get(table, 0) >= rows for table, rows in expected.items())

    def wait(self, expected: dict[str, int], limit: float) -> None:
        """Until everything that was put is read, computed, and committed by the sink."""
        deadline = time.monotonic() + limit
        while not self.read(expected):
            self._check(deadline)
            time.sleep(POLL)
        trigger = self._ask(f"/jobs/{self._id}/checkpoints", {"checkpointType": "CONFIGURED"})
        path = f"/jobs/{self._id}/checkpoints/{trigger['request-id']}"
        while (answer := self._ask(path))["status"]["id"] != "COMPLETED":
            self._check(deadline)
            time.sleep(POLL)
        if "failure-cause" in answer.get("operation", {}):
            sys.exit(f"the checkpoint failed: {answer}")
        while any(self._outbox.rglob(".*inprogress*")):
            self._check(deadline)
            time.sleep(POLL)

    def _check(self, deadline: float) -> None:
        state = self._ask(f"/jobs/{self._id}")["state"]
        if state not in ("CREATED", "RUNNING"):
            sys.exit(f"the job is {state}: {self._ask(f'/jobs/{self._id}/exceptions')}")
        if time.monotonic() > deadline:
            sys.exit("the job did not finish a slice in time")

    def _running(self) -> str:
        while not (jobs := self._ask("/jobs")["jobs"]):
            time.sleep(POLL)
        return str(jobs[0]["id"])

    def _ask(self, path: str, body: dict[str, str] | None = None) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - our own server
            self._root + path, data=sent, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
            return json.loads(answer.read())


def environment(job: dict[str, Any]) -> TableEnvironment:
    """A table environment with a cluster of its own in this process's Java."""
    configuration = Configuration()
    for key, value in job["settings"].items():
        configuration.set_string(key, value)
    settings = (
        EnvironmentSettings.new_instance()
        .in_streaming_mode()
        .with_configuration(configuration)
        .build()
    )
    return TableEnvironment.create(settings)


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Start the query over what is there, then put slice after slice."""
    started = time.monotonic()
    tables = environment(job)
    for statement in job["tables"]:
        tables.execute_sql(statement)
    result = tables.execute_sql(job["insert"])
    running = Job(job["port"], Path(job["outbox"]))
    running.wait(job["expected"][0], job["patience"])
    history = time.monotonic() - started
    seconds: list[float] = []
    for files, expected in zip(job["slices"], job["expected"][1:], strict=True):
        before = time.perf_counter()
        for source, target in files:
            Path(source).rename(target)
        running.wait(expected, job["patience"])
        seconds.append(time.perf_counter() - before)
        if seconds[-1] > job["limits"][len(seconds) - 1]:
            break
    client = result.get_job_client()
    assert client is not None
    client.cancel().result()
    return {"history": history, "seconds": seconds}


def main() -> None:
    """Until there is no more job."""
    for line in sys.stdin:
        job = json.loads(Path(line.strip()).read_text(encoding="utf-8"))
        print(DONE, json.dumps(run(job)), flush=True)


if __name__ == "__main__":
    main()
