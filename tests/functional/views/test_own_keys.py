"""Maintained tables have keys by the way their rows are kept: what a change joins is then in the
changes, and is not looked up."""

from __future__ import annotations

import os
import random

import pytest

from dbt_streamsql.plan.program.steps import Lookup

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

SEEDS = int(os.environ.get("STREAMSQL_KEYS", "1"))
"""How many histories; each has six epochs of six views."""


class Orders:
    """Lines of orders, and two maintained tables over them: one row for each order, and one for
    each line."""

    def __init__(self, engine, schema, seed=1):
        self.engine, self.draw = engine, random.Random(seed)
        self.lines, self.totals = f"lake.{schema}.positions", f"lake.{schema}.totals"
        self.items = f"lake.{schema}.items"
        self.sql = engine.spark.sql
        self.sql(
            f"CREATE TABLE {self.lines} (order_id BIGINT, item STRING, price INT) TBLPROPERTIES "
            "('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
        )
        self.sell(range(1, 40))
        self.sell([None])

    def sell(self, orders):
        draw = self.draw
        rows = [
            f"({'NULL' if n is None else n}, '{draw.choice('abc')}', {draw.randrange(4)})"
            for n in orders
            for _ in range(draw.randrange(1, 4))
        ]
        self.sql(f"INSERT INTO {self.lines} VALUES {', '.join(rows)}")

    def change(self):
        """Orders come, go, come again, and lose or gain lines."""
        some = self.draw.sample(range(1, 60), 8)
        self.sql(f"DELETE FROM {self.lines} WHERE order_id IN ({', '.join(map(str, some[:3]))})")
        self.sql(
            f"DELETE FROM {self.lines} WHERE item = 'a' AND order_id IN "
            f"({', '.join(map(str, some[3:5]))})"
        )
        self.sell([*some[2:3], *some[5:], None])

    def total(self, grouped=True):
        """Define the totals: one row for each order, or for each line, in the same columns."""
        rows = (
            f"SELECT order_id, count(*) AS n FROM {self.lines} GROUP BY order_id"
            if grouped
            else f"SELECT order_id, CAST(price AS BIGINT) AS n FROM {self.lines}"
        )
        self.engine.create_materialized_view(self.totals, rows, refresh_mode="incremental")

    def query(self, name):
        return QUERIES[name].format(lines=self.lines, totals=self.totals, items=self.items)


QUERIES = {
    "joined": "SELECT l.item, l.price, t.n FROM {lines} l JOIN {totals} t "
    "ON l.order_id = t.order_id",
    "grouped": "SELECT t.n, sum(l.price) AS price, count(*) AS m FROM {totals} t JOIN {lines} l "
    "ON t.order_id = l.order_id GROUP BY t.n",
    "outer": "SELECT l.item, l.price, t.n FROM {lines} l LEFT JOIN {totals} t "
    "ON l.order_id = t.order_id AND t.n > 1",
    "exists": "SELECT l.item, l.price FROM {lines} l WHERE EXISTS (SELECT 1 FROM {totals} t "
    "WHERE t.order_id = l.order_id AND t.n > 1)",
    "two columns": "SELECT l.price, i.n FROM {lines} l JOIN {items} i ON l.order_id = i.order_id",
    "same group": "SELECT g.order_id, g.low, t.n FROM (SELECT order_id, min(price) AS low "
    "FROM {lines} GROUP BY order_id) g JOIN {totals} t ON g.order_id <=> t.order_id",
}


def relied_on(engine, view):
    """The unique columns of maintained tables that a view's program looks up."""
    steps = engine.plan(view).steps
    return {(at.table, at.column) for at in steps if isinstance(at, Lookup) and at.by == "key"}


@pytest.mark.parametrize("seed", range(1, 1 + SEEDS))
def test_a_view_over_a_grouped_view_equals_its_query(engine, schema, tune, seed):
    tune(engine, big_rows=0, compared_rows=-1)
    orders = Orders(engine, schema, seed)
    orders.total()
    engine.create_materialized_view(
        orders.items,
        f"SELECT order_id, item, count(*) AS n FROM {orders.lines} GROUP BY order_id, item",
    )
    views = {name: f"lake.{schema}.v{at}" for at, name in enumerate(QUERIES)}
    for name, view in views.items():
        state = orders.draw.choice(["none", "all"])
        engine.create_materialized_view(
            view, orders.query(name), state=state, refresh_mode="incremental_strict"
        )
    assert relied_on(engine, views["joined"]) == {(orders.totals, "order_id")}
    assert relied_on(engine, views["two columns"]) == set()
    for _ in range(6):
        orders.change()
        report = engine.advance()
        for name, view in views.items():
            assert report.tables[view].mode != "full", name
            assert not engine.verify(view), name


def test_a_group_that_comes_with_its_rows_is_not_looked_up(engine, schema, tune):
    tune(engine, big_rows=0, compared_rows=-1)
    orders, view = Orders(engine, schema), f"lake.{schema}.v"
    orders.total()
    engine.create_materialized_view(
        view, orders.query("joined"), state="none", refresh_mode="incremental_strict"
    )

    def reads():
        found = engine.advance().tables[view].reads
        assert not engine.verify(view)
        return found.get(orders.totals, 0)

    orders.sell([100, 101])
    together = reads()
    # A line of an order whose total stays as it is: that total is looked up.
    orders.sql(f"DELETE FROM {orders.lines} WHERE order_id < 40 AND price < 3 AND item = 'a'")
    orders.sql(f"INSERT INTO {orders.lines} SELECT order_id, 'z', 0 FROM {orders.totals} LIMIT 1")
    engine.advance()
    orders.sql(f"UPDATE {orders.lines} SET item = 'y' WHERE item = 'z'")
    assert reads() == together + 1


def test_a_table_that_had_its_key_once_is_looked_up(engine, schema, tune):
    """Its rows were one for each order, then one for each line, and one for each order again,
    before or after the view was compiled again."""
    tune(engine, big_rows=0, compared_rows=-1)
    orders, view = Orders(engine, schema), f"lake.{schema}.v"
    orders.total()
    query = orders.query("joined")
    engine.create_materialized_view(view, query, state="none", refresh_mode="incremental_strict")
    key = (orders.totals, "order_id")
    modes = set()
    for grouped in (True, False, False, True, False, True, True):
        orders.change()
        orders.total(grouped)
        orders.change()
        modes.add(engine.advance().tables[view].mode)
        kept = engine.store.latest(view).stats.get("own_keys", ())
        assert (key in map(tuple, kept)) == grouped
        assert not engine.verify(view)
    assert "full" not in modes
