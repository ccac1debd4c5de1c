"""PostgreSQL as a source of changes, by logical decoding of a real server."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import threading
import time

import pytest

from dbt_streamsql.connectors.sources.postgres.postgres_source import Postgres
from dbt_streamsql.connectors.sources.source import end_of
from tests.support.followed_postgres import connected, refused
from tests.support.streams import problems, records, through

pytestmark = pytest.mark.processes


def test_first_the_rows_of_the_table_and_then_each_change_once(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql("INSERT INTO t VALUES (1, 'one'), (2, NULL)")
    source = followed()
    rows, at = through(source, spark, "id", "v", "_op")
    assert rows == [(1, "one", "r"), (2, None, "r")]
    assert source.end(spark, at) is None
    sql("INSERT INTO t VALUES (3, 'three')")
    sql("UPDATE t SET v = 'two' WHERE id = 2")
    sql("DELETE FROM t WHERE id = 1")
    rows, at = through(source, spark, "_lsn", "_seq", "id", "v", "_op", after=at)
    assert [row[2:] for row in sorted(rows)] == [
        (3, "three", "c"),
        (2, "two", "u"),
        (1, None, "d"),
    ]
    assert source.end(spark, at) is None


def test_a_changed_key_is_a_delete_and_a_new_row_and_a_truncated_table_says_so(
    spark, sql, followed
):
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    source = followed()
    _, at = through(source, spark)
    sql("INSERT INTO t VALUES (1, 10)")
    sql("UPDATE t SET id = 2")
    sql("TRUNCATE t")
    rows, _ = through(source, spark, "_lsn", "_seq", "_op", "id", "v", after=at)
    assert [row[2:] for row in sorted(rows)] == [
        ("c", 1, 10),
        ("d", 1, None),
        ("c", 2, 10),
        ("t", None, None),
    ]


def test_transactions_stay_whole_and_in_the_order_of_their_commits(
    spark, sql, followed, port, database
):
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    source = followed(max_records_per_barrier=1)
    _, at = through(source, spark)
    with connected(port, database) as first, connected(port, database) as second:
        first.autocommit = second.autocommit = False
        first.execute("INSERT INTO t SELECT n, 1 FROM generate_series(1, 50) n")
        second.execute("INSERT INTO t SELECT n, 2 FROM generate_series(51, 60) n")
        second.commit()
        first.execute("INSERT INTO t VALUES (100, 1)")
        first.commit()
    end = source.end(spark, at)
    assert end.records == 10
    assert {row[0] for row in records(source, spark, at, end.position, "v")} == {2}
    source.release(spark, end.position)
    after = end.position
    end = source.end(spark, after)
    assert end.records == 51
    assert {row[0] for row in records(source, spark, after, end.position, "v")} == {1}


def test_what_was_rolled_back_never_comes(spark, sql, followed, port, database):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = followed()
    _, at = through(source, spark)
    with connected(port, database) as other:
        other.autocommit = False
        other.execute("INSERT INTO t VALUES (1)")
        other.execute("SAVEPOINT s")
        other.execute("INSERT INTO t VALUES (2)")
        other.execute("ROLLBACK TO s")
        other.commit()
        other.execute("INSERT INTO t VALUES (3)")
        other.rollback()
    assert through(source, spark, "id", after=at)[0] == [(1,)]


def write(port, database, seed, stop):
    """Random transactions until it is told to stop."""
    mine = random.Random(seed)
    with connected(port, database) as connection:
        connection.autocommit = False
        while not stop.is_set():
            for _ in range(mine.randrange(1, 6)):
                key, value = mine.randrange(60) * 3 + seed, mine.randrange(10_000)
                connection.execute(
                    mine.choice(
                        [
                            "INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v",
                            "UPDATE t SET v = %s + v WHERE id = %s",
                            "DELETE FROM t WHERE id = %s AND %s > 0",
                        ]
                    ),
                    (key, value),
                )
            mine.choice([connection.commit, connection.commit, connection.rollback])()
            time.sleep(mine.random() / 100)


def test_nothing_is_lost_or_doubled_beside_writers_wherever_barriers_fall(
    spark, sql, followed, port, database
):
    """The table, rebuilt from its records by key, is the table; with crashes between the steps."""
    chance = random.Random(11)
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    sql("INSERT INTO t SELECT n, 0 FROM generate_series(1, 20) n")
    source = followed(max_records_per_barrier=25)
    stop = threading.Event()

    writers = [
        threading.Thread(target=write, args=(port, database, seed, stop)) for seed in range(3)
    ]
    for writer in writers:
        writer.start()
    changes, at, first = [], None, True
    try:
        for step in range(30):
            if step == 24:
                stop.set()
                for writer in writers:
                    writer.join()
            end = source.end(spark, at)
            if end is None:
                break
            if chance.random() < 0.3:  # the process dies before it has read
                continue
            rows = records(source, spark, at, end.position, "_lsn", "_seq", "_op", "id", "v")
            if chance.random() < 0.3:  # and here before the barrier is published
                if not first:
                    assert (
                        records(source, spark, at, end.position, "_lsn", "_seq", "_op", "id", "v")
                        == rows
                    )
                continue
            changes += rows
            at, first = end.position, False
            if chance.random() < 0.7:  # or before it tells the source
                source.release(spark, at)
        else:
            rest, at = through(source, spark, "_lsn", "_seq", "_op", "id", "v", after=at)
            changes += rest
    finally:
        stop.set()
    assert len({row[:2] for row in changes}) == len(changes)
    table = {}
    for _, _, op, key, value in sorted(changes):
        assert (key in table) is (op in "ud"), (op, key)
        if op == "d":
            del table[key]
        else:
            table[key] = value
    assert table == dict(sql("SELECT id, v FROM t").fetchall())


def snapshots_held(sql):
    """The transactions that keep a snapshot open on the server, this session's not among them."""
    held = "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> "
    return sql(held + "pg_backend_pid() AND datname = current_database()").fetchone()[0]


def test_a_transaction_that_runs_while_the_table_is_first_read_comes_once(
    spark, sql, followed, port, database
):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    sql("INSERT INTO t VALUES (1)")
    source = followed()
    with end_of(source, spark, None):  # the slot is there, and the first barrier is given up
        assert snapshots_held(sql) == 1
    assert snapshots_held(sql) == 0
    sql("INSERT INTO t VALUES (2)")
    with connected(port, database) as other:
        other.autocommit = False
        other.execute("INSERT INTO t VALUES (3)")
        waiting = followed(snapshot_wait=0.3)
        told = refused("STREAM_UNREACHABLE", waiting.end, spark, None)
        assert str(other.info.backend_pid) in told
        new = followed(reader="another", snapshot_wait=0.3)
        told = refused("STREAM_UNREACHABLE", new.end, spark, None)
        assert str(other.info.backend_pid) in told
        threading.Timer(0.5, other.commit).start()
        with end_of(source, spark, None) as end:
            assert records(source, spark, None, end.position, "id") == [(1,), (2,), (3,)]
            sql("INSERT INTO t VALUES (4)")
            assert records(source, spark, None, end.position, "id") == [(1,), (2,), (3,)]
        source.release(spark, end.position)
        rows, _ = through(source, spark, "id", "_op", after=end.position)
        assert rows == [(4, "c")]


def test_a_transaction_that_is_open_in_the_first_snapshot_comes_after_it(
    spark, sql, followed, port, database, monkeypatch
):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = followed()
    with connected(port, database) as other:
        other.autocommit = False
        finished = Postgres._finished

        def and_then(self, connection):
            finished(self, connection)
            other.execute("INSERT INTO t VALUES (1)")
            sql("INSERT INTO t VALUES (2)")  # a newer one, which ends before

        monkeypatch.setattr(Postgres, "_finished", and_then)
        with end_of(source, spark, None) as end:
            other.commit()
            sql("INSERT INTO t VALUES (3)")
            assert records(source, spark, None, end.position, "id") == [(2,)]
        rows, _ = through(source, spark, "id", after=end.position)
        assert rows == [(1,), (3,)]


def test_a_range_is_its_own_wherever_the_slot_stands(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = followed(max_records_per_barrier=1)
    _, start = through(source, spark)
    ends = [start]
    for n in range(3):
        sql("INSERT INTO t VALUES (%s)", (n,))
        ends.append(
            {**start, "lsn": sql("SELECT pg_current_wal_insert_lsn()::text").fetchone()[0]}
        )
    for low in range(4):
        for high in range(low, 4):
            rows = records(source, spark, ends[low], ends[high], "id")
            assert rows == [(n,) for n in range(low, high)]
    found, at = [], start  # and nobody ever releases
    for _ in range(4):
        end = source.end(spark, at)
        if end is None:
            break
        found += records(source, spark, at, end.position, "id")
        at = end.position
    assert found == [(0,), (1,), (2,)]


def test_every_type_arrives_from_the_table_and_from_its_changes_alike(spark, sql, followed):
    sql("CREATE DOMAIN money2 AS numeric(10,2)")
    sql("CREATE TYPE mood AS ENUM ('so so', 'it''s fine')")
    sql(
        "CREATE TABLE t (id bigserial PRIMARY KEY, a smallint, b bigint, c real, d double precision, "
        "e numeric(20,5), f numeric, g boolean, h bytea, i date, j timestamp, k timestamptz, l uuid, "
        "m jsonb, n int[], o mood, p money2, q char(5), r interval, s time, "
        "gen int GENERATED ALWAYS AS (1) STORED)"
    )
    values = (
        "-5, 9223372036854775807, 1.5, 'NaN', 123456789012345.12345, 1.000000000000000001, true, "
        "'\\xdeadbeef00', '1969-12-31', '2026-03-29 02:30:00.123456', '2026-03-29 02:30:00.123456+02', "
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\": [1, null]}', '{1,NULL,3}', 'it''s fine', "
        "12.30, 'ab', '1 day 2 hours', '23:59:59.5'"
    )
    put = f"INSERT INTO t (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s) VALUES ({values})"
    sql(put)
    sql("INSERT INTO t DEFAULT VALUES")
    source = followed()
    names = [
        name
        for name, _ in source.columns(spark)
        if name not in ("id", "_op", "_lsn", "_seq", "_ts")
    ]
    assert "gen" not in names
    first, at = through(source, spark, *names)
    sql(put)
    sql("INSERT INTO t DEFAULT VALUES")
    later, _ = through(source, spark, *names, after=at)
    assert repr(first) == repr(later)  # NaN is not NaN
    assert first[0][4:] == (
        decimal.Decimal("123456789012345.12345"),
        decimal.Decimal("1.000000000000000001"),
        True,
        b"\xde\xad\xbe\xef\x00",
        dt.date(1969, 12, 31),
        dt.datetime(2026, 3, 29, 2, 30, 0, 123456),  # noqa: DTZ001 - it has no zone
        dt.datetime(2026, 3, 29, 0, 30, 0, 123456),  # noqa: DTZ001 - as PySpark gives it, in UTC
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        '{"a": [1, null]}',
        "{1,NULL,3}",
        "it's fine",
        decimal.Decimal("12.30"),
        "ab   ",
        "P1DT2H",
        "23:59:59.5",
    )
    assert first[1] == (None,) * len(names)


def test_a_value_that_does_not_fit_is_a_problem_of_its_record_alone(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY, n numeric, d date, w text)")
    sql(
        "INSERT INTO t VALUES (1, 'NaN', now(), '7'), (2, 2, 'infinity', '7'), (3, 3, now(), 'x'), (4, 4, now(), '9')"
    )
    source = followed(columns=[("w", "int")])
    with end_of(source, spark, None) as end:
        rows = records(source, spark, None, end.position, "id", "w")
        told = [problem for _, problem in problems(source, spark, None, end.position)]
    assert [row for row in rows if row[0]] == [(4, 9)]
    assert told == [
        "column n: NaN is not of type decimal(38,18)",
        "column d: infinity is not of type date",
        "column w: x is not of type int",
    ]


def test_a_long_value_that_an_update_left_alone_is_never_taken_for_null(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY, n int, long text)")
    sql("ALTER TABLE t ALTER long SET STORAGE EXTERNAL")
    sql("INSERT INTO t VALUES (1, 1, repeat('x', 20000))")
    source = followed()
    _, at = through(source, spark)
    sql("UPDATE t SET n = 2")
    end = source.end(spark, at)
    ((_, told),) = problems(source, spark, at, end.position)
    assert "column long" in told
    assert "REPLICA IDENTITY FULL" in told
    source.release(spark, end.position)
    sql("ALTER TABLE t REPLICA IDENTITY FULL")
    sql("UPDATE t SET n = 3")
    rows, _ = through(source, spark, "_op", "n", "long", after=end.position)
    assert rows == [("u", 3, "x" * 20000)]


def test_a_table_without_a_key_is_refused_before_its_updates_would_be(spark, sql, followed):
    sql("CREATE TABLE t (v int)")
    told = refused("STREAM_CHANGED", followed().end, spark, None)
    assert "REPLICA IDENTITY FULL" in told
    sql("INSERT INTO t VALUES (1)")
    sql("UPDATE t SET v = 2")  # PostgreSQL still allows it
    only_new = followed(reader="a", publish=["insert"])
    rows, at = through(only_new, spark, "v", "_op")
    sql("UPDATE t SET v = 3")
    sql("INSERT INTO t VALUES (4)")
    assert through(only_new, spark, "v", "_op", after=at)[0] == [(4, "c")]
    sql("ALTER TABLE t REPLICA IDENTITY FULL")
    whole = followed(reader="b")
    rows, at = through(whole, spark, "v", "_op")
    assert rows == [(3, "r"), (4, "r")]
    sql("UPDATE t SET v = 5 WHERE v = 4")
    sql("DELETE FROM t WHERE v = 3")
    rows, _ = through(whole, spark, "v", "_op", after=at)
    assert rows == [(3, "d"), (4, "d"), (5, "c")]


def test_names_may_hold_any_character(spark, sql, followed):
    sql('CREATE SCHEMA "we""ird.s"')
    sql(
        'CREATE TABLE "we""ird.s"."T`able; --" ("Id" int PRIMARY KEY, "a.b" text, "c`d" int, "é""\'" text)'
    )
    source = followed("T`able; --", schema='we"ird.s', publication='pub"l; ,x')
    _, at = through(source, spark)
    sql("INSERT INTO \"we\"\"ird.s\".\"T`able; --\" VALUES (1, 'a', 2, 'it''s')")
    rows, _ = through(source, spark, "Id", "a.b", "c`d", "é\"'", after=at)
    assert rows == [(1, "a", 2, "it's")]
