"""Real servers for tests: Spark Connect with a token, and a standalone master with two workers.

Both come from the PySpark wheel. They listen on the loopback address, on random ports, and end
with the test run; what they said is kept when one does not come up.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from dbt_streamsql.runtime.spark.java import find_java, launch_home
from dbt_streamsql.runtime.spark.session import start_settings
from dbt_streamsql.runtime.spark.settings import SessionSettings
from tests.support import patience, spark_defaults

BIN = Path(pyspark.__file__).parent / "bin"
PORTS = (20_000, 32_000)
"""Those that the system gives to nobody by itself: a server takes its port a moment later."""

_running: list[subprocess.Popen[bytes]] = []


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory) -> Iterator[str]:
    """The address, with its token, of a Spark Connect server that has Iceberg."""
    with connect(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture(scope="session")
def standalone_master(tmp_path_factory) -> Iterator[str]:
    """The address of the master of a cluster of two workers."""
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@contextmanager
def connect(folder: Path) -> Iterator[str]:
    port, token = free_port(), secrets.token_urlsafe(16)
    warehouse = str(folder / "warehouse")
    settings = SessionSettings(warehouse=warehouse, connectors=("avro", "kafka"))
    properties = {
        **spark_defaults.DEFAULTS,
        **start_settings(settings),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.authenticate.token": token,
    }
    file = folder / "spark.conf"
    file.touch(mode=0o600)
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [
        BIN / "spark-submit",
        "--properties-file",
        file,
        "--class",
        server,
        "spark-internal",
    ]
    with running(command, folder / "connect.log", "1g") as process:
        wait(process, folder / "connect.log", lambda: is_open(port))
        yield f"sc://localhost:{port}/;token={token}"


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    deploy, here = "org.apache.spark.deploy", ["--host", "127.0.0.1", "--webui-port", "0"]
    master = [BIN / "spark-class", f"{deploy}.master.Master", *here, "--port", str(port)]
    log = folder / "master.log"
    with ExitStack() as processes:
        first = processes.enter_context(running(master, log, "256m"))
        wait(first, log, lambda: is_open(port))
        for number in (1, 2):
            size = ["--cores", "1", "--memory", "600m", "--work-dir", folder / f"work{number}"]
            worker = [BIN / "spark-class", f"{deploy}.worker.Worker", *here, *size, address]
            said = folder / f"worker{number}.log"
            processes.enter_context(running(worker, said, "256m"))
        wait(first, log, lambda: log.read_text().count("Registering worker") == 2)
        yield address


@contextmanager
def running(command: list[object], log: Path, memory: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the length of the block."""
    small = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": memory,
        "SPARK_DAEMON_JAVA_OPTS": spark_defaults.JAVA,
    }
    home = {"JAVA_HOME": str(launch_home(find_java()))}
    with log.open("w") as out:
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            cwd=log.parent,
            env={**os.environ, **small, **home},
        )
    _running.append(process)
    try:
        yield process
    finally:
        _running.remove(process)
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end; after a while, end it."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def pids() -> list[int]:
    """The servers that run here, for who waits for their clients."""
    return [process.pid for process in _running]


def wait(process: subprocess.Popen[bytes], log: Path, ready) -> None:
    def settled() -> bool:
        return process.poll() is not None or ready()

    patience.until(settled, process, sign=lambda: log.stat().st_size)
    if process.poll() is not None:
        pytest.fail(f"a server did not come up, {log}:\n{log.read_text()[-3000:]}")


def is_open(port: int) -> bool:
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    while True:
        port = random.SystemRandom().randrange(*PORTS)
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port
