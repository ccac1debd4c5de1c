"""The two systems as processes: each is started on empty topics, keeps up, and is told to stop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from benchmarks.clickstream import flink_sql
from benchmarks.clickstream.services import Services, postgres
from benchmarks.peers import flink as peer
from dbt_streamsql.runtime.spark import jars
from dbt_streamsql.runtime.spark.java import find_java, launch_home
from dbt_streamsql.runtime.spark.pinned_jars import Jar

EXAMPLE = Path(__file__).resolve().parents[2] / "integration_tests" / "clickstream"
PATIENCE = 600
"""Seconds for a start or a stop."""
CONNECTORS = tuple(
    Jar("org.apache.flink", artifact, version, sha256)
    for artifact, version, sha256 in (
        (
            "flink-sql-connector-kafka",
            "5.0.0-2.2",
            "5605c691d11a501382c383fecba37a7a552467da5ab7ba904ef5d6f3d62c5616",
        ),
        (
            "flink-connector-jdbc-core",
            "4.0.0-2.0",
            "ccb9691bf1d0f97574ae768e1bef05a39c06d7f7b13996e9d485fbdd69dcbfec",
        ),
        (
            "flink-connector-jdbc-postgres",
            "4.0.0-2.0",
            "b59c29dc65cafe8ae398e69072b9f6022f4a978a09002fd06a05a1a8dd3348d6",
        ),
    )
)
"""Those of the newest Flink that has them: there are none for 2.3."""


class System(Protocol):
    """A system that keeps the views of the example and delivers two of them to PostgreSQL."""

    name: str
    label: str

    def running(self, services: Services) -> AbstractContextManager[None]:
        """From when it has begun to read, until it has ended."""

    def differing(self) -> list[str]:
        """After it has ended: its views that are not their queries."""

    def told(self) -> list[dict[str, Any]]:
        """What it said of its epochs."""


class Ours:
    """`streamsql run --continuous` on a copy of the example."""

    name = "streamsql"
    label = "streamsql run --continuous"

    def __init__(self, folder: Path, memory: str) -> None:
        self._folder = folder / "project"
        self._memory = memory
        self._events: list[dict[str, Any]] = []

    @contextmanager
    def running(self, services: Services) -> Iterator[None]:
        services.empty({})
        shutil.rmtree(self._folder, ignore_errors=True)
        leave = shutil.ignore_patterns("warehouse", "target", "logs", "__pycache__")
        shutil.copytree(EXAMPLE, self._folder, ignore=leave)
        profile = self._folder / "profiles.yml"
        own = f"      spark_properties: {{spark.driver.memory: {self._memory}}}\n"
        text = profile.read_text(encoding="utf-8")
        profile.write_text(text.replace("      threads:", own + "      threads:"), "utf-8")
        env = {
            **os.environ,
            "CLICKSTREAM_KAFKA": services.broker.address,
            "CLICKSTREAM_POSTGRES": str(services.port),
            "DBT_ENV_SECRET_CLICKSTREAM": services.password,
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        }
        log = self._folder / "stderr.txt"
        self._events = []
        with log.open("w") as out:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [Path(sys.executable).with_name("streamsql"), "run", "--continuous", "--json"],
                cwd=self._folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
            )
        assert process.stdout is not None
        lines = process.stdout

        def listen() -> None:
            for line in lines:
                self._events.append(json.loads(line))

        threading.Thread(target=listen, daemon=True).start()
        try:
            _wait(lambda: any(e["event"] == "project" for e in self._events), process, log)
            project = next(e for e in self._events if e["event"] == "project")
            if project["failed"]:
                sys.exit(f"the project failed: {project['failed']}")
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
        (self._folder / "events.json").write_text(json.dumps(self._events), "utf-8")

    def told(self) -> list[dict[str, Any]]:
        return [event for event in self._events if event["event"] == "tick"]

    def differing(self) -> list[str]:
        from dbt_streamsql import Engine

        engine = Engine.open(self._folder / "warehouse")
        try:
            views = (
                f"lake.clickstream.{file.stem}"
                for kind in ("bids", "auctions")
                for file in sorted((EXAMPLE / "models" / kind).glob("*.sql"))
            )
            return [view for view in views if engine.verify(view)]
        finally:
            engine.close()
            engine.spark.stop()


class Flink:
    """One job with all the queries, in a cluster of its own in one Java process."""

    name = "flink"
    label = f"Flink {peer.VERSION}"

    def __init__(self, folder: Path, backend: str, heap: str) -> None:
        self._folder = folder
        self._backend = backend
        self._heap = heap

    @contextmanager
    def running(self, services: Services) -> Iterator[None]:
        services.empty(flink_sql.POSTGRES)
        python = peer.environment(self._folder)
        work = self._folder / "flink-work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        job = work / "job.json"
        url = f"jdbc:postgresql://127.0.0.1:{services.port}/postgres"
        body = {
            "settings": self._settings(work),
            "tables": flink_sql.tables(
                services.broker.address, url, "postgres", services.password
            ),
            "inserts": flink_sql.inserts(),
            "unread": flink_sql.unread(),
        }
        job.write_text(json.dumps(body), "utf-8")
        log = work / "log.txt"
        with log.open("w") as out:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [str(python), str(Path(__file__).with_name("flink_worker.py")), str(job)],
                env={
                    **os.environ,
                    "JAVA_HOME": str(launch_home(find_java())),
                    "FLINK_ENV_JAVA_OPTS": f"-Xmx{self._heap}",
                    "JVM_ARGS": f"-Xmx{self._heap}",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
            )
        assert process.stdout is not None
        lines, running = process.stdout, threading.Event()

        def listen() -> None:
            for line in lines:
                if line.strip() == "RUNNING":
                    running.set()

        threading.Thread(target=listen, daemon=True).start()
        try:
            _wait(running.is_set, process, log)
            yield
        finally:
            process.communicate(timeout=PATIENCE)
            # Its Java outlives the Python that started it.
            time.sleep(5)
            shutil.rmtree(work / "checkpoints", ignore_errors=True)

    def told(self) -> list[dict[str, Any]]:
        return []

    def differing(self) -> list[str]:
        """Nothing: the rows of its other views are gone."""
        return []

    def _settings(self, work: Path) -> dict[str, str]:
        files = [*jars.ensure((*CONNECTORS, postgres.POSTGRESQL_JAR))]
        return {
            "pipeline.jars": ";".join(file.resolve().as_uri() for file in files),
            "parallelism.default": str(os.cpu_count() or 1),
            "rest.bind-port": "0",
            "state.backend.type": self._backend,
            "execution.checkpointing.dir": (work / "checkpoints").as_uri(),
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.mode": "EXACTLY_ONCE",
            "execution.checkpointing.interval": "10 s",
            "table.local-time-zone": "UTC",
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "1 s",
            "table.exec.mini-batch.size": "50000",
            "table.optimizer.agg-phase-strategy": "TWO_PHASE",
        }


def _wait(holds: Any, process: subprocess.Popen[str], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        if process.poll() is not None or time.monotonic() > until:
            sys.exit(f"it did not start:\n{log.read_text(encoding='utf-8')[-6000:]}")
        time.sleep(0.1)
