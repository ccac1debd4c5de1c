"""Stores of boundaries: beside each other, and apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dbt_streamsql.meta import open_store
from dbt_streamsql.meta.model.addresses import store_of
from tests.support import postgres

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/meta.db"
    return postgres.new_database(request.getfixturevalue("postgres_port"))


def test_each_boundary_has_its_own_runner_and_barriers(url: str) -> None:
    stores = [open_store(store_of(url, name)) for name in ("", "sales", "stock")]
    fences = [store.acquire() for store in stores]  # none of them waits for another
    begun = [store.begin(fence) for store, fence in zip(stores, fences, strict=True)]
    assert [barrier.id for barrier in begun] == [1, 1, 1]
    stores[1].abort(fences[1], 1)
    assert [len(store.unfinished()) for store in stores] == [1, 0, 1]
    assert len({store.id for store in stores}) == 3
    again = open_store(store_of(url, "sales"))
    assert again.barrier(1) == stores[1].barrier(1)
    for store in (*stores, again):
        store.close()


def test_a_store_of_no_boundary_is_the_one_that_was_there_before() -> None:
    url = "postgresql+psycopg://ann:secret@db/meta"
    assert store_of(url, "") == url
    assert store_of(url, "sales").startswith(url)
