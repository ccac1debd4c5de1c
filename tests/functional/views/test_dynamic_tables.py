"""Dynamic tables: append and update mode, continuous queries, redo and redo+undo streams.

The rows are those of the well-known example: a table A of (time, key) with six rows at time 8 and
one more at 9 and at 12, counted by key, and by key and tumbling windows of five seconds.
"""

from __future__ import annotations

import pytest

from dbt_streamsql import StreamSqlError

pytestmark = pytest.mark.spark

A = [(1, "A"), (2, "B"), (4, "A"), (5, "C"), (7, "B"), (8, "A"), (9, "B"), (12, "C")]
BY_KEY = "SELECT k, count(k) AS cnt FROM {a} GROUP BY k"
BY_WINDOW = (
    "SELECT k, count(k) AS cnt, (t div 5 + 1) * 5 AS end_t FROM {a} GROUP BY k, (t div 5 + 1) * 5"
)


class Dynamic:
    """A table A and one continuous query `r` over it; a barrier has the number of its moment."""

    def __init__(self, engine, schema, query):
        self.engine, self.spark = engine, engine.spark
        self.a, self.r = f"lake.{schema}.a", f"lake.{schema}.r"
        self.query = query
        self.spark.sql(f"CREATE TABLE {self.a} (t INT, k STRING)")
        self.at = {0: engine.create_materialized_view(self.r, query.format(a=self.a)).barrier}
        self.modes = []

    def append(self, upto):
        """Append mode: the records of the stream up to a moment, one barrier."""
        rows = ", ".join(f"({t}, '{k}')" for t, k in A if max(self.at) < t <= upto)
        self.run(f"INSERT INTO {self.a} VALUES {rows}", upto)

    def run(self, statement, moment):
        self.spark.sql(statement)
        report = self.engine.advance().tables[self.r]
        self.modes.append(report.mode)
        self.at[moment] = report.barrier

    def result(self, moment):
        found = self.engine.sql(f"SELECT * FROM {self.r}", barrier=self.at[moment])
        return sorted(tuple(row) for row in found.collect())

    def stream(self, mode, after=0, upto=None):
        """The messages of a stream as `+(A, 1)`."""
        last = None if upto is None else self.at[upto]
        found = self.engine.changelog(self.r, self.at[after], last, mode)
        found = found.orderBy("_barrier", "_op", "k", ascending=[True, False, True])
        return [
            f"{row['_op']}({', '.join(str(value) for value in row[:-2] if value is not None)})"
            for row in found.collect()
        ]


@pytest.fixture
def counted(engine, schema):
    return Dynamic(engine, schema, BY_KEY)


@pytest.fixture
def windowed(engine, schema):
    return Dynamic(engine, schema, BY_WINDOW)


def test_a_continuous_query_gives_at_each_time_what_a_batch_query_gives(counted):
    for moment in (8, 9, 12):
        counted.append(moment)
    assert counted.result(8) == [("A", 3), ("B", 2), ("C", 1)]
    assert counted.result(9) == [("A", 3), ("B", 3), ("C", 1)]
    assert counted.result(12) == [("A", 3), ("B", 3), ("C", 2)]
    for moment in (8, 9, 12):
        batch = f"(SELECT * FROM {counted.a} WHERE t <= {moment})"
        rows = counted.spark.sql(BY_KEY.format(a=batch)).collect()
        assert sorted(tuple(row) for row in rows) == counted.result(moment)


def test_the_counted_table_updates_rows_that_it_has_emitted(counted):
    for moment in (8, 9, 12):
        counted.append(moment)
    assert counted.modes == ["append", "incremental", "incremental"]
    assert counted.stream("retract", 8) == ["-(B, 2)", "+(B, 3)", "-(C, 1)", "+(C, 2)"]
    with pytest.raises(StreamSqlError) as caught:
        counted.stream("append")
    assert caught.value.code == "CHANGELOG_MODE"
    assert f"barrier {counted.at[9]}" in caught.value.given


def test_the_windowed_table_only_appends_rows(windowed):
    for moment in (4, 9, 12):
        windowed.append(moment)
    assert windowed.modes == ["append"] * 3
    first = [("A", 2, 5), ("B", 1, 5)]
    second = [("A", 1, 10), ("B", 2, 10), ("C", 1, 10)]
    assert windowed.result(4) == first
    assert windowed.result(9) == sorted(first + second)
    assert windowed.result(12) == sorted([*first, *second, ("C", 1, 15)])
    messages = [
        *("+(A, 2, 5)", "+(B, 1, 5)"),
        *("+(A, 1, 10)", "+(B, 2, 10)", "+(C, 1, 10)"),
        "+(C, 1, 15)",
    ]
    assert windowed.stream("append") == messages
    # An append-only table has the same redo stream and redo+undo stream.
    assert windowed.stream("retract") == windowed.stream("upsert") == messages


def test_a_late_record_updates_the_result_of_its_window(windowed):
    for moment in (4, 9):
        windowed.append(moment)
    windowed.run(f"INSERT INTO {windowed.a} VALUES (3, 'B')", 10)
    assert windowed.stream("retract", 9) == ["-(B, 1, 5)", "+(B, 2, 5)"]
    assert windowed.stream("upsert", 9) == ["*(B, 2, 5)"]


def test_a_redo_and_undo_stream_has_old_rows_and_new_rows(counted):
    for moment, _ in A[:6]:
        counted.append(moment)
    assert counted.stream("retract") == [
        "+(A, 1)",
        "+(B, 1)",
        *("-(A, 1)", "+(A, 2)"),
        "+(C, 1)",
        *("-(B, 1)", "+(B, 2)"),
        *("-(A, 2)", "+(A, 3)"),
    ]


def test_a_redo_stream_has_new_rows_by_key(counted):
    for moment, _ in A[:6]:
        counted.append(moment)
    messages = ["+(A, 1)", "+(B, 1)", "*(A, 2)", "+(C, 1)", "*(B, 2)", "*(A, 3)"]
    assert counted.stream("upsert") == messages
    assert counted.stream("upsert", 2, 5) == messages[2:4]


def test_a_key_that_is_removed_is_a_delete_message_with_the_key(counted):
    counted.append(8)
    counted.run(f"DELETE FROM {counted.a} WHERE k = 'C'", 9)
    counted.run(f"UPDATE {counted.a} SET k = 'D' WHERE k = 'B'", 10)
    assert counted.stream("upsert", 8, 9) == ["-(C)"]
    assert counted.stream("upsert", 9) == ["-(B)", "+(D, 2)"]
    assert counted.stream("retract", 8) == ["-(C, 1)", "-(B, 2)", "+(D, 2)"]


def test_a_table_in_update_mode_takes_inserts_updates_and_deletes_by_key(engine, schema):
    table = f"lake.{schema}.ages"
    engine.spark.sql(f"CREATE TABLE {table} (name STRING, age INT)")
    view = f"lake.{schema}.oldest"
    engine.create_materialized_view(
        view, f"SELECT name, max(age) AS age FROM {table} GROUP BY name"
    )
    start = engine.advance().barrier
    stream = [
        [("+", "ann", 30), ("+", "bob", 40)],
        [("*", "ann", 31), ("+", "cyd", 50)],
        [("-", "bob", None), ("*", "cyd", 51)],
    ]
    for messages in stream:
        apply_by_key(engine, table, messages)
        engine.advance()
    assert rows(engine, table) == rows(engine, view) == [("ann", 31), ("cyd", 51)]
    found = engine.changelog(view, start, mode="upsert").orderBy("_barrier", "name").collect()
    assert [(row["_op"], row["name"], row["age"]) for row in found] == [
        message for messages in stream for message in messages
    ]


def test_a_redo_stream_keeps_a_table_elsewhere_equal_by_key_alone(counted, schema):
    copy = f"lake.{schema}.elsewhere"
    counted.spark.sql(f"CREATE TABLE {copy} (name STRING, age BIGINT)")
    seen = 0
    for moment in (4, 8, 12):
        counted.append(moment)
        found = counted.engine.changelog(counted.r, counted.at[seen], mode="upsert").collect()
        apply_by_key(counted.engine, copy, [(row["_op"], row["k"], row["cnt"]) for row in found])
        assert rows(counted.engine, copy) == counted.result(moment)
        seen = moment


def apply_by_key(engine, table, messages):
    """A stream in update mode, onto a table whose key is its first column."""
    stream = ", ".join(f"('{op}', '{key}', {value or 'NULL'})" for op, key, value in messages)
    engine.spark.sql(
        f"MERGE INTO {table} t USING (SELECT * FROM VALUES {stream} AS v(op, name, age)) s ON t.name = s.name "
        "WHEN MATCHED AND s.op = '-' THEN DELETE WHEN MATCHED THEN UPDATE SET t.age = s.age "
        "WHEN NOT MATCHED THEN INSERT (name, age) VALUES (s.name, s.age)"
    )


def rows(engine, table):
    return sorted(tuple(row) for row in engine.sql(f"SELECT * FROM {table}").collect())
