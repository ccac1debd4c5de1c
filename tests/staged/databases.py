"""Databases that tests start or make: SQLite in a file, PostgreSQL on a free loopback port."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dbt_streamsql.runtime.jars import Jar

POSTGRESQL_JAR = Jar(
    "org.postgresql",
    "postgresql",
    "42.7.8",
    "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
)
PASSWORD = "a-pass'word\\"  # noqa: S105 - made up for a test


def programs() -> Path | None:
    """The newest server that is installed (Debian's package `postgresql`), or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@contextmanager
def postgresql() -> Iterator[int]:
    """A cluster of its own while the block runs; its port. User `ann` with PASSWORD."""
    binaries = programs()
    assert binaries is not None
    with tempfile.TemporaryDirectory(prefix="pg") as name:
        folder = Path(name)
        as_user = {}
        if os.getuid() == 0:  # the server refuses to run as root
            account = pwd.getpwnam("nobody")
            as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(folder, account.pw_uid, account.pw_gid)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)

        def call(program: str, *arguments: str) -> None:
            command = [str(binaries / program), "-D", str(folder / "data"), *arguments]
            done = subprocess.run(
                command, cwd=folder, stdout=subprocess.DEVNULL, check=False, **as_user
            )
            assert done.returncode == 0, command

        call("initdb", "-U", "ann", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        call("pg_ctl", "-w", "-l", str(folder / "log"), "-o", settings, "start")
        try:
            yield port
        finally:
            call("pg_ctl", "-w", "-m", "immediate", "stop")


def names_in_postgresql(port: int) -> list[str]:
    """The tables of the schema `public`, asked without Spark."""
    binaries = programs()
    assert binaries is not None
    query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    place = ["-h", "127.0.0.1", "-p", str(port), "-U", "ann", "-d", "postgres"]
    done = subprocess.run(
        [str(binaries / "psql"), *place, "-At", "-c", query],
        env={**os.environ, "PGPASSWORD": PASSWORD},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def names_in_sqlite(file: Path) -> list[str]:
    """The tables of a database file, asked without Spark."""
    with closing(sqlite3.connect(file, timeout=20)) as database:
        rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return [row[0] for row in rows]
