"""Looking into the databases of the tests without Spark."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from postgres import binary

PASSWORD = "a-pass'word\\"  # noqa: S105 - made up for a test


def names_in_postgresql(port: int) -> list[str]:
    """The tables of the schema `public`, asked without Spark."""
    query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    place = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-d", "postgres"]
    done = subprocess.run(
        [binary("psql"), *place, "-At", "-c", query],
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
