"""The address of an empty MetaService store: a file, and a database of a real PostgreSQL."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import postgres
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "of-this-run-only"  # noqa: S105 - made up for the run


@pytest.fixture(scope="session")
def postgres_port() -> Iterator[int]:
    with postgres.server(PASSWORD) as port:
        yield port


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def meta_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/meta.db"
    import psycopg

    port = request.getfixturevalue("postgres_port")
    server = f"://postgres:{PASSWORD}@127.0.0.1:{port}"
    name = f"meta_{uuid.uuid4().hex}"
    with psycopg.connect(f"postgresql{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql+psycopg{server}/{name}"
