"""A PostgreSQL server on a loopback port, for one test or one process."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dbt_streamsql.runtime.jars import Jar

POSTGRESQL_JAR = Jar(
    "org.postgresql",
    "postgresql",
    "42.7.8",
    "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
)


def binary(name: str) -> str:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which(name, path=os.pathsep.join(map(str, places))) or shutil.which(name)
    assert found, f"{name} is missing: install the Debian package postgresql"
    return found


@contextmanager
def server(password: str) -> Iterator[int]:
    """The port of a server that asks the user `postgres` for this password."""
    # Not in pytest's folders: those are closed to other users, and the server is not for root.
    user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="streamsql-postgres-") as name:
        folder = Path(name)
        words = folder / "words"
        words.write_text(password)
        if user:
            shutil.chown(folder, **user)

        def run(program: str, *arguments: str) -> None:
            command = [binary(program), "-D", f"{folder}/data", *arguments]
            subprocess.run(command, check=True, capture_output=True, cwd=folder, **user)

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        login = ("-U", "postgres", "-A", "scram-sha-256", "--pwfile", str(words))
        run("initdb", "--no-sync", *login)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        run("pg_ctl", "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            yield port
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
