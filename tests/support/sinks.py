"""What the tests of sinks share: a table that changes at random, views of it, and what files tell."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

QUERY = "SELECT id, upper(city) AS town, amount FROM {view} WHERE amount < 900"
"""Of a sink: some rows, some columns, one of them computed."""


class Shop:
    """A table of orders, a view of one row for each of them, and a dictionary of what they are."""

    def __init__(self, engine, schema, seed=1):
        self.engine = engine
        self.orders, self.view = f"lake.{schema}.orders", f"lake.{schema}.current"
        self.name = f"lake.{schema}.out"
        self.rows: dict[int, tuple] = {}
        self._random = random.Random(seed)
        engine.spark.sql(f"CREATE TABLE {self.orders} (id INT, city STRING, amount INT)")
        self.put({1: ("rome", 10), 2: ("oslo", 950)})
        query = (
            f"SELECT id, max(city) AS city, sum(amount) AS amount FROM {self.orders} GROUP BY id"
        )
        engine.create_materialized_view(self.view, query)

    def put(self, rows):
        """Set rows by id; None deletes one."""
        if not rows:
            return
        ids = ", ".join(map(str, rows))
        self.engine.spark.sql(f"DELETE FROM {self.orders} WHERE id IN ({ids})")
        values = [f"({i}, '{row[0]}', {row[1]})" for i, row in rows.items() if row is not None]
        if values:
            self.engine.spark.sql(f"INSERT INTO {self.orders} VALUES {', '.join(values)}")
        for i, row in rows.items():
            if row is None:
                self.rows.pop(i, None)
            else:
                self.rows[i] = row

    def change(self, most=6):
        """Some rows come, change and go."""
        draw = self._random
        some = {draw.randrange(12): None for _ in range(draw.randrange(most))}
        for i in some:
            if draw.random() < 0.7:
                some[i] = (draw.choice(["rome", "oslo", "bern"]), draw.choice([1, 5, 899, 950]))
        self.put(some)

    @property
    def wanted(self):
        """The rows of `QUERY`, sorted."""
        rows = [(i, city.upper(), amount) for i, (city, amount) in self.rows.items()]
        return sorted(row for row in rows if row[2] < 900)

    def sink(self, target, sql=QUERY, **options):
        query = sql.format(view=self.view, orders=self.orders)
        return self.engine.create_sink(self.name, query, target=target, **options)

    @property
    def known(self):
        """How far it has come."""
        (sink,) = [sink for sink in self.engine.sinks.all() if sink.name == self.name]
        return sink


@pytest.fixture
def shop(engine, schema):
    made = Shop(engine, schema)
    yield made
    engine.abort()
    for sink in engine.sinks.all():
        engine.drop_sink(sink.name)


def deliveries(path):
    """The rows of each folder of files, by its barrier: (the row, `+` or `-`)."""
    found = {}
    for folder in Path(path).glob("barrier=*"):
        rows = []
        for file in folder.glob("*.json"):
            rows += [json.loads(line) for line in file.read_text().splitlines()]
        told = [(tuple(v for k, v in row.items() if k != "_op"), row["_op"]) for row in rows]
        found[int(folder.name.partition("=")[2])] = told
    return found


def replayed(path):
    """What the files add up to, sorted."""
    total: Counter = Counter()
    for _, rows in sorted(deliveries(path).items()):
        for row, operation in rows:
            total[row] += 1 if operation == "+" else -1
        assert min(total.values(), default=0) >= 0, "a row went that had not come"
    return sorted(total.elements())
