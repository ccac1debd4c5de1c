"""Spark Declarative Pipelines: the `spark-pipelines` of the PySpark wheel, run once a slice.

Each run starts a Java and a Spark Connect server of its own; there is no other way that the
command knows. A query over single rows is a streaming table and takes the new files only, the
others are materialized views and are computed anew, as the command does with all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import queries
from benchmarks.peers.slices import columns, put
from benchmarks.peers.system import Taken, Task, slices
from dbt_streamsql.runtime.spark.java import find_java, launch_home

SPEC = "spark-pipeline.yml"
STARTED = "Starting run..."
"""What the command says when Spark is there and the pipeline is registered."""
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}
_STREAMING = """from __future__ import annotations

from pyspark import pipelines
from pyspark.sql import SparkSession


@pipelines.temporary_view
def bid():
    return SparkSession.active().readStream.schema({types!r}).parquet({folder!r})
"""


@dataclass(frozen=True)
class Ran:
    """Seconds of one command, and those until its pipeline began to run."""

    seconds: float
    startup: float


class Pipelines:
    """The contestant."""

    name = "pipelines"
    label = "Spark Declarative Pipelines"
    cold = True
    cannot: dict[str, str] = {}  # noqa: RUF012 - never changed

    def take(self, task: Task) -> Taken:
        shutil.rmtree(task.work, ignore_errors=True)
        project, inbox = task.work / "project", task.work / "in"
        tables = queries.READS[task.query]
        _write(task.query, project, inbox)
        for table in tables:
            put(task.feed.files(table, 0), inbox / table)
        # A materialized view does not care: it is computed from all files each time.
        streaming = task.query in queries.ROW_BY_ROW
        history = _run(project, task.work).seconds if streaming else 0.0
        startup: list[float] = []

        def take(number: int) -> None:
            for table in tables:
                put(task.feed.files(table, number), inbox / table)
            startup.append(_run(project, task.work).startup)

        seconds = tuple(slices(task, take, self.cold))
        shutil.rmtree(task.answer, ignore_errors=True)
        task.answer.mkdir(parents=True)
        for file in (task.work / "warehouse" / "answer").glob("*.parquet"):
            file.rename(task.answer / file.name)
        shutil.rmtree(task.work)
        mode = "streaming table" if streaming else "materialized view"
        return Taken(seconds, history, tuple(startup), mode=mode)

    def close(self) -> None:
        """Nothing runs between two commands."""


def _write(query: str, project: Path, inbox: Path) -> None:
    """The pipeline: its specification, the inputs, the query."""
    code = project / "transformations"
    code.mkdir(parents=True)
    spec = {
        "name": "nexmark",
        "storage": (project.parent / "storage").as_uri(),
        "libraries": [{"glob": {"include": "transformations/**"}}],
        "configuration": _SETTINGS,
    }
    # JSON is YAML too.
    (project / SPEC).write_text(json.dumps(spec), encoding="utf-8")
    text = queries.spark(query)
    if query in queries.ROW_BY_ROW:
        bids = _STREAMING.format(types=columns("bid"), folder=str(inbox / "bid"))
        (code / "inputs.py").write_text(bids, encoding="utf-8")
        text = text.replace("from bid", "from stream(bid)")
        statements = [f"CREATE STREAMING TABLE answer AS {text}"]
    else:
        statements = [
            f"CREATE TEMPORARY VIEW {table} AS SELECT * FROM parquet.`{inbox / table}`"
            for table in queries.READS[query]
        ]
        statements.append(f"CREATE MATERIALIZED VIEW answer AS {text}")
    (code / "answer.sql").write_text(";\n".join(statements) + ";\n", encoding="utf-8")


def _run(project: Path, work: Path) -> Ran:
    """`spark-pipelines run` as from a shell."""
    binaries = Path(sys.executable).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(launch_home(find_java())),
        "PATH": os.pathsep.join([str(binaries), os.environ.get("PATH", "")]),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
    }
    # The tables must be known to the next command: Hive's catalog in a file, as Spark brings it.
    options = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
    }
    given = [part for key, value in options.items() for part in ("--conf", f"{key}={value}")]
    command = [str(binaries / "spark-pipelines"), "run", "--spec", SPEC, *given]
    started, startup, lines = time.perf_counter(), 0.0, []
    with subprocess.Popen(  # noqa: S603 - our own command
        command,
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if STARTED in line:
                startup = time.perf_counter() - started
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{''.join(lines[-60:])}")
    return Ran(time.perf_counter() - started, startup)
