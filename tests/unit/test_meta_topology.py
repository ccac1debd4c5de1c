"""The jobs form a graph without cycles, in which every table has one writer."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Fence, Job, MetaStore, TableVersion, open_store
from dbt_streamsql.meta.model.topology import order_of, topological_order

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def store(meta_url: str) -> Iterator[MetaStore]:
    opened = open_store(meta_url)
    yield opened
    opened.close()


@pytest.fixture
def fence(store: MetaStore) -> Fence:
    return store.acquire()


def job(table: str, *sources: str, model: str = "") -> Job:
    return Job(table, model, "select 1", sources=sources)


def define(store: MetaStore, fence: Fence, *jobs: Job) -> None:
    """Make the definitions current."""
    barrier = store.begin(fence, {}).id
    for each in jobs:
        store.stage_job(fence, barrier, each)
        store.processed(fence, TableVersion(barrier, each.table, mode="noop"))
    store.precommit(fence, barrier)
    store.commit(fence, barrier)


def test_independent_tables_share_a_level(store: MetaStore, fence: Fence) -> None:
    define(store, fence, job("d", "b", "c"), job("b", "a"), job("c", "a"), job("e"))
    assert order_of(store.jobs()) == [["b", "c", "e"], ["d"]]
    assert order_of([]) == []
    assert store.readers("a") == ["b", "c"]
    assert store.readers("d") == []
    assert store.topology() == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]


def test_a_cycle_is_refused_with_its_path_and_nothing_is_registered(
    store: MetaStore, fence: Fence
) -> None:
    define(store, fence, job("b", "a"), job("c", "b"), job("x", "c"))
    barrier = store.begin(fence, {}).id
    with pytest.raises(StreamSqlError) as caught:
        store.stage_job(fence, barrier, job("a", "root", "c"))
    assert caught.value.code == "CYCLE"
    path = caught.value.given.split(" -> ")
    assert path[0] == path[-1]
    assert sorted(path[1:]) == ["a", "b", "c"]
    for reader, source in zip(path[1:], path, strict=False):
        assert (source, reader) in {("a", "b"), ("b", "c"), ("c", "a")}
    assert store.staged_jobs(barrier) == {}


def test_a_table_that_reads_itself_is_a_cycle(store: MetaStore, fence: Fence) -> None:
    barrier = store.begin(fence, {}).id
    with pytest.raises(StreamSqlError, match="a -> a"):
        store.stage_job(fence, barrier, job("a", "a"))


def test_a_cycle_among_provisional_definitions_is_refused(store: MetaStore, fence: Fence) -> None:
    barrier = store.begin(fence, {}).id
    store.stage_job(fence, barrier, job("a", "b"))
    with pytest.raises(StreamSqlError, match="CYCLE"):
        store.stage_job(fence, barrier, job("b", "a"))


def test_a_redefinition_may_turn_an_edge_round(store: MetaStore, fence: Fence) -> None:
    define(store, fence, job("a", "b"), job("b", "root"))
    define(store, fence, job("a", "root"), job("b", "a"))
    assert order_of(store.jobs()) == [["a"], ["b"]]


def test_a_second_model_for_a_table_is_refused(store: MetaStore, fence: Fence) -> None:
    define(store, fence, job("t", model="model.shop.one"))
    barrier = store.begin(fence, {}).id
    with pytest.raises(StreamSqlError) as caught:
        store.stage_job(fence, barrier, job("t", model="model.shop.two"))
    assert caught.value.code == "DUPLICATE_WRITER"
    assert "model.shop.one" in caught.value.given
    assert "model.shop.two" in caught.value.given
    store.stage_job(fence, barrier, job("t", "a", model="model.shop.one"))
    store.stage_job(fence, barrier, job("t", "b"))


def test_a_second_model_is_refused_while_the_first_is_provisional(
    store: MetaStore, fence: Fence
) -> None:
    barrier = store.begin(fence, {}).id
    store.stage_job(fence, barrier, job("t", model="one"))
    with pytest.raises(StreamSqlError, match="DUPLICATE_WRITER"):
        store.stage_job(fence, barrier, job("t", model="two"))
    store.drop_job(fence, "t")
    store.stage_job(fence, barrier, job("t", model="two"))


@given(st.dictionaries(st.integers(0, 7), st.frozensets(st.integers(0, 9)), max_size=8))
def test_every_graph_is_either_ordered_with_sources_first_or_has_a_real_cycle(
    graph: dict[int, frozenset[int]],
) -> None:
    reads = {str(table): [str(s) for s in sources] for table, sources in graph.items()}
    try:
        levels = topological_order(reads)
    except StreamSqlError as error:
        refusal = error
    else:
        check_order(levels, reads)
        return
    path = refusal.given.split(" -> ")
    assert refusal.code == "CYCLE"
    assert path[0] == path[-1]
    assert len(path) > 1
    assert all(a in reads[b] for a, b in itertools.pairwise(path))


def check_order(levels: list[list[str]], reads: dict[str, list[str]]) -> None:
    flat = [table for level in levels for table in level]
    assert sorted(flat) == sorted(reads)
    for depth, level in enumerate(levels):
        earlier = {table for done in levels[:depth] for table in done}
        assert all(s in earlier or s not in reads for table in level for s in reads[table])
