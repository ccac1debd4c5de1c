"""SQL views for readers without an engine: whoever joins them sees one barrier."""

from __future__ import annotations

import json
import threading

import pytest
from click.testing import CliRunner

from dbt_streamsql import Engine
from dbt_streamsql.cli import main
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.quoting import TableName
from dbt_streamsql.runtime.reads import published_views
from dbt_streamsql.runtime.spark.session import embedded
from dbt_streamsql.storage.iceberg import metadata
from dbt_streamsql.storage.iceberg.commits import table_maintenance
from tests.support.steps import dying

pytestmark = pytest.mark.spark

BOTH = (
    "SELECT count(*) AS n, min(c.n) AS counted, min(s.total) AS summed "
    "FROM lake.bi.counted c CROSS JOIN lake.bi.summed s"
)
"""Of orders that each have the amount 10."""


class Shop:
    """A warehouse of its own with two views of one table."""

    def __init__(self, folder):
        self.folder = folder
        self.engine = self.open()
        self.spark = self.engine.spark
        self.orders = 0
        self.spark.sql("CREATE NAMESPACE lake.shop")
        self.spark.sql("CREATE TABLE lake.shop.orders (id INT, amount INT)")
        self.engine.begin()
        self.define("counted", "SELECT count(*) AS n FROM lake.shop.orders")
        self.define("summed", "SELECT coalesce(sum(amount), 0) AS total FROM lake.shop.orders")
        self.engine.publish()

    def open(self):
        return Engine.open(self.folder, spark=embedded(str(self.folder)))

    def reopen(self):
        """Another process, when this one has died."""
        self.engine.epochs.current.epoch = None
        self.engine.store.close()
        self.engine = self.open()

    def define(self, name, query, schema="shop", **config):
        return self.engine.create_materialized_view(f"lake.{schema}.{name}", query, **config)

    def order(self):
        self.orders += 1
        self.spark.sql(f"INSERT INTO lake.shop.orders VALUES ({self.orders}, 10)")

    def advance(self):
        self.order()
        self.engine.advance()

    def views(self):
        return {row["viewName"] for row in self.spark.sql("SHOW VIEWS IN lake.bi").collect()}

    def shown(self):
        """What a session that knows nothing of the engine joins: the number of orders."""
        row = embedded(str(self.folder)).sql(BOTH).first()
        assert (row["n"], row["summed"]) == (1, row["counted"] * 10)
        return row["counted"]

    def tags(self, table="counted"):
        meta = metadata.load(self.spark, TableName("lake", "shop", table))
        return {at for ref, at in meta.refs.items() if "pin_views_" in ref}


@pytest.fixture
def shop(spark, tmp_path):
    made = Shop(tmp_path / "warehouse")
    yield made
    made.engine.epochs.current.epoch = None
    made.engine.close()


def test_a_join_of_published_views_sees_one_barrier_while_epochs_go_on(shop):
    assert shop.engine.publish_views("bi") == ["counted", "summed"]
    assert shop.shown() == 0
    plain, seen, failed, done = embedded(str(shop.folder)), [], [], threading.Event()

    def read():
        while not done.is_set():
            try:
                row = plain.sql(BOTH).first()
                seen.append((row["n"], row["counted"], row["summed"]))
            except Exception as error:  # noqa: BLE001 - looked at below
                failed.append(str(error))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(8):
        shop.advance()
    done.set()
    reader.join()
    assert len({counted for _, counted, _ in seen}) > 2, "it has read while they moved"
    assert [row for row in seen if row[0] != 1 or row[2] != row[1] * 10] == []
    assert all("moved on" in text for text in failed)
    assert shop.shown() == 8


def test_whoever_dies_in_between_leaves_views_that_agree(shop):
    shop.engine.publish_views("bi")
    shop.advance()
    for step, nth, moment in (
        ("views.replace", 1, "before"),
        ("views.replace", 1, "after"),
        ("views.move", 1, "before"),
        ("views.move", 1, "after"),
        ("barrier.commit", 1, "after"),
    ):
        before = shop.shown()
        shop.order()
        with dying(step, nth, moment):
            shop.engine.advance()
        moved = (step, moment) == ("views.move", "after")
        assert shop.shown() == (shop.orders if moved else before)
        shop.reopen()
        shop.engine.sweep()
        assert shop.shown() == shop.orders


def test_what_the_views_show_outlives_an_expiry(shop):
    shop.engine.publish_views("bi")
    for _ in range(3):
        shop.advance()
    shop.order()
    with dying("views.replace"):
        shop.engine.advance()
    name = TableName("lake", "shop", "counted")
    assert len(shop.tags()) == 2
    meta = metadata.load(shop.spark, name)
    table_maintenance.expire(
        shop.spark, name, sorted(set(meta.snapshots) - set(meta.refs.values()))
    )
    assert shop.shown() == 3
    shop.reopen()
    shop.engine.sweep()
    assert shop.shown() == 4, "the next run, or a sweep, goes on"
    assert len(shop.tags()) <= 2


def test_views_of_versions_that_are_gone_show_the_newest_again(shop):
    shop.engine.publish_views("bi")
    shop.order()
    with dying("views.replace"):
        shop.engine.advance()
    # As when the store is lost and the views are built anew: nobody knows what was pinned.
    name = TableName("lake", "shop", "counted")
    meta = metadata.load(shop.spark, name)
    for tag in set(meta.refs) - {"main"}:
        shop.spark.sql(f"ALTER TABLE {name.sql} DROP TAG `{tag}`")
    table_maintenance.expire(shop.spark, name, [at for at in meta.snapshots if at != meta.current])
    shop.reopen()
    shop.engine.sweep()
    assert shop.shown() == shop.orders


def test_new_renamed_dropped_and_changed_views_follow(shop):
    engine = shop.engine
    engine.publish_views("bi")
    shop.define("most", "SELECT max(amount) AS m FROM lake.shop.orders")
    assert shop.views() == {"counted", "summed", "most"}
    engine.drop("lake.shop.most")
    shop.define("highest", "SELECT max(amount) AS m FROM lake.shop.orders")
    assert shop.views() == {"counted", "summed", "highest"}
    shop.advance()
    assert shop.spark.table("lake.bi.highest").collect() == [(10,)]
    shop.define("highest", "SELECT max(amount) AS m, min(id) AS least FROM lake.shop.orders")
    assert shop.spark.table("lake.bi.highest").collect() == [(10, 1)]
    shop.define("mean", "SELECT id % 2 AS odd, avg(amount) AS a FROM lake.shop.orders GROUP BY 1")
    assert shop.spark.table("lake.bi.mean").columns == ["odd", "a"]
    assert shop.engine.sql("SELECT a FROM lake.bi.mean").collect() == [(10.0,)]
    assert shop.engine.stop_views("bi") == ["counted", "highest", "mean", "summed"]
    assert shop.views() == set()
    assert shop.tags() == set()
    shop.advance()
    assert shop.views() == set()
    with pytest.raises(StreamSqlError, match="no views are published"):
        engine.stop_views("bi")


def test_names_that_clash_or_are_taken_are_refused(shop):
    shop.spark.sql("CREATE NAMESPACE lake.mart")
    shop.define("counted", "SELECT count(*) AS n FROM lake.shop.orders", "mart")
    with pytest.raises(StreamSqlError, match="--with-schema") as caught:
        shop.engine.publish_views("bi")
    assert caught.value.code == "CONFIG_INVALID"
    names = ["mart_counted", "shop_counted", "shop_summed"]
    assert shop.engine.publish_views("bi", with_schema=True) == names
    shop.spark.sql("CREATE NAMESPACE lake.other")
    shop.spark.sql("CREATE TABLE lake.other.shop_summed (a INT)")
    with pytest.raises(StreamSqlError) as caught:
        shop.engine.publish_views("other", with_schema=True)
    assert caught.value.code == "TABLE_EXISTS"
    shop.spark.sql("CREATE TABLE lake.bi.shop_most (a INT)")
    shop.define("most", "SELECT max(amount) AS m FROM lake.shop.orders")
    assert shop.spark.table("lake.bi.shop_most").columns == ["a"]
    assert shop.views() == set(names)


def test_an_epoch_that_changes_nothing_leaves_the_views_alone(shop):
    shop.engine.publish_views("bi")
    shop.advance()
    current = TableName("lake", "bi", published_views.CURRENT)
    before = metadata.load(shop.spark, current).current
    shop.engine.advance()
    shop.engine.sweep()
    assert metadata.load(shop.spark, current).current == before
    assert len(shop.tags()) == 2


def test_a_rebuilt_store_goes_on_with_the_views(shop):
    shop.engine.publish_views("bi")
    shop.advance()
    shop.engine.store.close()
    for file in shop.folder.glob("streamsql.db*"):
        file.unlink()
    shop.engine = shop.open()
    found = shop.engine.rebuild()
    assert found.left == {}
    shop.advance()
    assert shop.shown() == 2


def test_the_command_publishes_and_stops(shop):
    arguments = ["publish-views", "bi", "--json", "--warehouse", str(shop.folder)]
    run = CliRunner().invoke
    done = run(main, arguments)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told == {"schema": "bi", "published": True, "views": ["counted", "summed"]}
    assert shop.shown() == 0
    assert "dropped: bi.counted" in run(main, [*arguments[:2], *arguments[3:], "--stop"]).output
    assert shop.views() == set()
