"""What is staged outside barriers belongs to its process while that lives, then to who sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import MetaStore, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = "lake.shop.plain"


@pytest.fixture
def mine(meta_url: str) -> Iterator[MetaStore]:
    opened = open_store(meta_url)
    yield opened
    opened.close()


@pytest.fixture
def other(meta_url: str) -> Iterator[MetaStore]:
    opened = open_store(meta_url)
    yield opened
    opened.close()


def orphans(store: MetaStore) -> list[str]:
    with store.staged.orphans() as records:
        return [record.token for record in records]


def test_what_a_living_process_stages_is_recorded_and_left_alone(
    mine: MetaStore, other: MetaStore
) -> None:
    mine.staged.record("t1", TABLE, "how to undo it")
    mine.staged.record("t2", TABLE, "{}")
    (first, second) = other.staged.records()
    assert (first.token, first.table, first.body) == ("t1", TABLE, "how to undo it")
    assert first.owner == second.owner == mine.staged.owner
    assert orphans(other) == []
    mine.staged.confirm("t1")
    mine.staged.forget("t1")
    assert [record.token for record in other.staged.records()] == ["t2"]
    mine.staged.forget("t2")
    assert other.staged.records() == []
    assert mine.staged.owner == ""


def test_a_process_that_ends_leaves_orphans_and_what_it_stages_next_is_its_own(
    mine: MetaStore, other: MetaStore
) -> None:
    mine.staged.record("t1", TABLE, "{}")
    before = mine.staged.owner
    mine.staged.close()
    mine.staged.record("t2", TABLE, "{}")
    assert mine.staged.owner not in ("", before)
    assert orphans(other) == ["t1"]


def test_two_sweeps_never_remove_the_same(
    mine: MetaStore, other: MetaStore, meta_url: str
) -> None:
    dead = open_store(meta_url)
    dead.staged.record("t1", TABLE, "{}")
    dead.close()
    with mine.staged.orphans() as held:
        assert [record.token for record in held] == ["t1"]
        assert orphans(other) == []
    with other.staged.orphans() as held:
        assert [record.token for record in held] == ["t1"]
        other.staged.forget("t1")
    assert orphans(mine) == []


def test_who_was_cleaned_up_is_told(mine: MetaStore, other: MetaStore) -> None:
    mine.staged.record("t1", TABLE, "{}")
    other.staged.forget("t1")
    with pytest.raises(StreamSqlError) as refused:
        mine.staged.confirm("t1")
    assert refused.value.code == "META_CONFLICT"
    assert refused.value.given == "t1"
