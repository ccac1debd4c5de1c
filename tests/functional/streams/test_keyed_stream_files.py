"""The stored rows that records replace are found in the files of a streaming table."""

from __future__ import annotations

import random

import pytest

from dbt_streamsql.storage.iceberg.scans import keyed_rows

pytestmark = [pytest.mark.spark, pytest.mark.hunts]

TYPES = {
    "number": ("k BIGINT", "{k}L"),
    "day": ("k DATE", "DATE'2026-01-01' + {k}"),
    "text": ("k STRING", "concat('k', {k})"),
    "pair": ("k BIGINT, j INT", "{k}L div 3, {k} % 3"),
    "amount": ("k DECIMAL(9, 2)", "CAST({k} AS DECIMAL(9, 2))"),
}
"""By what the key is: its columns, and a key for each number."""
FOUND = {"number", "day", "text", "pair"}
"""Keys that the process looks up itself."""


@pytest.fixture
def looked_up(engine, tune, monkeypatch):
    """The tables that were looked into for keys; the process holds no table as a whole."""
    tune(engine, held_rows=-1, small_table=-1)
    tables = []
    read = keyed_rows.read

    def recorded(spark, name, *arguments):
        rows = read(spark, name, *arguments)
        if rows is not None:
            tables.append(name.table)
        return rows

    monkeypatch.setattr(keyed_rows, "read", recorded)
    return tables


class Feed:
    """Records of twenty keys, in nearly any order; what they come to is known."""

    def __init__(self, engine, schema, kind):
        self.engine, self.source = engine, f"lake.{schema}.records"
        columns, self.key = TYPES[kind]
        self.names = [column.split()[0] for column in columns.replace(", 2", "").split(", ")]
        engine.spark.sql(
            f"CREATE TABLE {self.source} ({columns}, v INT, seq BIGINT, gone BOOLEAN)"
        )
        self.newest = {}
        self.draw = random.Random(kind)
        self.number = 0

    def create(self, table):
        self.engine.create_streaming_table(
            table,
            f"SELECT {', '.join(self.names)}, v, seq, gone FROM {self.source}",
            stream=self.source,
            source={"connector": "table", "options": {"table": self.source}},
            key=self.names,
            sequence_by="seq",
            delete_when="gone",
            leave_out=["seq", "gone"],
        )

    def bring(self, count):
        rows = []
        for _ in range(count):
            self.number += 1
            key = self.draw.randrange(20)
            late = self.draw.choice([0, 0, 0, 7, 40])
            sequence = 1000 * (self.number - late) + self.number
            record = (sequence, self.draw.randrange(9), self.draw.random() < 0.3)
            rows.append((key, *record))
            # The sequence decides, in whatever order the records come.
            if key not in self.newest or record[0] > self.newest[key][0]:
                self.newest[key] = record
        values = ", ".join(
            f"({self.key.format(k=key)}, {v}, {seq}, {str(gone).lower()})"
            for key, seq, v, gone in rows
        )
        self.engine.spark.sql(f"INSERT INTO {self.source} VALUES {values}")

    def wanted(self):
        rows = [
            f"SELECT {self.key.format(k=key)}, {v}"
            for key, (_, v, gone) in self.newest.items()
            if not gone
        ]
        return self.engine.spark.sql(" UNION ALL ".join(rows)).collect()


@pytest.mark.parametrize("kind", TYPES)
def test_a_table_has_the_newest_record_of_each_key(engine, schema, looked_up, kind):
    table, feed = f"lake.{schema}.things", Feed(engine, schema, kind)
    feed.bring(12)
    feed.create(table)
    view = f"lake.{schema}.totals"
    engine.create_materialized_view(view, f"SELECT v, count(*) AS n FROM {table} GROUP BY v")
    for number in range(8):
        feed.bring(feed.draw.choice([1, 3, 25]))
        report = engine.advance().tables[table]
        assert report.mode in ("incremental", "append", "noop")
        rows = engine.sql(f"SELECT * FROM {table}").collect()
        assert sorted(map(tuple, rows)) == sorted(map(tuple, feed.wanted())), number
        assert engine.verify(view) == []
    assert ({"things", "things__tombstones"} <= set(looked_up)) == (kind in FOUND)


def test_an_epoch_of_few_records_takes_few_jobs(engine, schema, looked_up):
    table, feed = f"lake.{schema}.things", Feed(engine, schema, "number")
    feed.bring(12)
    feed.create(table)
    jobs = []
    for _ in range(3):
        feed.bring(5)
        jobs.append(engine.advance().tables[table].jobs)
    assert max(jobs) <= 3
    assert looked_up


def test_a_view_gets_the_rows_of_the_same_epoch_from_the_process(engine, schema, looked_up, tune):
    """Two jobs join the rows and write the result; none reads the change."""
    tune(engine, big_rows=1)
    table, feed = f"lake.{schema}.things", Feed(engine, schema, "number")
    engine.spark.sql(
        f"CREATE TABLE lake.{schema}.names AS SELECT id AS v, id + 1 AS n FROM range(9)"
    )
    feed.bring(12)
    feed.create(table)
    view = f"lake.{schema}.named"
    joined = f"SELECT t.k, n.n FROM {table} t JOIN lake.{schema}.names n ON n.v = t.v"
    engine.create_materialized_view(view, joined)
    jobs = []
    for _ in range(3):
        feed.bring(5)
        jobs.append(engine.advance().tables[view].jobs)
        assert engine.verify(view) == []
    assert max(jobs) <= 2
    assert looked_up


def test_a_first_reading_keeps_the_keys_that_are_deleted(engine, schema):
    table, feed = f"lake.{schema}.things", Feed(engine, schema, "pair")
    feed.bring(60)
    feed.create(table)
    rows = engine.sql(f"SELECT * FROM {table}").collect()
    assert sorted(map(tuple, rows)) == sorted(map(tuple, feed.wanted()))
    deleted = engine.spark.table(f"{table}__tombstones").collect()
    wanted = {seq for seq, _, gone in feed.newest.values() if gone}
    assert {row[-1] for row in deleted} == wanted
    # Older records of deleted keys come late, and change nothing.
    key = feed.key.format(k=next(key for key, found in feed.newest.items() if found[2]))
    engine.spark.sql(f"INSERT INTO {feed.source} VALUES ({key}, 1, -1000, false)")
    engine.advance()
    rows = engine.sql(f"SELECT * FROM {table}").collect()
    assert sorted(map(tuple, rows)) == sorted(map(tuple, feed.wanted()))


def test_of_equal_sequences_the_same_record_counts_whenever_they_are_read(engine, schema):
    source = f"lake.{schema}.records"
    engine.spark.sql(f"CREATE TABLE {source} (k BIGINT, v STRING, m MAP<STRING, INT>, seq BIGINT)")
    values = ", ".join(f"(1, 'v{n % 7}', map('a', {n % 3}), 5)" for n in range(50))
    engine.spark.sql(f"INSERT INTO {source} VALUES {values}")
    found = set()
    for name, columns in (
        *(("a", "k, v, seq"), ("b", "k, v, seq")),
        *(("c", "k, v, m, seq"), ("d", "k, v, m, seq")),
        # A map that is not stored is not in the way.
        *(("e", "k, v, m AS aside, seq"), ("f", "k, v, m AS aside, seq")),
    ):
        table = f"lake.{schema}.{name}"
        engine.create_streaming_table(
            table,
            f"SELECT {columns} FROM {source}",
            stream=source,
            source={"connector": "table", "options": {"table": source}},
            key=["k"],
            sequence_by="seq",
            leave_out=["seq", *(["aside"] if "aside" in columns else [])],
        )
        (row,) = engine.sql(f"SELECT * FROM {table}").collect()
        found.add((columns, str(row)))
    assert len(found) == 3
