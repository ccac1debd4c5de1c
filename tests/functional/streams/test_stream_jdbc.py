"""Any database as a source, by Spark's JDBC reader: SQLite here, PostgreSQL where processes start."""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
import time
import uuid

import psycopg
import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark import jars
from tests.support import postgres as server_of
from tests.support.streams import opened, records, through


@pytest.fixture
def file(tmp_path):
    return tmp_path / "shop.db"


@pytest.fixture
def sql(file):
    connection = (
        sqlite3.connect(file, autocommit=True)
        if hasattr(sqlite3, "autocommit")
        else sqlite3.connect(file, isolation_level=None)
    )
    yield connection.execute
    connection.close()


@pytest.fixture
def followed(file):
    def make(**options):
        return opened("jdbc", options.pop("columns", ()), url=f"jdbc:sqlite:{file}", **options)

    return make


def test_rows_come_once_as_their_column_grows(spark, sql, followed):
    sql('CREATE TABLE t (id bigint, "we`ird name" text)')
    sql("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    source = followed(table="t", column="id")
    rows, at = through(source, spark)
    assert rows == [(1, "a", "c"), (2, None, "c")]
    assert source.end(spark, at) is None
    sql("INSERT INTO t VALUES (3, 'it''s')")
    rows, at = through(source, spark, "we`ird name", after=at)
    assert rows == [("it's",)]
    sql("DELETE FROM t")
    assert source.end(spark, at) is None


def test_nothing_is_lost_or_doubled_wherever_the_barriers_fall(spark, sql, followed):
    chance = random.Random(2)
    sql("CREATE TABLE t (id bigint)")
    source = followed(
        query="SELECT id FROM t WHERE id >= 0", column="ID", max_records_per_barrier=10
    )
    last, expected, found, at = 0, [], [], None
    for _ in range(12):
        for _ in range(chance.randrange(15)):
            last += chance.randrange(1, 3)
            same = chance.randrange(1, 3)
            expected += [(last,)] * same
            sql(f"INSERT INTO t VALUES {', '.join([f'({last})'] * same)}")
        end = source.end(spark, at)
        if end is None or chance.random() < 0.3:
            continue
        rows = records(source, spark, at, end.position, "id")
        assert rows
        assert len(rows) <= 11  # rows of equal value stay together
        found, at = found + rows, end.position
    rest, _ = through(source, spark, "id", after=at)
    assert sorted(found + rest) == expected


def test_rows_without_a_value_are_told_and_not_passed_over(spark, sql, followed):
    sql("CREATE TABLE t (id bigint)")
    sql("INSERT INTO t VALUES (1), (NULL)")
    with pytest.raises(StreamSqlError, match="1 rows") as caught:
        followed(table="t", column="id").end(spark, None)
    assert caught.value.code == "STREAM_CHANGED"


def test_a_column_without_an_order_of_its_own_is_refused(spark, sql, followed):
    sql("CREATE TABLE t (name text, at timestamp, id bigint)")
    for column, more, told in (
        ("name", {}, "name string"),
        ("nothing", {}, "no such column"),
        ("id", {"lag": "1 minute"}, "`lag`"),
    ):
        source = followed(table="t", column=column, **more)
        with pytest.raises(StreamSqlError, match=told) as caught:
            source.end(spark, None)
        assert caught.value.code == "STREAM_CHANGED"


def test_a_snapshot_is_all_rows_and_is_taken_only_when_it_may_have_changed(spark, sql, followed):
    sql("CREATE TABLE t (id bigint, v text)")
    sql("INSERT INTO t VALUES (1, 'a')")
    blind = followed(table="t", mode="snapshot")
    end = blind.end(spark, None)
    assert blind.end(spark, end.position).position["n"] == 2
    assert records(blind, spark, None, end.position) == [(1, "a", "r")]
    source = followed(table="t", mode="snapshot", changed_by="SELECT count(*), max(id) FROM t")
    end = source.end(spark, None)
    assert source.end(spark, end.position) is None
    sql("INSERT INTO t VALUES (2, 'b')")
    later = source.end(spark, end.position)
    assert records(source, spark, end.position, later.position) == [(1, "a", "r"), (2, "b", "r")]


@pytest.fixture
def copied(engine, schema, file):
    """A streaming table that is a copy of the table `t`."""

    def make(query="SELECT id, upper(v) AS v FROM {s} WHERE id < 100", **config):
        table, stream = f"lake.{schema}.copy", f"lake.{schema}.stream"
        options = {"url": f"jdbc:sqlite:{file}", "table": "t", "mode": "snapshot"}
        report = engine.create_streaming_table(
            *(table, query.format(s=stream)),
            stream=stream,
            source={"connector": "jdbc", "options": {**options, **config.pop("options", {})}},
            **config,
        )
        return table, report

    return make


def test_a_table_with_a_key_becomes_what_each_snapshot_is(engine, schema, sql, copied):
    chance, view = random.Random(1), f"lake.{schema}.per_v"
    sql("CREATE TABLE t (id bigint, v text)")
    sql("INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'c'), (100, 'x')")
    table, _ = copied(key=["id"])
    engine.create_materialized_view(view, f"SELECT v, count(*) AS n FROM {table} GROUP BY v")
    for _ in range(5):
        before = set(engine.sql(f"SELECT * FROM {table}").collect())
        for _ in range(3):
            sql("DELETE FROM t WHERE id = ?", (chance.randrange(6),))
            sql("UPDATE t SET v = ? WHERE id = ?", (chance.choice("pqr"), chance.randrange(6)))
            sql("INSERT INTO t SELECT max(id) % 6 + 200, 'n' FROM t")
            sql("INSERT INTO t SELECT min(id) - 1, 'n' FROM t")
        report = engine.advance().tables[table]
        rows = set(engine.sql(f"SELECT * FROM {table}").collect())
        expected = sql("SELECT id, upper(v) FROM t WHERE id < 100").fetchall()
        assert {tuple(row) for row in rows} == set(expected)
        assert report.rows_inserted == len(rows - before), "equal rows are left alone"
        assert report.rows_deleted == len(before - rows)
        assert engine.verify(view) == []
    assert engine.advance().tables[table].mode == "noop"
    sql("DELETE FROM t")
    engine.advance()
    assert engine.sql(f"SELECT * FROM {table}").collect() == []
    sql("INSERT INTO t VALUES (7, 'a'), (7, 'b')")
    with pytest.raises(StreamSqlError, match="has the same key as another record") as caught:
        engine.advance()
    assert caught.value.code == "BAD_RECORD"


def test_a_snapshot_that_did_not_change_is_not_read(engine, sql, copied):
    sql("CREATE TABLE t (id bigint, v text)")
    sql("INSERT INTO t VALUES (1, 'a')")
    table, _ = copied(key=["id"], options={"changed_by": "SELECT max(id) FROM t"})
    sql("UPDATE t SET v = 'unseen'")
    engine.advance()
    assert [tuple(row) for row in engine.sql(f"SELECT * FROM {table}").collect()] == [(1, "A")]
    sql("INSERT INTO t VALUES (2, 'b')")
    engine.advance()
    rows = {tuple(row) for row in engine.sql(f"SELECT * FROM {table}").collect()}
    assert rows == {(1, "UNSEEN"), (2, "B")}


def test_what_a_snapshot_cannot_have_is_told_at_once(sql, copied):
    sql("CREATE TABLE t (id bigint, v text)")
    with pytest.raises(StreamSqlError) as caught:
        copied(sequence_by="id", on_error="quarantine")
    assert caught.value.code == "CONFIG_INVALID"
    for part in ("needs a `key`", "`sequence_by` does not apply", "`on_error: quarantine`"):
        assert part in caught.value.given
    copied(key=["id"])
    with pytest.raises(StreamSqlError, match="mode: 'incremental'"):
        copied(key=["id"], sequence_by="id", options={"mode": "incremental", "column": "id"})


def test_latest_reads_nothing_of_what_was_there(spark, sql, followed):
    sql("CREATE TABLE t (id bigint)")
    source = followed(table="t", column="id", start="latest")
    empty = source.end(spark, None).position
    sql("INSERT INTO t VALUES (1)")
    assert through(source, spark, "id", after=empty)[0] == [(1,)]
    rows, at = through(source, spark)
    assert rows == []
    sql("INSERT INTO t VALUES (2)")
    assert through(source, spark, "id", after=at)[0] == [(2,)]


def test_mistakes_are_told_at_once_and_no_error_has_the_password(spark, followed):
    with pytest.raises(StreamSqlError) as caught:
        opened(
            "jdbc",
            url="https://x",
            table="t",
            query="SELECT 1",
            lag="soon",
            pasword="s3cret-word",
            colour="red",
            changed_by="SELECT 1",
        )
    told = str(caught.value)
    for part in (
        "`url`",
        "`table` and `query`",
        "`lag` is 'soon'",
        "do you mean `password`?",
        "`colour` is not known",
        "`column`",
        "`changed_by`",
    ):
        assert part in told, part
    source = opened(
        "jdbc",
        url="jdbc:postgresql://127.0.0.1:1/d?password=s3cret-word&ssl=true",
        user="u",
        password="an0ther",
        table="t",
        column="id",
    )
    with pytest.raises(StreamSqlError) as caught:
        source.end(spark, None)
    assert caught.value.code == "STREAM_UNREACHABLE"
    for text in (str(caught.value), repr(source), source.name):
        assert "s3cret-word" not in text
        assert "an0ther" not in text


@pytest.fixture(scope="module")
def port():
    with server_of.server(server_of.PASSWORD) as found:
        yield found


@pytest.fixture
def postgres(spark, port):
    """Open a table of PostgreSQL by JDBC, and run SQL there."""
    spark.sql(f"ADD JAR '{jars.ensure(jars.connector_jars('postgres'))[0]}'")
    name = f"d_{uuid.uuid4().hex[:8]}"
    login = {"host": "127.0.0.1", "port": port, "user": "postgres", "password": server_of.PASSWORD}
    with psycopg.connect(**login, dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(**login, dbname=name, autocommit=True) as connection:

        def make(**options):
            return opened(
                "jdbc",
                url=f"jdbc:postgresql://127.0.0.1:{port}/{name}",
                driver="org.postgresql.Driver",
                user="postgres",
                password=server_of.PASSWORD,
                **options,
            )

        yield make, connection.execute


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["timestamp", "timestamptz", "date", "numeric(20,3)", "bigint"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_each_kind_of_column_is_followed_exactly_in_any_time_zone(spark, postgres, kind, zone):
    make, run = postgres
    run(f"CREATE TABLE t (id int, at {kind})")
    chance = random.Random(kind)

    def value():
        if kind == "date":
            return dt.date(2026, 1, 1) + dt.timedelta(chance.randrange(400))
        if kind.startswith("time"):
            micros = chance.choice([0, 1, 999999, 123456])
            found = dt.datetime(2026, 3, 1, tzinfo=dt.timezone.utc) + dt.timedelta(
                hours=chance.randrange(1000), microseconds=micros
            )
            return found if kind == "timestamptz" else found.replace(tzinfo=None)
        return chance.randrange(10**6)

    values = sorted(value() for _ in range(60))
    zones = spark.sparkContext._jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(zone))
    try:
        source = make(table="t", column="at", max_records_per_barrier=7)
        found, at = [], None
        for n, each in enumerate(values):
            run("INSERT INTO t VALUES (%s, %s)", (n, each))
            if n % 9 == 0 and (end := source.end(spark, at)) is not None:
                found += records(source, spark, at, end.position, "id")
                at = end.position
        # A value that came late is below the position: not one of these.
        rest, _ = through(source, spark, "id", after=at)
    finally:
        zones.setDefault(before)
    seen = sorted(found + rest)
    equal = {n for n in range(1, 60) if values[n] == values[n - 1]}
    assert len(set(seen)) == len(seen)
    assert {(n,) for n in range(60)} - set(seen) <= {(n,) for n in equal}


@pytest.mark.processes
def test_lag_waits_for_rows_that_are_committed_late(spark, postgres):
    make, run = postgres
    run("CREATE TABLE t (id int, at timestamptz DEFAULT clock_timestamp())")
    run("INSERT INTO t VALUES (1, now() - interval '1 hour'), (2, now())")
    source = make(table="t", column="at", lag="3 seconds")
    end = source.end(spark, None)
    assert records(source, spark, None, end.position, "id") == [(1,)]
    run("INSERT INTO t VALUES (3, now() - interval '1 second')")
    assert source.end(spark, end.position) is None
    time.sleep(3.5)
    rows, _ = through(source, spark, "id", after=end.position)
    assert rows == [(2,), (3,)]
