"""PostgreSQL as a source of changes, by logical decoding of a real server."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import threading
import time
import uuid

import postgres as server_of
import psycopg
import pytest
from stream_support import opened, problems, records, through
from tests_support import dying

from dbt_streamsql.errors import StreamSqlError

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def port():
    with server_of.server(
        server_of.PASSWORD, "wal_level=logical", "max_replication_slots=90"
    ) as found:
        yield found


@pytest.fixture
def database(port):
    """The name of a database of its own."""
    name = f"d_{uuid.uuid4().hex[:8]}"
    with connected(port, "postgres") as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return name


@pytest.fixture
def sql(port, database):
    with connected(port, database) as connection:
        yield connection.execute


def connected(port, database):
    return psycopg.connect(
        host="127.0.0.1",
        port=port,
        user="postgres",
        password=server_of.PASSWORD,
        dbname=database,
        autocommit=True,
    )


@pytest.fixture
def followed(port, database):
    """Open a table as a source."""
    opened_now = []

    def make(table="t", **more):
        found = opened(
            "postgres",
            columns=more.pop("columns", ()),
            reader=more.pop("reader", "reader"),
            host="127.0.0.1",
            port=port,
            database=database,
            user="postgres",
            password=server_of.PASSWORD,
            table=table,
            **more,
        )
        opened_now.append(found)
        return found

    yield make
    for each in opened_now:
        each.forget(None)


def refused(code, call, *arguments):
    with pytest.raises(StreamSqlError) as caught:
        call(*arguments)
    assert caught.value.code == code
    assert server_of.PASSWORD not in str(caught.value)
    return str(caught.value)


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


def test_a_transaction_that_runs_while_the_table_is_first_read_comes_once(
    spark, sql, followed, port, database
):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    sql("INSERT INTO t VALUES (1)")
    source = followed()
    source.end(spark, None)  # the slot is there, and the first barrier is given up
    sql("INSERT INTO t VALUES (2)")
    source.end(spark, None)
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
        end = source.end(spark, None)
        assert records(source, spark, None, end.position, "id") == [(1,), (2,), (3,)]
        sql("INSERT INTO t VALUES (4)")
        assert records(source, spark, None, end.position, "id") == [(1,), (2,), (3,)]
        source.release(spark, end.position)
        rows, _ = through(source, spark, "id", "_op", after=end.position)
        assert rows == [(4, "c")]


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
    end = source.end(spark, None)
    assert [row for row in records(source, spark, None, end.position, "id", "w") if row[0]] == [
        (4, 9)
    ]
    told = [problem for _, problem in problems(source, spark, None, end.position)]
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


def test_two_readers_of_one_table_do_not_take_from_each_other(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    one, two = followed(reader="lake.s.one"), followed(reader="lake.s.two")
    _, at_one = through(one, spark)
    _, at_two = through(two, spark)
    sql("INSERT INTO t VALUES (1)")
    assert through(one, spark, "id", after=at_one)[0] == [(1,)]
    assert through(two, spark, "id", after=at_two)[0] == [(1,)]


def test_changes_that_are_gone_are_told_and_never_passed_over(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = followed()
    _, at = through(source, spark)
    sql("INSERT INTO t VALUES (1)")
    sql(
        "SELECT pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)",
        (source.slot, source.slot),
    )
    assert "others read from it" in refused("STREAM_LOST", source.end, spark, at)
    sql("SELECT pg_drop_replication_slot(%s)", (source.slot,))
    assert "is gone" in refused("STREAM_LOST", source.end, spark, at)
    rows, at = through(source, spark, "id")  # a full refresh begins again
    assert rows == [(1,)]
    sql("DROP TABLE t")
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    assert "made anew" in refused("STREAM_LOST", source.end, spark, at)


def test_a_full_refresh_that_is_given_up_leaves_the_old_place_good(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    sql("INSERT INTO t VALUES (1)")
    source = followed()
    _, at = through(source, spark)
    sql("INSERT INTO t VALUES (2)")
    again = source.end(spark, None)
    assert records(source, spark, None, again.position, "id") == [(1,), (2,)]
    assert through(source, spark, "id", after=at)[0] == [(2,)]


def test_the_snapshot_of_a_process_that_ended_is_not_replaced_by_a_later_one(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = followed()
    end = source.end(spark, None)
    source.end(spark, None)
    assert "run again" in refused("STREAM_LOST", source.read, spark, None, end.position)


def test_columns_come_and_go_and_one_that_is_renamed_is_told(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY, a int, b int)")
    source = followed()
    _, at = through(source, spark)
    sql("INSERT INTO t VALUES (1, 1, 1)")
    sql("ALTER TABLE t ADD c text")
    sql("INSERT INTO t VALUES (2, 2, 2, 'c')")
    rows, at = through(source, spark, "id", "a", "c", after=at)
    assert rows == [(1, 1, None), (2, 2, "c")]
    sql("ALTER TABLE t DROP b")
    sql("INSERT INTO t VALUES (3, 3, 'c')")
    sql("ALTER TABLE t RENAME a TO z")
    end = source.end(spark, at)
    told = refused("STREAM_CHANGED", source.read, spark, at, end.position)
    assert "a when rows changed, z now" in told


def test_a_bound_holds_and_the_log_of_other_tables_does_not_keep_a_position_back(
    spark, sql, followed, monkeypatch
):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    sql("CREATE TABLE other (v text)")
    source = followed(max_records_per_barrier=10, start="latest")
    rows, at = through(source, spark, "id")
    assert rows == []
    for n in range(40):
        sql("INSERT INTO t VALUES (%s)", (n,))
    end = source.end(spark, at)
    assert 0 < end.records <= 10
    assert time.time() - 60 < end.oldest < time.time()
    rows, at = through(source, spark, "id", after=at)
    assert len(rows) == 40
    monkeypatch.setattr("dbt_streamsql.storage.streams.postgres.FAR", 1 << 20)
    assert source.end(spark, at) is None
    sql("INSERT INTO other SELECT repeat(md5(n::text), 30) FROM generate_series(1, 3000) n")
    end = source.end(spark, at)
    assert end.records == 0
    assert records(source, spark, at, end.position) == []
    sql("INSERT INTO t VALUES (100)")
    assert through(source, spark, "id", after=end.position)[0] == [(100,)]


def test_a_partitioned_table_is_followed_as_one(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    sql("CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)")
    source = followed()
    _, at = through(source, spark)
    sql("CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (20)")
    sql("INSERT INTO t VALUES (1), (11)")
    assert through(source, spark, "id", "_op", after=at)[0] == [(1, "c"), (11, "c")]


def test_what_is_wrong_with_the_server_or_the_user_is_told_without_the_password(
    spark, sql, followed, port, database
):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    sql("CREATE ROLE nobody2 LOGIN PASSWORD 'a-secret-of-it'") if not sql(
        "SELECT FROM pg_roles WHERE rolname = 'nobody2'"
    ).fetchone() else None
    poor = opened(
        "postgres",
        host="127.0.0.1",
        port=port,
        database=database,
        user="nobody2",
        password="a-secret-of-it",
        table="t",
    )
    with pytest.raises(StreamSqlError, match="STREAM_UNREACHABLE") as caught:
        poor.end(spark, None)
    assert "a-secret-of-it" not in str(caught.value)
    assert refused("TABLE_MISSING", followed("nothing").end, spark, None)
    by_hand = followed(create=False)
    told = refused("STREAM_UNREACHABLE", by_hand.end, spark, None)
    assert "CREATE PUBLICATION" in told
    wrong = opened(
        "postgres",
        host="127.0.0.1",
        port=port,
        database=database,
        user="postgres",
        password="not-this-one",
        table="t",
    )
    with pytest.raises(StreamSqlError, match="STREAM_UNREACHABLE") as caught:
        wrong.columns(spark)
    assert "not-this-one" not in str(caught.value)
    assert "not-this-one" not in repr(wrong)


def test_all_mistakes_of_a_declaration_are_told_at_once():
    with pytest.raises(StreamSqlError) as caught:
        opened(
            "postgres",
            host="h",
            database="d",
            user="u",
            table="t",
            slot="Not Allowed",
            publish=["x"],
            hots="h",
        )
    told = str(caught.value)
    assert caught.value.code == "CONFIG_INVALID"
    assert all(word in told for word in ("`slot`", "`publish`", "`hots`", "`host`"))


@pytest.mark.parametrize(
    "step", ["stream.record", "branch.write", "barrier.precommit", "stream.release"]
)
def test_a_streaming_table_is_the_table_of_the_database_whoever_dies(
    engine, schema, sql, port, database, step
):
    chance = random.Random(step)
    table, view = f"lake.{schema}.t", f"lake.{schema}.per_v"
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    sql("INSERT INTO t SELECT n, n % 3 FROM generate_series(1, 30) n")
    options = {
        "host": "127.0.0.1",
        "port": port,
        "database": database,
        "user": "postgres",
        "password": server_of.PASSWORD,
        "table": "t",
    }
    engine.create_streaming_table(
        table,
        f"SELECT id, v, _op, _seq FROM lake.{schema}.stream WHERE _op <> 't'",
        stream=f"lake.{schema}.stream",
        source={"connector": "postgres", "options": options},
        key=["id"],
        sequence_by="_seq",
        delete_when="_op = 'd'",
        leave_out=["_op", "_seq"],
    )
    engine.create_materialized_view(view, f"SELECT v, count(*) AS n FROM {table} GROUP BY v")
    for round_ in range(4):
        for _ in range(8):
            key = chance.randrange(40)
            sql("DELETE FROM t WHERE id = %s", (key,))
            sql("INSERT INTO t VALUES (%s, %s)", (key, key % 4))
            sql("UPDATE t SET id = %s WHERE id = %s", (100 + chance.randrange(10**6), key + 1))
        if round_ % 2:
            with dying(step):
                engine.advance()
            engine.abort()
        engine.advance()
        rows = {(row.id, row.v) for row in engine.sql(f"SELECT id, v FROM {table}").collect()}
        assert rows == set(sql("SELECT id, v FROM t").fetchall())
        counts = {(row.v, row.n) for row in engine.sql(f"SELECT * FROM {view}").collect()}
        assert counts == set(sql("SELECT v, count(*) FROM t GROUP BY v").fetchall())
    assert engine.advance().tables[table].mode == "noop"
    sql(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
        (database,),
    )
