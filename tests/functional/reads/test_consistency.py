"""The three levels of FLIP-276 on its own shopping example, with its own numbers, at every moment."""

from __future__ import annotations

import pytest

from dbt_streamsql import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import Retention
from tests.support.catalogs import own_catalog

pytestmark = pytest.mark.spark

BEFORE = [("user1", "item1", 1000, 100, 10.0)]
AFTER = [("user1", "item1", 2500, 300, 8.33333)]
NOT_CONSISTENT = [("user1", "item1", 2500, 100, 25.0)]

LEVELS = ("read_uncommitted", "read_committed", "repeatable_read")


@pytest.fixture
def shop(spark, tmp_path_factory):
    """A warehouse of its own: the levels are about all that is unfinished in a warehouse."""
    folder = tmp_path_factory.mktemp("shop")
    own = own_catalog(spark, folder)
    session, catalog = own.session(), own.name
    session.sql(f"CREATE NAMESPACE {catalog}.shop")
    base = f"{catalog}.shop"
    session.sql(
        f"CREATE TABLE {base}.shopping (userId STRING, itemId STRING, amount BIGINT, "
        "price BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3')"
    )
    session.sql(f"INSERT INTO {base}.shopping VALUES ('user1', 'item1', 100, 1000)")
    engine = Engine.open(spark=session, catalog=catalog)
    engine.begin()
    # Alphabetical order is the order in which one thread of `advance` meets them.
    engine.create_materialized_view(
        f"{base}.user_item_price",
        f"SELECT userId, itemId, sum(price) AS totalPrice FROM {base}.shopping "
        "GROUP BY userId, itemId",
    )
    engine.create_materialized_view(
        f"{base}.user_item_amount",
        f"SELECT userId, itemId, sum(amount) AS totalAmount FROM {base}.shopping "
        "GROUP BY userId, itemId",
    )
    engine.publish()
    another = own.session()
    reader = Engine.open(spark=another, catalog=catalog)
    yield Shop(base, engine, reader)
    engine.close()
    reader.close()


class Shop:
    def __init__(self, base, engine, reader):
        self.base, self.engine, self.reader = base, engine, reader
        self.query = (
            "SELECT a.userId, a.itemId, totalPrice, totalAmount, "
            "round(totalPrice / totalAmount, 5) AS avgPrice "
            f"FROM {base}.user_item_amount a JOIN {base}.user_item_price p "
            "ON a.userId = p.userId AND a.itemId = p.itemId"
        )

    def seen(self, level, **options):
        """What somebody else's session sees at a level."""
        return [tuple(row) for row in self.reader.sql(self.query, level, **options).collect()]

    def all_seen(self):
        return {level: self.seen(level) for level in LEVELS}

    def buy(self):
        self.engine.spark.sql(
            f"INSERT INTO {self.base}.shopping VALUES ('user1', 'item1', 200, 1500)"
        )


@pytest.fixture
def during(observe):
    """Look around whenever this process passes a durable step; answers by (step, moment, nth)."""

    def watch(look):
        found = {}
        passed = {}
        busy = []

        def look_around(step, moment):
            if busy:
                return
            count = passed[step, moment] = passed.get((step, moment), 0) + 1
            busy.append(step)
            try:
                found[step, moment, count] = look()
            finally:
                busy.clear()

        observe(look_around)
        return found

    return watch


def test_every_level_sees_what_the_design_says_at_every_moment(shop, during, tune):
    tune(shop.engine, parallel=1)
    assert shop.all_seen() == dict.fromkeys(LEVELS, BEFORE)
    shop.buy()
    assert shop.all_seen() == dict.fromkeys(LEVELS, BEFORE), "nothing is processed yet"
    found = during(shop.all_seen)
    shop.engine.begin()
    for view in ("user_item_price", "user_item_amount"):
        shop.engine.epochs.opened.ensure(f"{shop.base}.{view}")
    shop.engine.publish()
    processed_in_one = found["table.processed", "after", 1]
    assert processed_in_one == {
        "read_uncommitted": NOT_CONSISTENT,
        "read_committed": BEFORE,
        "repeatable_read": BEFORE,
    }
    assert found["table.processed", "after", 2] == {
        "read_uncommitted": AFTER,
        "read_committed": BEFORE,
        "repeatable_read": BEFORE,
    }
    written_nowhere = {
        "read_uncommitted": AFTER,
        "read_committed": AFTER,
        "repeatable_read": BEFORE,
    }
    assert found["barrier.precommit", "after", 1] == written_nowhere
    assert found["publish.table", "after", 1] == written_nowhere, "one of two is published"
    assert found["table.written", "after", 2] == written_nowhere, "published, not committed"
    assert found["barrier.commit", "after", 1] == dict.fromkeys(LEVELS, AFTER)
    assert shop.all_seen() == dict.fromkeys(LEVELS, AFTER)


def test_a_reader_keeps_its_answer_whatever_is_published(shop):
    with shop.reader.reader() as reader:
        for _ in range(3):
            assert [tuple(row) for row in reader.sql(shop.query).collect()] == BEFORE
            shop.buy()
            shop.engine.advance()
        assert shop.seen("repeatable_read") == [("user1", "item1", 5500, 700, 7.85714)]
        assert [tuple(row) for row in reader.sql(shop.query).collect()] == BEFORE
        held = shop.engine.store.leases.live()
        assert reader.barrier in {lease.barrier for lease in held}
    assert reader.barrier not in {lease.barrier for lease in shop.engine.store.leases.live()}


def test_what_a_reader_holds_outlives_the_expiry_of_snapshots(shop, tune):
    tune(shop.engine, Retention(barriers=1), barriers_together=1)
    whole = f"{shop.query} JOIN {shop.base}.shopping s ON s.userId = a.userId"
    with shop.reader.reader() as reader:
        before = reader.sql(whole).collect()
        for _ in range(4):
            shop.buy()
            shop.engine.advance()
            shop.engine.spark.sql(
                f"CALL {shop.engine.catalog}.system.expire_snapshots(table => 'shop.shopping', "
                "older_than => current_timestamp(), retain_last => 1)"
            )
        assert reader.sql(whole).collect() == before
    shop.buy()
    shop.engine.advance()
    meta = shop.engine.spark.sql(
        f"SELECT snapshot_id FROM {shop.base}.user_item_amount.snapshots"
    ).collect()
    assert len(meta) <= 3, "what nobody holds any more has gone"


def test_a_reader_keeps_its_answer_when_a_view_is_defined_anew(shop):
    with shop.reader.reader() as reader:
        for price in ("sum(price) + 1", "CAST(sum(price) AS STRING)"):
            shop.engine.create_materialized_view(
                f"{shop.base}.user_item_price",
                f"SELECT userId, itemId, {price} AS totalPrice FROM {shop.base}.shopping "
                "GROUP BY userId, itemId",
            )
            assert [tuple(row) for row in reader.sql(shop.query).collect()] == BEFORE


def test_tables_that_were_run_apart_are_read_where_they_agree(shop):
    shop.buy()
    shop.engine.begin()
    shop.engine.epochs.opened.ensure(f"{shop.base}.user_item_price")
    shop.engine.publish()
    assert shop.seen("read_uncommitted") == NOT_CONSISTENT
    assert shop.seen("read_committed") == BEFORE
    assert shop.seen("repeatable_read") == BEFORE
    alone = f"SELECT totalPrice FROM {shop.base}.user_item_price"
    assert shop.reader.sql(alone).first()[0] == 2500, "a table alone contradicts nobody"
    shop.engine.advance()
    assert shop.seen("read_committed") == AFTER


def test_a_root_is_read_as_the_views_beside_it_have_seen_it(shop):
    query = (
        f"SELECT (SELECT sum(amount) FROM {shop.base}.shopping), "
        f"(SELECT sum(totalAmount) FROM {shop.base}.user_item_amount)"
    )
    alone = f"SELECT sum(amount) FROM {shop.base}.shopping"
    shop.buy()
    assert tuple(shop.reader.sql(query).first()) == (100, 100)
    assert shop.reader.sql(alone).first()[0] == 300, "by itself it is what it is now"
    assert shop.reader.sql(alone, "repeatable_read").first()[0] == 100
    shop.engine.advance()
    assert tuple(shop.reader.sql(query).first()) == (300, 300)


def test_a_root_that_was_made_anew_is_refused_until_its_views_have_seen_it(shop):
    spark, table = shop.engine.spark, f"{shop.base}.shopping"
    query = f"SELECT count(*) FROM {table} s JOIN {shop.base}.user_item_amount a USING (userId)"
    spark.sql(f"DROP TABLE {table} PURGE")
    spark.sql(
        f"CREATE TABLE {table} USING iceberg AS SELECT 'user1' AS userId, 'item1' AS itemId, "
        "1L AS amount, 2L AS price"
    )
    with pytest.raises(StreamSqlError) as error:
        shop.reader.sql(query)
    assert error.value.code == "CONSISTENCY_UNAVAILABLE"
    assert table in error.value.message
    shop.engine.advance()
    assert shop.reader.sql(query).first()[0] == 1


def test_tables_that_no_barrier_holds_together_are_refused(shop):
    shop.buy()
    shop.engine.begin()
    shop.engine.create_materialized_view(
        f"{shop.base}.items", f"SELECT DISTINCT itemId, amount FROM {shop.base}.shopping"
    )
    shop.engine.publish()
    query = f"SELECT count(*) FROM {shop.base}.items, {shop.base}.user_item_price"
    for level in ("read_committed", "repeatable_read"):
        with pytest.raises(StreamSqlError) as error:
            shop.reader.sql(query, level)
        assert error.value.code == "CONSISTENCY_UNAVAILABLE"
        assert "user_item_price" in error.value.given
        assert "dbt run" in error.value.hint
    assert shop.reader.sql(query, "read_uncommitted").first()[0] == 2
    shop.engine.advance()
    assert shop.reader.sql(query).first()[0] == 2


def test_a_bound_on_staleness_fails_instead_of_lying(shop):
    assert shop.seen("read_committed", max_staleness=0) == BEFORE, "no change is missing"
    shop.buy()
    assert shop.seen("read_committed", max_staleness=3600) == BEFORE
    with pytest.raises(StreamSqlError) as error:
        shop.seen("read_committed", max_staleness=0)
    assert error.value.code == "CONSISTENCY_UNAVAILABLE"
    assert f"{shop.base}.shopping" in error.value.given
    shop.engine.advance()
    assert shop.seen("read_committed", max_staleness=0) == AFTER


def test_an_earlier_barrier_can_be_asked_for(shop):
    first = shop.engine.advance().barrier
    shop.buy()
    second = shop.engine.advance().barrier
    assert second > first
    for level in ("read_committed", "repeatable_read"):
        assert shop.seen(level, barrier=first) == BEFORE
        assert shop.seen(level, barrier=second) == AFTER
    with pytest.raises(StreamSqlError) as error:
        shop.seen("read_committed", barrier=second + 1)
    assert error.value.code == "META_CONFLICT"


def test_waiting_for_a_barrier_ends_when_it_is_there_or_says_that_it_is_not(shop):
    barrier = shop.engine.advance().barrier
    assert shop.reader.wait_for(barrier, 0) == barrier
    with pytest.raises(StreamSqlError) as error:
        shop.reader.wait_for(barrier + 1, 0.2)
    assert error.value.code == "CONSISTENCY_UNAVAILABLE"


def test_an_unknown_level_is_refused_with_those_that_there_are(shop):
    for level in ("serializable", ""):
        with pytest.raises(StreamSqlError) as error:
            shop.reader.reader(level)
        assert error.value.code == "CONFIG_INVALID"
        assert "repeatable_read" in error.value.allowed
