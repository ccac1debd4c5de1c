"""The address of an empty MetaService store: a file, a database of PostgreSQL, a service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from dbt_streamsql.meta import MetaStore
from dbt_streamsql.meta import open_store as store_at
from dbt_streamsql.meta.client.client import MetaClient
from tests.support import meta_service, postgres
from tests.support.histories import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def postgres_port() -> Iterator[int]:
    with postgres.server(postgres.PASSWORD) as port:
        yield port


@pytest.fixture(scope="session")
def meta_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[meta_service.Server]:
    """A service on a loopback port; `serve` gives it a store."""
    with meta_service.running(tmp_path_factory.mktemp("service")) as server:
        yield server


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("rest", marks=pytest.mark.long),
        pytest.param("postgresql", marks=pytest.mark.processes),
        pytest.param("rest over postgresql", marks=pytest.mark.processes),
    ]
)
def meta_url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    url = f"sqlite:///{tmp_path}/meta.db"
    if "postgresql" in request.param:
        url = postgres.new_database(request.getfixturevalue("postgres_port"))
    if "rest" not in request.param:
        yield url
        return
    server: meta_service.Server = request.getfixturevalue("meta_server")
    monkeypatch.setenv("STREAMSQL_CACHE", str(server.cache))
    with server.serving(url):
        yield server.url


@pytest.fixture
def open_store(
    request: pytest.FixtureRequest, meta_url: str
) -> Callable[[Callable[[], float]], MetaStore]:
    """Open the store with a clock: its own, or that of its service."""

    def opened(clock: Callable[[], float] = time.time) -> MetaStore:
        if meta_url.startswith("http"):
            request.getfixturevalue("meta_server").clock = clock
        return store_at(meta_url, clock=clock)

    return opened


@pytest.fixture
def lose_lock(request: pytest.FixtureRequest) -> Callable[[MetaStore], None]:
    """What a lock lost without notice looks like: it is free, and its runner lives."""

    def lose(store: MetaStore) -> None:
        if isinstance(store, MetaClient):
            store._heartbeats.end()
            request.getfixturevalue("meta_server").service._runners.end_all()
        else:
            store.let_go()

    return lose


@pytest.fixture
def found_dead(request: pytest.FixtureRequest, meta_url: str) -> Callable[[], None]:
    """Let the store find out that the runner has died: a service does when it hears no more."""

    def find() -> None:
        if meta_url.startswith("http"):
            server: meta_service.Server = request.getfixturevalue("meta_server")
            server.fall_silent(server.service.runner_seconds + 1)

    return find


@pytest.fixture
def clock() -> Clock:
    """The time of `store`; a test moves it."""
    return Clock(1000.0)


@pytest.fixture
def store(
    open_store: Callable[[Callable[[], float]], MetaStore], clock: Clock
) -> Iterator[MetaStore]:
    opened = open_store(clock)
    yield opened
    opened.close()
