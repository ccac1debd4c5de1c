"""Declared keys of inputs: what a change joins is then in the changes, and is not looked up."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from dbt_streamsql.plan.algebra.schema import WEIGHT
from dbt_streamsql.plan.program.steps import Lookup
from dbt_streamsql.runtime.core import key_moment
from dbt_streamsql.runtime.refresh.key_matches import KeyMatches
from dbt_streamsql.runtime.spark.scratch import Scratch
from dbt_streamsql.storage.inputs import inputs

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

SEEDS = int(os.environ.get("STREAMSQL_KEYS", "1"))
"""How many histories; each has five epochs of eight views."""

ORDERS = "id BIGINT, customer INT, day DATE"
LINES = "order_id BIGINT, item STRING, price DECIMAL(10, 2)"


class Shop:
    """Orders and their lines, which keep their keys at each commit."""

    def __init__(self, engine, schema, seed):
        self.engine, self.draw = engine, random.Random(seed)
        self.orders, self.lines = f"lake.{schema}.orders", f"lake.{schema}.positions"
        self.people = f"lake.{schema}.people"
        sql = engine.spark.sql
        sql(f"CREATE TABLE {self.orders} ({ORDERS}) TBLPROPERTIES ('format-version' = '3')")
        sql(f"CREATE TABLE {self.lines} ({LINES}) TBLPROPERTIES ('format-version' = '3')")
        sql(f"CREATE TABLE {self.people} (customer INT, name STRING)")
        sql(f"INSERT INTO {self.people} VALUES (1, 'ann'), (2, 'bob'), (3, 'ann'), (NULL, 'x')")
        for table in (self.orders, self.lines):
            for kind in ("delete", "update"):
                sql(
                    f"ALTER TABLE {table} "
                    f"SET TBLPROPERTIES ('write.{kind}.mode' = 'merge-on-read')"
                )
        self.known: set[int] = set()
        for _ in range(4):
            self.sell()

    @property
    def keys(self):
        return [
            {"table": self.orders, "column": "id"},
            {
                "table": self.lines,
                "column": "order_id",
                "references": self.orders,
                "to": "id",
            },
        ]

    def sell(self):
        """New orders, each with some lines or none, and lines of no order."""
        new = [n for n in self.draw.sample(range(1, 60), 4) if n not in self.known]
        if not new:
            return
        self.known |= set(new)
        rows = ", ".join(f"({n}, {self.customer()}, DATE'2024-01-0{n % 9 + 1}')" for n in new)
        self.engine.spark.sql(f"INSERT INTO {self.orders} VALUES {rows}")
        self.add([self.draw.choice(new) for _ in range(self.draw.randrange(7))] + ["NULL"])

    def add(self, orders):
        if orders:
            rows = ", ".join(
                f"({n}, '{self.draw.choice('abc')}', {self.draw.randrange(3)})" for n in orders
            )
            self.engine.spark.sql(f"INSERT INTO {self.lines} VALUES {rows}")

    def cancel(self):
        """Orders go with all their lines."""
        for n in self.some():
            self.known.discard(n)
            self.engine.spark.sql(f"DELETE FROM {self.lines} WHERE order_id = {n}")
            self.engine.spark.sql(f"DELETE FROM {self.orders} WHERE id = {n}")

    def change(self):
        """Orders change, lines come, go, and move to another order; an order comes again."""
        sql = self.engine.spark.sql
        for n in self.some():
            sql(f"UPDATE {self.orders} SET customer = {self.customer()} WHERE id = {n}")
        self.add(self.some())
        for n in self.some():
            sql(f"DELETE FROM {self.lines} WHERE order_id = {n} AND item = 'a'")
        one = self.some()
        if len(one) > 1:
            sql(f"UPDATE {self.lines} SET order_id = {one[0]} WHERE order_id = {one[1]}")
        if one and self.draw.random() < 0.5:
            n = one[0]
            sql(f"DELETE FROM {self.lines} WHERE order_id = {n}")
            sql(f"DELETE FROM {self.orders} WHERE id = {n}")
            sql(f"INSERT INTO {self.orders} VALUES ({n}, {self.customer()}, DATE'2025-01-01')")
            self.add([n])

    def customer(self):
        return self.draw.choice(["1", "2", "3", "4", "NULL"])

    def some(self):
        known = sorted(self.known)
        return self.draw.sample(known, min(len(known), self.draw.randrange(3)))


QUERIES = {
    "orders first": "SELECT o.customer, l.item, sum(l.price) AS price, count(*) AS n "
    "FROM {orders} o JOIN {lines} l ON o.id = l.order_id GROUP BY o.customer, l.item",
    "lines first": "SELECT l.item, l.price, o.day FROM {lines} l JOIN {orders} o "
    "ON l.order_id = o.id",
    "three tables": "SELECT p.name, o.day, l.item, l.price FROM {people} p "
    "JOIN {orders} o ON p.customer = o.customer JOIN {lines} l ON o.id = l.order_id",
    "groups below": "SELECT g.order_id, g.n, g.price, o.day FROM (SELECT order_id, "
    "count(*) AS n, sum(price) AS price FROM {lines} GROUP BY order_id) g "
    "LEFT JOIN {orders} o ON o.id = g.order_id",
    "exists": "SELECT o.id, o.customer FROM {orders} o "
    "WHERE EXISTS (SELECT 1 FROM {lines} l WHERE l.order_id = o.id AND l.item = 'a')",
    "outer": "SELECT o.id, l.item, l.price FROM {orders} o LEFT JOIN {lines} l "
    "ON l.order_id = o.id",
    "top": "SELECT o.id, o.day, sum(l.price) AS price FROM {orders} o, {lines} l "
    "WHERE l.order_id = o.id AND o.id IN (SELECT order_id FROM {lines} "
    "GROUP BY order_id HAVING count(*) > 1) GROUP BY o.id, o.day ORDER BY price DESC, o.id "
    "LIMIT 5",
    "filtered": "SELECT o.id, max(l.price) AS price FROM {lines} l, {orders} o "
    "WHERE l.order_id = o.id AND l.item <> 'b' AND o.day < DATE'2024-01-08' GROUP BY o.id",
}


def query(shop, name):
    return QUERIES[name].format(orders=shop.orders, lines=shop.lines, people=shop.people)


@pytest.mark.parametrize("seed", range(1, 1 + SEEDS))
def test_a_view_over_declared_keys_equals_its_query(engine, schema, tune, seed):
    tune(engine, big_rows=0)
    shop = Shop(engine, schema, seed)
    views = {name: f"lake.{schema}.v{at}" for at, name in enumerate(QUERIES)}
    for name, view in views.items():
        engine.create_materialized_view(
            view, query(shop, name), keys=shop.keys, refresh_mode="incremental"
        )
    for _ in range(5):
        for step in shop.draw.sample([shop.sell, shop.cancel, shop.change], 2):
            step()
        report = engine.advance()
        for name, view in views.items():
            assert report.tables[view].mode != "full", name
            assert not engine.verify(view), name


def files_of(engine, table):
    found = engine.spark.sql(f"SELECT file_path FROM {table}.files").collect()
    return {Path(row[0].removeprefix("file:")) for row in found}


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("name", ["orders first", "lines first"])
def test_an_order_that_comes_or_goes_with_its_lines_looks_up_nothing(
    engine, schema, tune, name, declared
):
    tune(engine, big_rows=0)
    shop, view = Shop(engine, schema, 1), f"lake.{schema}.v"
    sql = engine.spark.sql
    # The range of an older file contains the keys that come and go.
    wide = ", ".join(f"({n}, 1, DATE'2024-01-01')" for n in (70, 200, 71, 201))
    sql(f"INSERT INTO {shop.orders} VALUES {wide}")
    sql(f"INSERT INTO {shop.lines} SELECT id, 'a', 5 FROM {shop.orders} WHERE id >= 70")
    newest = files_of(engine, shop.orders) | files_of(engine, shop.lines)
    sql(f"INSERT INTO {shop.orders} VALUES (101, 2, DATE'2024-01-02')")
    sql(f"INSERT INTO {shop.lines} VALUES (101, 'a', 7), (101, 'b', 8)")
    newest = (files_of(engine, shop.orders) | files_of(engine, shop.lines)) - newest
    keys = shop.keys if declared else ()
    engine.create_materialized_view(
        view, query(shop, name), keys=keys, refresh_mode="incremental_strict"
    )
    # Whatever reads an older file fails.
    older = (files_of(engine, shop.orders) | files_of(engine, shop.lines)) - newest
    sql(f"DELETE FROM {shop.lines} WHERE order_id = 101")
    sql(f"DELETE FROM {shop.orders} WHERE id = 101")
    sql(f"INSERT INTO {shop.orders} VALUES (102, 1, DATE'2024-01-03')")
    sql(f"INSERT INTO {shop.lines} VALUES (102, 'a', 1), (102, 'a', 1)")
    for file in older:
        file.rename(file.with_suffix(".away"))
    try:
        if declared:
            report = engine.advance().tables[view]
            assert (report.mode, report.reason) == ("incremental", "")
        else:
            with pytest.raises(Exception, match=r"(?i)not.?found|no such file|does not exist"):
                engine.advance()
    finally:
        for file in older:
            file.with_suffix(".away").rename(file)
    engine.advance()
    assert not engine.verify(view)


@pytest.mark.parametrize("tries", [5, 0])
def test_tables_that_somebody_writes_meanwhile_are_read_as_of_one_moment(
    engine, schema, tune, monkeypatch, tries
):
    """The writer keeps the key at each of its commits, but comes between the two looks."""
    tune(engine, big_rows=0)
    shop, view = Shop(engine, schema, 1), f"lake.{schema}.v"
    engine.create_materialized_view(
        view, query(shop, "orders first"), keys=shop.keys, refresh_mode="incremental_strict"
    )
    load, sql = inputs.load, engine.spark.sql
    left = ["VALUES (300, 'a', 1), (300, 'b', 2)", "VALUES (300, 'c', 3)"]

    def seen(spark, name, *args):
        found = load(spark, name, *args)
        # Right after the orders were looked at, an order comes with some of its lines.
        if str(name) == shop.orders and len(left) == 2:
            sql(f"INSERT INTO {shop.orders} VALUES (300, 1, DATE'2024-01-01')")
            sql(f"INSERT INTO {shop.lines} {left.pop(0)}")
        return found

    monkeypatch.setattr(inputs, "load", seen)
    with monkeypatch.context() as looking_once:
        looking_once.setattr(key_moment, "_TRIES", tries)
        engine.advance()
    assert not engine.verify(view)
    sql(f"INSERT INTO {shop.lines} {left.pop(0)}")
    for _ in range(2):
        engine.advance()
        assert not engine.verify(view)


@pytest.mark.parametrize("kind", ["BIGINT", "DATE"])
def test_rows_are_looked_up_in_ranges_of_the_values(engine, schema, tune, kind):
    """Values in clusters, at the edges of the ranges, and NULL; no key is declared."""
    tune(engine, big_rows=0)
    draw, sql = random.Random(3), engine.spark.sql
    left, right, view = (f"lake.{schema}.{name}" for name in ("l", "r", "v"))

    def value(n):
        return f"DATE'1970-01-01' + {n}" if kind == "DATE" else str(n)

    for table in (left, right):
        sql(f"CREATE TABLE {table} (k {kind}, n INT)")
        rows = ", ".join(f"({value(n)}, {n})" for n in range(-300, 900))
        sql(f"INSERT INTO {table} VALUES {rows}, (NULL, 0)")
    query = f"SELECT l.k, r.n FROM {left} l JOIN {right} r ON l.k = r.k"
    engine.create_materialized_view(view, query, refresh_mode="incremental_strict")
    for _ in range(4):
        low = draw.choice([-300, 0, 400])
        some = [low, low + 1, low + draw.randrange(9), draw.randrange(899), 899]
        sql(f"DELETE FROM {left} WHERE n IN ({', '.join(map(str, some[:3]))})")
        rows = ", ".join(f"({value(n)}, {n})" for n in some)
        sql(f"INSERT INTO {left} VALUES {rows}, (NULL, 1)")
        assert engine.advance().tables[view].mode != "full"
        assert not engine.verify(view)


def test_groups_whose_rows_expire_are_looked_up_in_ranges_too(engine, schema, tune):
    tune(engine, big_rows=0)
    draw, sql = random.Random(4), engine.spark.sql
    table, view = f"lake.{schema}.t", f"lake.{schema}.v"
    sql(f"CREATE TABLE {table} TBLPROPERTIES ('format-version' = '3') AS "
        "SELECT id % 300 AS k, id % 7 AS n FROM range(2000)")  # fmt: skip
    query = f"SELECT k, count(DISTINCT n) AS m FROM {table} GROUP BY k"
    engine.create_materialized_view(
        view, query, state_ttl="1 day", refresh_mode="incremental_strict"
    )
    looked_up = [step for step in engine.plan(view).steps if isinstance(step, Lookup)]
    assert [step.by for step in looked_up] == [""]
    for _ in range(3):
        sql(f"INSERT INTO {table} VALUES ({draw.randrange(300)}, 9), (-5, 1), (NULL, 2)")
        assert engine.advance().tables[view].mode != "full"
        assert not engine.verify(view)


def test_a_view_made_of_versions_of_different_moments_relies_on_no_key(engine, schema, tune):
    tune(engine, big_rows=0)
    shop, sql = Shop(engine, schema, 1), engine.spark.sql
    view, other = f"lake.{schema}.v", f"lake.{schema}.counted"
    engine.create_materialized_view(other, f"SELECT count(*) AS n FROM {shop.orders}")
    engine.begin()  # from here on the orders are read as they are now
    sql(f"INSERT INTO {shop.orders} VALUES (300, 1, DATE'2024-01-01')")
    sql(f"INSERT INTO {shop.lines} VALUES (300, 'a', 1), (300, 'b', 2)")
    engine.create_materialized_view(
        view, query(shop, "orders first"), keys=shop.keys, refresh_mode="incremental_strict"
    )
    engine.publish()
    sql(f"INSERT INTO {shop.lines} VALUES (300, 'c', 3)")
    for _ in range(2):
        engine.advance()
        assert not engine.verify(view)


def test_a_key_declared_for_an_existing_view_is_relied_on_from_the_second_epoch_on(
    engine, schema, tune
):
    tune(engine, big_rows=0)
    shop, view = Shop(engine, schema, 1), f"lake.{schema}.v"

    def define(keys):
        engine.create_materialized_view(
            view, query(shop, "orders first"), keys=keys, refresh_mode="incremental_strict"
        )

    define(())
    assert "one_moment" not in engine.store.latest(view).stats
    for keys in (shop.keys, (), shop.keys):
        shop.sell()
        define(keys)
        shop.cancel()
        shop.change()
        engine.advance()
        assert ("one_moment" in engine.store.latest(view).stats) == bool(keys)
        assert not engine.verify(view)


@pytest.mark.parametrize("by", ["unique", "references"])
def test_the_process_finds_the_keys_that_spark_finds(spark, by):
    """The keys that have to be looked up, computed in both places from random changes."""
    draw, local = random.Random(5), Scratch(spark, 1 << 20)
    lookup = Lookup("l", "t", "lake.s.t", "before", "k", "asking", "k", False, by, "lake.s.p", "k")
    found = 0
    for _ in range(12):
        frames = []
        for _ in range(3):
            some = [(draw.choice([None, *range(8)]), draw.choice([-2, -1, 1])) for _ in range(7)]
            rows = ", ".join(f"({'NULL' if k is None else k}, {w}L)" for k, w in some)
            text = f"SELECT CAST(k AS INT) AS k, w AS {WEIGHT} FROM VALUES {rows} AS v(k, w)"
            frames.append(local.collect(text, small=True).name)
        matches = KeyMatches(lookup, *frames, ("k",))
        keys = matches.missing_rows(local.known).data["k"].to_pylist()
        assert sorted(keys) == sorted(row[0] for row in spark.sql(matches.missing).collect())
        found += len(keys)
    assert found
    local.close()
