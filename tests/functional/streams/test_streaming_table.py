"""A streaming table holds each record of its stream once, whatever dies, and feeds views."""

from __future__ import annotations

import random

import pytest
from pyspark.errors import AnalysisException

from dbt_streamsql import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta.model import stored_definition
from dbt_streamsql.plan import compiled
from dbt_streamsql.runtime.ingest.stream_ingest import StreamIngest
from dbt_streamsql.runtime.spark.session import embedded
from tests.support.steps import dying, observing

pytestmark = pytest.mark.spark

STEPS = (
    "stream.record",
    "branch.create",
    "branch.write",
    "table.processed",
    "barrier.precommit",
    "publish.table",
    "barrier.commit",
    "stream.release",
)

BY_ID = {
    "key": ["id"],
    "sequence_by": "seq",
    "delete_when": "op = 'd'",
    "leave_out": ["seq", "op"],
}
"""A table with one row for each id: its newest record, if that does not delete it."""


@pytest.fixture
def source(engine, schema):
    """A table that somebody else appends to."""
    name = f"lake.{schema}.raw"
    engine.spark.sql(f"CREATE TABLE {name} (id BIGINT, v STRING, seq BIGINT, op STRING)")
    return name


def declared(source, **options):
    return {"connector": "table", "options": {"table": source, **options}}


def append(engine, source, rows):
    values = ", ".join(f"({i}, {v!r}, {seq}, {op!r})" for i, v, seq, op in rows)
    if rows:
        engine.spark.sql(f"INSERT INTO {source} VALUES {values}")


def rows_of(engine, table):
    return sorted(tuple(row) for row in engine.sql(f"SELECT * FROM {table}").collect())


def test_new_records_are_appended_once_and_views_follow_in_the_same_barrier(
    engine, schema, source
):
    table, view = f"lake.{schema}.clicks", f"lake.{schema}.per_v"
    append(engine, source, [(1, "a", 1, "c"), (2, "b", 2, "c")])
    query = f"WITH s AS (SELECT * FROM {source}) SELECT id, upper(v) AS v FROM s WHERE id <> 9"
    made = engine.create_streaming_table(table, query, stream=source, source=declared(source))
    assert (made.mode, made.rows_inserted) == ("full", 2)
    engine.create_materialized_view(view, f"SELECT v, count(*) AS n FROM {table} GROUP BY v")
    append(engine, source, [(3, "b", 3, "c"), (9, "b", 4, "c")])
    report = engine.advance()
    assert report.tables[table].mode == "append"
    assert report.tables[table].rows_inserted == 1
    assert report.tables[view].mode == "incremental"
    assert rows_of(engine, table) == [(1, "A"), (2, "B"), (3, "B")]
    assert rows_of(engine, view) == [("A", 1), ("B", 2)]
    again = engine.advance()
    assert {of.mode for of in again.tables.values()} == {"noop"}
    assert again.tables[table].jobs == 0


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_whoever_dies_leaves_each_record_in_the_table_once(engine, schema, source, step, moment):
    table = f"lake.{schema}.clicks"
    append(engine, source, [(1, "a", 1, "c")])
    engine.create_streaming_table(
        table, f"SELECT id, v FROM {source}", stream=source, source=declared(source)
    )
    append(engine, source, [(2, "b", 2, "c")])
    with dying(step, moment=moment):
        engine.advance()
    append(engine, source, [(3, "c", 3, "c")])
    engine.advance()
    assert rows_of(engine, table) == [(1, "a"), (2, "b"), (3, "c")]


def test_what_will_be_read_is_known_before_it_is_read(engine, schema, source):
    table = f"lake.{schema}.clicks"
    append(engine, source, [(1, "a", 1, "c")])
    store = engine.store
    engine.create_streaming_table(
        table, f"SELECT id FROM {source}", stream=source, source=declared(source)
    )
    first = store.spans(store.last_committed())[table]
    append(engine, source, [(2, "b", 2, "c")])
    known = []

    def observe(step, moment):
        if (step, moment) == ("branch.write", "before"):
            (barrier,) = store.unfinished()
            known.append(store.spans(barrier.id)[table])

    with observing(observe):
        barrier = engine.advance().barrier
    assert known == [store.spans(barrier)[table]]
    assert known[0].after == first.upto
    assert rows_of(engine, table) == [(1,), (2,)]


def test_of_each_key_the_newest_record_counts_in_whatever_order_they_come(engine, schema, source):
    rng, table, view = random.Random(1), f"lake.{schema}.users", f"lake.{schema}.per_v"
    query = f"SELECT id, v, seq, op FROM {source}"
    engine.create_streaming_table(
        table,
        query,
        stream=source,
        source=declared(source),
        **BY_ID,
    )
    engine.create_materialized_view(
        view, f"SELECT v, count(*) AS n, sum(id) AS s FROM {table} GROUP BY v"
    )
    newest: dict[int, tuple] = {}
    sequence = list(range(1, 200))
    # Nearly in order, with latecomers.
    sequence.sort(key=lambda s: s + rng.choice([0, 0, 0, 5, 60]))
    known: list[tuple] = []
    while sequence:
        batch = []
        for _ in range(rng.choice([0, 1, 3, 40])):
            if sequence:
                row = (rng.randrange(12), rng.choice("abc"), sequence.pop(0), rng.choice("uud"))
                batch += [row, rng.choice(known)] if known and rng.random() < 0.2 else [row]
                known.append(row)
        append(engine, source, batch)
        for row in batch:
            if row[2] > newest.get(row[0], (0, "", 0))[2]:
                newest[row[0]] = row
        engine.advance()
        expected = sorted((i, v) for i, v, _, op in newest.values() if op != "d")
        assert rows_of(engine, table) == expected
        assert engine.verify(view) == []


def test_a_record_that_truncates_deletes_all_keys_before_it_in_whatever_order_they_come(
    engine, schema, source
):
    rng, table, view = random.Random(3), f"lake.{schema}.users", f"lake.{schema}.per_v"
    engine.create_streaming_table(
        table,
        f"SELECT id, v, seq, op FROM {source}",
        stream=source,
        source=declared(source),
        key=["id"],
        sequence_by="seq",
        delete_when="op = 'd'",
        truncate_when="op = 't'",
        leave_out=["seq", "op"],
    )
    engine.create_materialized_view(view, f"SELECT v, count(*) AS n FROM {table} GROUP BY v")
    sequence = list(range(1, 60))
    sequence.sort(key=lambda s: s + rng.choice([0, 0, 0, 40]))
    known: list[tuple] = []
    while sequence:
        for seq in [sequence.pop(0) for _ in range(min(len(sequence), rng.choice([1, 3, 25])))]:
            op = rng.choice("uuuuuuuuddt")
            known.append(("NULL" if op == "t" else rng.randrange(8), rng.choice("abc"), seq, op))
        repeated = rng.sample(known, min(len(known), 2))
        append(engine, source, known[-rng.choice([1, 3, 25]) :] + repeated)
        seen = engine.sql(f"SELECT * FROM {source}").collect()
        engine.advance()
        cleared = max((row.seq for row in seen if row.op == "t"), default=0)
        newest = {row.id: row for row in sorted(seen, key=lambda row: row.seq)}
        expected = [(r.id, r.v) for r in newest.values() if r.op == "u" and r.seq > cleared]
        assert rows_of(engine, table) == sorted(expected)
        assert engine.verify(view) == []


def test_a_record_that_truncates_has_no_key(engine, schema, source):
    table = f"lake.{schema}.users"
    engine.create_streaming_table(
        table,
        f"SELECT id, v, seq, op FROM {source}",
        stream=source,
        source=declared(source),
        key=["id"],
        sequence_by="seq",
        truncate_when="op = 't'",
    )
    append(engine, source, [(1, "a", 1, "t")])
    with pytest.raises(StreamSqlError) as caught:
        engine.advance()
    assert caught.value.code == "BAD_RECORD"
    assert "truncates but has a key" in caught.value.given


REFUSED = {
    "SELECT count(*) AS n FROM {s}": "one row",
    "SELECT DISTINCT id FROM {s}": "upsert",
    "SELECT a.id FROM {s} a JOIN {s} b ON a.id = b.id": "2 times",
    "SELECT id FROM {s} ORDER BY id LIMIT 3": "difference",
    "SELECT id, row_number() OVER (PARTITION BY v ORDER BY id) AS n FROM {s}": "",
    "SELECT id FROM {other}": "reads lake.",
}


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_that_is_more_than_rows_by_themselves_is_refused(engine, schema, source, query):
    table, other = f"lake.{schema}.clicks", f"lake.{schema}.other"
    engine.spark.sql(f"CREATE TABLE {other} (id BIGINT)")
    with pytest.raises(StreamSqlError) as caught:
        engine.create_streaming_table(
            table, query.format(s=source, other=other), stream=source, source=declared(source)
        )
    assert caught.value.code == "SQL_UNSUPPORTED"
    assert REFUSED[query] in caught.value.given
    assert "materialized view" in caught.value.hint
    assert not engine.queries.knows(table)


def test_everything_wrong_with_the_config_is_told_at_once(engine, schema, source):
    with pytest.raises(StreamSqlError) as caught:
        engine.create_streaming_table(
            f"lake.{schema}.clicks",
            f"SELECT id FROM {source}",
            stream=source,
            source=declared(source),
            sequence_by="seq; drop",
            leave_out=["id"],
            on_error="ignore",
        )
    given = caught.value.given
    assert caught.value.code == "CONFIG_INVALID"
    assert all(f"`{what}`" in given for what in ("sequence_by", "leave_out", "on_error"))


def test_a_key_without_an_order_of_its_records_is_refused(engine, schema, source):
    for config, told in (
        ({"key": ["id"]}, "`key` needs `sequence_by`"),
        ({"key": ["nope"], "sequence_by": "id"}, "`key` names 'nope'"),
        ({"key": ["id"], "sequence_by": "id", "delete_when": "v"}, "`delete_when` is a string"),
    ):
        with pytest.raises(StreamSqlError) as caught:
            engine.create_streaming_table(
                f"lake.{schema}.clicks",
                f"SELECT id, v FROM {source}",
                stream=source,
                source=declared(source),
                **config,
            )
        assert told in caught.value.given


def test_a_record_without_a_key_fails_and_changes_nothing(engine, schema, source):
    table = f"lake.{schema}.users"
    append(engine, source, [(1, "a", 1, "c")])
    engine.create_streaming_table(
        table,
        f"SELECT id, v, seq FROM {source}",
        stream=source,
        source=declared(source),
        key=["id"],
        sequence_by="seq",
    )
    engine.spark.sql(f"INSERT INTO {source} VALUES (NULL, 'x', 2, 'c'), (2, 'b', 3, 'c')")
    with pytest.raises(StreamSqlError) as caught:
        engine.advance()
    assert caught.value.code == "BAD_RECORD"
    assert "NULL in its key or sequence" in caught.value.given
    assert rows_of(engine, table) == [(1, "a", 1)]


def test_an_error_that_no_record_caused_is_not_its_own_cause(engine, schema, source, monkeypatch):
    engine.create_streaming_table(
        f"lake.{schema}.clicks",
        f"SELECT id, v FROM {source}",
        stream=source,
        source=declared(source),
    )
    append(engine, source, [(1, "a", 1, "c")])

    def refused(*_, **__):
        raise AnalysisException("no such column")

    monkeypatch.setattr(StreamIngest, "_take", refused)
    with pytest.raises(AnalysisException, match="no such column") as caught:
        engine.advance()
    assert caught.value.__cause__ is not caught.value


def test_other_columns_are_refused_until_the_stream_is_read_again(engine, schema, source):
    table = f"lake.{schema}.clicks"
    append(engine, source, [(1, "a", 1, "c")])

    def define(query, **options):
        return engine.create_streaming_table(
            table, query, stream=source, source=declared(source), **options
        )

    define(f"SELECT id FROM {source}")
    with pytest.raises(StreamSqlError) as caught:
        define(f"SELECT id, v FROM {source}")
    assert caught.value.code == "CONFIG_INVALID"
    assert "--full-refresh" in caught.value.hint
    assert define(f"SELECT id + 100 AS id FROM {source}").mode == "noop"
    append(engine, source, [(2, "b", 2, "c")])
    engine.advance()
    assert rows_of(engine, table) == [(1,), (102,)], "what was read stays as it was read"
    assert define(f"SELECT id, v FROM {source}", full_refresh=True).mode == "full"
    assert rows_of(engine, table) == [(1, "a"), (2, "b")]


def test_another_key_is_refused_until_the_stream_is_read_again(engine, schema, source):
    table = f"lake.{schema}.users"
    append(engine, source, [(1, "a", 1, "c"), (1, "b", 2, "c")])

    def define(**options):
        return engine.create_streaming_table(
            table,
            f"SELECT id, v, seq FROM {source}",
            stream=source,
            source=declared(source),
            **options,
        )

    define()
    with pytest.raises(StreamSqlError) as caught:
        define(key=["id"], sequence_by="seq")
    assert caught.value.code == "CONFIG_INVALID"
    assert "key, sequence_by" in caught.value.message
    assert define(key=["id"], sequence_by="seq", full_refresh=True).mode == "full"
    assert rows_of(engine, table) == [(1, "b", 2)]


def test_a_quarantine_may_be_asked_for_when_nothing_is_new(engine, schema, source):
    table = f"lake.{schema}.clicks"
    append(engine, source, [(1, "a", 1, "c")])
    for on_error in ("fail", "quarantine"):
        engine.create_streaming_table(
            table,
            f"SELECT id FROM {source}",
            stream=source,
            source=declared(source),
            on_error=on_error,
        )
    assert rows_of(engine, f"{table}__quarantine") == []
    append(engine, source, [(2, "b", 2, "c")])
    engine.advance()
    assert rows_of(engine, table) == [(1,), (2,)]


def test_a_table_is_dropped_with_those_beside_it(engine, schema, source):
    table = f"lake.{schema}.users"
    engine.create_streaming_table(
        table,
        f"SELECT id, seq FROM {source}",
        stream=source,
        source=declared(source),
        key=["id"],
        sequence_by="seq",
        on_error="quarantine",
    )
    shown = engine.spark.sql(f"SHOW TABLES IN lake.{schema}").collect()
    assert {row.tableName for row in shown} == {
        "raw",
        "users",
        "users__tombstones",
        "users__quarantine",
    }
    engine.drop(table)
    shown = engine.spark.sql(f"SHOW TABLES IN lake.{schema}").collect()
    assert {row.tableName for row in shown} == {"raw"}


def test_a_rebuilt_store_knows_how_far_streams_were_read(engine, tmp_path):
    folder = tmp_path / "lake"
    spark = embedded(str(folder))
    spark.sql("CREATE NAMESPACE lake.s")
    spark.sql("CREATE TABLE lake.s.raw (id BIGINT, seq BIGINT)")
    spark.sql("INSERT INTO lake.s.raw VALUES (1, 1), (2, 2)")
    shop = Engine.open(folder, spark=spark)
    for table, keyed in (("lake.s.t", {}), ("lake.s.u", {"key": ["id"], "sequence_by": "seq"})):
        shop.create_streaming_table(
            *(table, "SELECT id, seq FROM lake.s.raw"),
            stream="lake.s.raw",
            source=declared("lake.s.raw"),
            **keyed,
        )
    spark.sql("INSERT INTO lake.s.raw VALUES (3, 3), (1, 4)")
    shop.advance()
    shop.close()
    for file in folder.glob("streamsql.db*"):
        file.unlink()
    shop = Engine.open(folder, spark=spark)
    rebuilt = shop.rebuild()
    assert not rebuilt.left
    spark.sql("INSERT INTO lake.s.raw VALUES (5, 5), (2, 1)")
    shop.advance()
    assert rows_of(shop, "lake.s.t") == [(1, 1), (1, 4), (2, 1), (2, 2), (3, 3), (5, 5)]
    assert rows_of(shop, "lake.s.u") == [(1, 4), (2, 2), (3, 3), (5, 5)]
    shop.close()


def test_views_of_it_can_be_revised_and_it_cannot(engine, schema, source):
    table, view = f"lake.{schema}.clicks", f"lake.{schema}.per_v"
    append(engine, source, [(1, "a", 1, "c")])
    engine.create_streaming_table(
        table, f"SELECT id, v FROM {source}", stream=source, source=declared(source)
    )
    first = engine.create_materialized_view(
        view, f"SELECT v, count(*) AS n FROM {table} GROUP BY v"
    ).barrier
    append(engine, source, [(2, "a", 2, "c")])
    engine.advance()
    with pytest.raises(StreamSqlError) as caught:
        engine.revise(table, to_barrier=first)
    assert caught.value.code == "REVISION_IMPOSSIBLE"
    engine.revise(view, to_barrier=first)
    assert rows_of(engine, view) == [("a", 2)]
    assert engine.verify(view) == []


def test_there_is_no_query_to_verify_it_by(engine, schema, source):
    table = f"lake.{schema}.clicks"
    engine.create_streaming_table(
        table, f"SELECT id FROM {source}", stream=source, source=declared(source)
    )
    with pytest.raises(StreamSqlError) as caught:
        engine.verify(table)
    assert caught.value.code == "NOT_A_VIEW"


def test_a_stream_goes_on_although_its_plan_is_of_another_version(
    engine, schema, source, monkeypatch
):
    table, view = f"lake.{schema}.users", f"lake.{schema}.per_v"
    append(engine, source, [(1, "a", 1, "c"), (2, "b", 2, "c")])
    engine.create_streaming_table(
        table,
        f"SELECT id, v, seq, op FROM {source}",
        stream=source,
        source=declared(source),
        **BY_ID,
        on_error="quarantine",
    )
    engine.create_materialized_view(view, f"SELECT v, count(*) AS n FROM {table} GROUP BY v")
    append(engine, source, [(3, "a", 3, "c"), (2, "b", 4, "d")])
    monkeypatch.setattr(compiled, "PLAN_VERSION", compiled.PLAN_VERSION + 1)
    stored_definition._plan.cache_clear()
    for table_ in (table, f"{table}__tombstones", f"{table}__quarantine"):
        assert stored_definition.known_plan(engine.store.jobs()[table_]) is None
    report = engine.advance()
    assert report.tables[table].mode == "incremental"
    assert rows_of(engine, table) == [(1, "a"), (3, "a")]
    assert rows_of(engine, view) == [("a", 2)]
    stored_definition._plan.cache_clear()
    assert all(map(stored_definition.known_plan, engine.store.jobs().values()))
    append(engine, source, [(2, "late", 3, "c"), (4, "d", 5, "c")])
    assert engine.advance().tables[table].mode == "append"
    assert rows_of(engine, table) == [(1, "a"), (3, "a"), (4, "d")]
