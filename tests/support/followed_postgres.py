"""A PostgreSQL server whose tables can be followed, and its tables as sources."""

from __future__ import annotations

import uuid

import psycopg
import pytest

from dbt_streamsql.errors import StreamSqlError
from tests.support import postgres as server_of
from tests.support.streams import opened


@pytest.fixture(scope="module")
def port():
    with server_of.server(
        server_of.PASSWORD, "wal_level=logical", "max_replication_slots=90"
    ) as found:
        yield found


@pytest.fixture
def database(port):
    """The name of a database of its own."""
    name = f"d_{uuid.uuid4().hex[:8]}"
    with connected(port, "postgres") as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return name


@pytest.fixture
def sql(port, database):
    with connected(port, database) as connection:
        yield connection.execute


def connected(port, database):
    return psycopg.connect(
        host="127.0.0.1",
        port=port,
        user="postgres",
        password=server_of.PASSWORD,
        dbname=database,
        autocommit=True,
    )


def options_of(port, database, table="t"):
    """What a source says of a table."""
    return {
        "host": "127.0.0.1",
        "port": port,
        "database": database,
        "user": "postgres",
        "password": server_of.PASSWORD,
        "table": table,
    }


@pytest.fixture
def followed(port, database):
    """Open a table as a source."""
    opened_now = []

    def make(table="t", **more):
        found = opened(
            "postgres",
            columns=more.pop("columns", ()),
            reader=more.pop("reader", "reader"),
            **{**options_of(port, database, table), **more},
        )
        opened_now.append(found)
        return found

    yield make
    for each in opened_now:
        each.forget()


def refused(code, call, *arguments):
    with pytest.raises(StreamSqlError) as caught:
        call(*arguments)
    assert caught.value.code == code
    assert server_of.PASSWORD not in str(caught.value)
    return str(caught.value)
