"""Looking into the databases of the tests without Spark."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg

PASSWORD = "a-pass'word\\"  # noqa: S105 - made up for a test


def names_in_postgresql(port: int) -> list[str]:
    """The tables of the schema `public`, asked without Spark."""
    place = {"host": "127.0.0.1", "port": port, "user": "postgres", "dbname": "postgres"}
    with psycopg.connect(**place, password=PASSWORD) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return [row[0] for row in rows]


def names_in_sqlite(file: Path) -> list[str]:
    """The tables of a database file, asked without Spark."""
    with closing(sqlite3.connect(file, timeout=20)) as database:
        rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return [row[0] for row in rows]
