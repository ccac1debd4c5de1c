"""Barriers of event time: which records a barrier holds, which wait, and which come late."""

from __future__ import annotations

import random

import pytest

from dbt_streamsql import Engine
from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark.session import embedded
from tests.support.steps import dying

pytestmark = pytest.mark.spark

STEPS = ("branch.write", "table.processed", "publish.table", "barrier.commit")


def made(engine, schema, name="raw"):
    """A table that somebody else appends to."""
    table = f"lake.{schema}.{name}"
    engine.spark.sql(f"CREATE TABLE {table} (id BIGINT, ts TIMESTAMP, v STRING)")
    return table


@pytest.fixture
def source(engine, schema):
    return made(engine, schema)


def append(engine, source, rows):
    """Rows of (id, second, v)."""
    told = [
        f"({i}, {'NULL' if at is None else f'timestamp_seconds({at})'}, {v!r})"
        for i, at, v in rows
    ]
    if told:
        engine.spark.sql(f"INSERT INTO {source} VALUES {', '.join(told)}")


def define(engine, table, source, query="SELECT id, ts, v FROM {s}", **options):
    options = {"event_time": "ts", "lateness": "10 seconds", "idle_after": "never"} | options
    return engine.create_streaming_table(
        table,
        query.format(s=source),
        stream=source,
        source={"connector": "table", "options": {"table": source}},
        **options,
    )


def ids(engine, table):
    return sorted(row.id for row in engine.sql(f"SELECT id FROM {table}").collect())


def quarantined(engine, table):
    text = f"SELECT reason, get_json_object(raw, '$.id') AS id FROM {table}__quarantine"
    return sorted((row.reason.split(" ")[0], int(row.id)) for row in engine.sql(text).collect())


def test_records_that_are_too_new_wait_and_come_when_their_time_has(engine, schema, source):
    table, view = f"lake.{schema}.clicks", f"lake.{schema}.per_v"
    append(engine, source, [(1, 100, "a"), (2, 105, "a"), (3, 95, "b")])
    define(engine, table, source)
    engine.create_materialized_view(view, f"SELECT v, count(*) AS n FROM {table} GROUP BY v")
    assert ids(engine, table) == [3], "W is 95"
    append(engine, source, [(4, 112, "b"), (5, 96, "b")])
    engine.advance()
    assert ids(engine, table) == [1, 3, 5], "W is 102"
    append(engine, source, [(6, 130, "c")])
    engine.advance()
    assert ids(engine, table) == [1, 2, 3, 4, 5]
    assert engine.verify(view) == []
    again = engine.advance()
    assert {of.mode for of in again.tables.values()} == {"noop"}
    assert {of.jobs for of in again.tables.values()} == {0}


def test_a_stream_that_is_silent_for_long_is_not_waited_for(engine, schema, source):
    table = f"lake.{schema}.clicks"
    append(engine, source, [(1, 100, "a"), (2, 200, "a")])
    define(engine, table, source, idle_after=0)
    assert ids(engine, table) == [1]
    engine.advance()
    assert ids(engine, table) == [1, 2]
    append(engine, source, [(3, 195, "a"), (4, 207, "b")])
    engine.advance()
    assert ids(engine, table) == [1, 2, 3], "W does not go back, and the record is a correction"
    engine.advance()
    assert ids(engine, table) == [1, 2, 3, 4]


def test_a_late_record_corrects_or_is_put_aside(engine, schema, source):
    included, aside = f"lake.{schema}.included", f"lake.{schema}.aside"
    append(engine, source, [(1, 100, "a"), (2, 120, "a")])
    define(engine, included, source)
    define(engine, aside, source, late_data="quarantine")
    append(engine, source, [(3, 110, "late"), (4, 50, "late"), (5, 111, "a"), (6, 140, "a")])
    engine.advance()
    assert ids(engine, included) == [1, 2, 3, 4, 5]
    assert ids(engine, aside) == [1, 2, 5]
    assert quarantined(engine, aside) == [("LATE:", 3), ("LATE:", 4)]


def test_a_record_without_time_fails_or_is_put_aside(engine, schema, source):
    strict, aside = f"lake.{schema}.strict", f"lake.{schema}.aside"
    append(engine, source, [(1, 100, "a"), (2, 120, "a")])
    define(engine, strict, source)
    append(engine, source, [(3, None, "a")])
    with pytest.raises(StreamSqlError) as caught:
        engine.advance()
    assert caught.value.code == "BAD_RECORD"
    assert "NULL as its event time" in caught.value.given
    assert ids(engine, strict) == [1]
    engine.drop(strict)
    define(engine, aside, source, on_error="quarantine")
    assert ids(engine, aside) == [1]
    assert quarantined(engine, aside) == [("NULL", 3)]


def test_two_streams_out_of_order_are_one_cut_whoever_dies_and_all_comes_out(engine, schema):
    rng = random.Random(1)
    sources = {name: made(engine, schema, f"raw_{name}") for name in "lr"}
    tables = {name: f"lake.{schema}.{name}" for name in "lr"}
    keyed = {"key": ["id"], "sequence_by": "ts", "delete_when": "v = 'd'", "leave_out": ["ts"]}
    query = "SELECT id, ts, v FROM {s}"
    define(engine, tables["l"], sources["l"], query)
    define(engine, tables["r"], sources["r"], query, lateness=4, **keyed)
    view = f"lake.{schema}.joined"
    engine.create_materialized_view(
        view, f"SELECT l.id, l.ts, r.v FROM {tables['l']} l JOIN {tables['r']} r ON r.id = l.id"
    )
    read = {"l": [], "r": []}
    clock, number, before = 1000, 0, None

    def check():
        at = {name: upto(engine, tables[name]) for name in "lr"}
        assert at["l"] == at["r"], "one W"
        known = {
            n: [row for row in read[n] if at[n] is not None and row[1] <= at[n]] for n in "lr"
        }
        assert ids(engine, tables["l"]) == sorted(row[0] for row in known["l"])
        newest = {row[0]: row for row in sorted(known["r"], key=lambda row: row[1])}
        live = sorted(i for i, row in newest.items() if row[2] != "d")
        assert ids(engine, tables["r"]) == live
        assert engine.verify(view) == []
        assert before is None or at["l"] is None or at["l"] >= before
        return at["l"] if at["l"] is not None else before

    for _ in range(9):
        for name in rng.choice(["l", "r", "lr", "lr"]):
            rows = []
            for _ in range(rng.choice([1, 5, 20])):
                number += 1
                clock += rng.choice([0, 1])
                # Of the right stream, each time is of one record: it is the sequence of its key.
                late = rng.choice([0, 0, 3, 9, 15])
                at = clock - late if name == "l" else 1000 + number
                who = number if name == "l" else rng.randrange(12)
                rows.append((who, at, rng.choice("abd")))
            clock = max(clock, 1000 + number)
            rng.shuffle(rows)
            append(engine, sources[name], rows)
            read[name] += rows
        if rng.random() < 0.5:
            with dying(rng.choice(STEPS), moment=rng.choice(["before", "after"])):
                engine.advance()
        engine.advance()
        before = check()
    for name in "lr":
        append(engine, sources[name], [(9999, clock + 100, "d")])
        read[name].append((9999, clock + 100, "d"))
    engine.advance()
    before = check()
    assert len(ids(engine, tables["l"])) == len(read["l"]) - 1


def upto(engine, table):
    versions = engine.store.latest_all()
    at = versions[table].stats["event_time"]["upto"]
    return None if at is None else at / 1e6


def test_a_rebuilt_store_knows_the_time_and_what_waits(engine, tmp_path):
    folder = tmp_path / "lake"
    spark = embedded(str(folder))
    spark.sql("CREATE NAMESPACE lake.s")
    shop = Engine.open(folder, spark=spark)
    source = made(shop, "s")
    append(shop, source, [(1, 100, "a"), (2, 105, "a")])
    define(shop, "lake.s.t", source, late_data="quarantine")
    append(shop, source, [(3, 112, "a")])
    shop.advance()
    shop.close()
    for file in folder.glob("streamsql.db*"):
        file.unlink()
    shop = Engine.open(folder, spark=spark)
    assert not shop.rebuild().left
    append(shop, source, [(4, 101, "late"), (5, 130, "a")])
    shop.advance()
    assert ids(shop, "lake.s.t") == [1, 2, 3]
    assert quarantined(shop, "lake.s.t") == [("LATE:", 4)]
    shop.close()


REFUSED = {
    "`event_time` is a bigint": {"event_time": "id"},
    "`event_time` needs a `lateness`": {"lateness": None},
    "`lateness` needs `event_time`": {"event_time": ""},
    "`late_data` is 'drop'": {"late_data": "drop"},
    "`lateness` is not a duration": {"lateness": "soon"},
    "`lateness` requires `on_schema_change: fail`": {"on_schema_change": "ignore"},
}


@pytest.mark.parametrize("told", REFUSED)
def test_what_cannot_be_is_refused_in_words(engine, schema, source, told):
    with pytest.raises(StreamSqlError) as caught:
        define(engine, f"lake.{schema}.clicks", source, **REFUSED[told])
    assert caught.value.code == "CONFIG_INVALID"
    assert told in f"{caught.value.message} {caught.value.given}"


def test_event_time_where_there_was_none_needs_a_full_refresh(engine, schema, source):
    table = f"lake.{schema}.clicks"
    append(engine, source, [(1, 100, "a"), (2, 120, "a")])
    define(engine, table, source, event_time="", lateness=None)
    with pytest.raises(StreamSqlError) as caught:
        define(engine, table, source)
    assert "changing event_time would change the meaning" in caught.value.message
    define(engine, table, source, full_refresh=True)
    assert ids(engine, table) == [1]
    define(engine, table, source, lateness="1 s")
    append(engine, source, [(3, 121, "a")])
    engine.advance()
    assert ids(engine, table) == [1, 2]
