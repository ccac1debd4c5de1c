"""A process that comes while the disk is read-only works again when the disk can be written."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial

import pytest

from dbt_streamsql import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import open_store
from tests.faults import fault_disk
from tests.support.product import embedded

pytestmark = [pytest.mark.spark, pytest.mark.processes]


@pytest.fixture
def disk(tmp_path):
    missing = fault_disk.unavailable()
    if missing:
        pytest.skip(missing)
    with fault_disk.mounted(tmp_path / "disk") as mounted:
        yield mounted


@pytest.fixture
def opened(spark, disk):
    """`opened()`: one more engine on a warehouse on that disk, in a session of its own."""
    place = str(disk.folder / "warehouse")
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(Engine.open(place, spark=embedded(place))))


def test_an_engine_that_read_then_is_refused_once_and_writes_again(disk, opened):
    engine = opened()
    engine.spark.sql("CREATE NAMESPACE lake.shop")
    engine.spark.sql("CREATE TABLE lake.shop.orders (id INT) USING iceberg")
    engine.spark.sql("INSERT INTO lake.shop.orders VALUES (1), (2)")
    late = opened()
    disk.protect()
    late.spark.sql("USE lake.shop")
    assert late.spark.sql("SELECT count(*) FROM orders").collect() == [(2,)]
    disk.release()

    define = partial(late.create_materialized_view, "lake.shop.ids")
    with pytest.raises(StreamSqlError) as refused:
        define("SELECT id FROM lake.shop.orders")
    assert refused.value.code == "STORAGE_REFUSED"
    define("SELECT id FROM lake.shop.orders")
    assert late.spark.sql("SELECT sum(id) FROM ids").collect() == [(3,)]


def test_a_store_that_was_opened_then_is_refused_once_and_writes_again(disk):
    url = f"sqlite:///{disk.folder / 'meta.db'}"
    with closing(open_store(url)), closing(open_store(url)) as store:
        with store.database.read():
            disk.protect()
            # The pool has no other connection free: it opens one, which cannot write.
            assert store.last_committed() == 0
        disk.release()
        with pytest.raises(StreamSqlError) as refused:
            store.acquire()
        assert refused.value.code == "META_UNREACHABLE"
        store.release(store.acquire())
