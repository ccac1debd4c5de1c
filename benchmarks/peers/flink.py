"""Flink: one streaming query in SQL over folders that slices are put into.

PyFlink pins other versions of our own dependencies, so it lives in an environment of its own. A
query writes its changelog (`TO_CHANGELOG`) as parquet files; what is left of it after folding the
changes are its rows.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyspark

from benchmarks.peers import queries
from benchmarks.peers.slices import columns, put
from benchmarks.peers.system import Taken, Task
from dbt_streamsql.runtime.spark import jars
from dbt_streamsql.runtime.spark.java import find_java, launch_home
from dbt_streamsql.runtime.spark.pinned_jars import Jar

VERSION = "2.3.0"
PARQUET = Jar(
    "org.apache.flink",
    "flink-sql-parquet",
    VERSION,
    "f30617f4a5a6d437750f155ff72178ab34439aec91df64d96621c260559ba5fd",
)
DONE = "DONE"
"""What the worker's lines with figures start with."""
_LINGERS = 5
"""Seconds that Flink's Java may live longer than the Python that started it."""
MONITOR = "100 ms"
"""How often Flink looks for new files."""


class Flink:
    """The contestant; `folder` keeps its environment from run to run."""

    name = "flink"
    label = f"Flink {VERSION}, streaming SQL"
    cold = False
    cannot: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __init__(self, folder: Path, backend: str) -> None:
        self._folder = folder
        self._backend = backend
        self._process: subprocess.Popen[str] | None = None

    def take(self, task: Task) -> Taken:
        shutil.rmtree(task.work, ignore_errors=True)
        inbox, outbox = task.work / "in", task.work / "out"
        for table in queries.READS[task.query]:
            put(task.feed.files(table, 0), inbox / table)
        job = self._job(task, inbox, outbox)
        file = task.work / "job.json"
        file.write_text(json.dumps(job), encoding="utf-8")
        figures = self._run(file)
        shutil.rmtree(task.answer, ignore_errors=True)
        task.answer.parent.mkdir(parents=True, exist_ok=True)
        outbox.rename(task.answer)
        # Flink is still removing its own checkpoints.
        shutil.rmtree(task.work, ignore_errors=True)
        return Taken(tuple(figures["seconds"]), figures["history"], mode="streaming")

    def close(self) -> None:
        """End the worker, and its Java with it."""
        if self._process is not None:
            self._process.communicate()
            self._process = None
            time.sleep(_LINGERS)

    def _run(self, job: Path) -> dict[str, Any]:
        """The worker's figures for a job."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{job}\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith(DONE):
                figures: dict[str, Any] = json.loads(line.removeprefix(DONE))
                return figures
        process.wait()
        sys.exit(f"Flink failed:\n{self._log.read_text(encoding='utf-8')[-8000:]}")

    def _start(self) -> subprocess.Popen[str]:
        python = environment(self._folder)
        worker = Path(__file__).with_name("flink_worker.py")
        with self._log.open("w", encoding="utf-8") as log:
            return subprocess.Popen(  # noqa: S603 - our own program
                [str(python), str(worker)],
                env={**os.environ, "JAVA_HOME": str(launch_home(find_java()))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    @property
    def _log(self) -> Path:
        return self._folder / "flink.log"

    def _job(self, task: Task, inbox: Path, outbox: Path) -> dict[str, Any]:
        feed, tables = task.feed, queries.READS[task.query]
        outbox.mkdir()
        slices = []
        for number in range(1, feed.slices + 1):
            moves = []
            for table in tables:
                waiting = task.work / "waiting" / table
                put(feed.files(table, number), waiting)
                moves += [
                    (str(waiting / file.name), str(inbox / table / file.name))
                    for file in feed.files(table, number)
                ]
            slices.append(moves)
        expected = [
            {
                table: sum(feed.rows(table, number) for number in range(last + 1))
                for table in tables
            }
            for last in range(feed.slices + 1)
        ]
        port = _free_port()
        return {
            "port": port,
            "settings": self._settings(task.work, port),
            "tables": [
                *(_source(table, inbox / table) for table in tables),
                f"CREATE TEMPORARY VIEW answer AS {queries.flink(task.query)}",
                _sink(task.query, outbox),
            ],
            "insert": _insert(task.query),
            "outbox": str(outbox),
            "slices": slices,
            "expected": expected,
            "limits": [task.most(number) for number in range(1, feed.slices + 1)],
            "patience": max(300.0, task.limit * 10),
        }

    def _settings(self, work: Path, port: int) -> dict[str, str]:
        """Of the job: those that its users give it for throughput."""
        hadoop = Path(pyspark.__file__).parent / "jars"
        files = [*jars.ensure((PARQUET,)), *sorted(hadoop.glob("hadoop-client-*.jar"))]
        return {
            "pipeline.jars": ";".join(file.resolve().as_uri() for file in files),
            "parallelism.default": str(os.cpu_count() or 1),
            "rest.port": str(port),
            "rest.bind-port": str(port),
            "metrics.fetcher.update-interval": "50",
            "state.backend.type": self._backend,
            "execution.checkpointing.dir": (work / "checkpoints").as_uri(),
            "execution.checkpointing.incremental": "true",
            # Every slice ends with a checkpoint that is triggered by hand.
            "execution.checkpointing.interval": "1 h",
            "table.local-time-zone": "UTC",
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "1 s",
            "table.exec.mini-batch.size": "50000",
            "table.optimizer.agg-phase-strategy": "TWO_PHASE",
        }


def environment(folder: Path) -> Path:
    """The Python of an environment that has PyFlink, which is made when it is not there."""
    home = folder / "flink"
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not (home / VERSION).is_file():
        print(f"installing apache-flink {VERSION} into {home} (once)", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)  # noqa: S603
        packages = [f"apache-flink=={VERSION}"]
        subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)  # noqa: S603
        (home / VERSION).touch()
    return python.absolute()


def _source(table: str, inbox: Path) -> str:
    types = columns(table).replace("TIMESTAMP", "TIMESTAMP(6)")
    return (
        f"CREATE TABLE {table} ({types}) WITH ('connector' = 'filesystem', 'format' = 'parquet', "
        f"'path' = '{inbox.as_uri()}', 'source.monitor-interval' = '{MONITOR}', "
        "'parquet.utc-timezone' = 'true')"
    )


_TYPES = {
    "q01": "auction BIGINT, bidder BIGINT, price DECIMAL(24, 3), ts TIMESTAMP(6), extra STRING",
    "q02": "auction BIGINT, price BIGINT",
    "q03": "name STRING, city STRING, state STRING, id BIGINT",
    "q04": "category BIGINT, average DOUBLE",
    "q08": "id BIGINT, name STRING, starttime TIMESTAMP(6)",
    "q17": "auction BIGINT, `day` STRING, total_bids BIGINT, rank1_bids BIGINT, "
    "rank2_bids BIGINT, rank3_bids BIGINT, min_price BIGINT, max_price BIGINT, "
    "avg_price DOUBLE, sum_price BIGINT",
    "q18": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "ts TIMESTAMP(6), extra STRING",
}


def _sink(query: str, outbox: Path) -> str:
    change = "" if query in queries.ROW_BY_ROW else "op STRING, "
    return (
        f"CREATE TABLE sink ({change}{_TYPES[query]}) WITH ('connector' = 'filesystem', "
        f"'format' = 'parquet', 'path' = '{outbox.as_uri()}', 'parquet.utc-timezone' = 'true')"
    )


def _insert(query: str) -> str:
    changes = "SELECT * FROM TO_CHANGELOG(input => TABLE answer)"
    return f"INSERT INTO sink {'SELECT * FROM answer' if query in queries.ROW_BY_ROW else changes}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
