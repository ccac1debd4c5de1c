"""What a followed PostgreSQL server keeps, allows and loses, and what is told of it."""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import replace

import pytest

from dbt_streamsql.connectors.sources.source import end_of
from dbt_streamsql.errors import StreamSqlError
from tests.support.followed_postgres import options_of, refused
from tests.support.steps import dying
from tests.support.streams import opened, records, through

pytestmark = pytest.mark.processes


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
    assert "another reader uses it" in refused("STREAM_LOST", source.end, spark, at)
    sql("SELECT pg_drop_replication_slot(%s)", (source.slot,))
    assert "is gone" in refused("STREAM_LOST", source.end, spark, at)
    rows, at = through(source, spark, "id")  # a full refresh begins again
    assert rows == [(1,)]
    sql("DROP TABLE t")
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    assert "dropped and recreated" in refused("STREAM_LOST", source.end, spark, at)


def test_a_full_refresh_that_is_given_up_leaves_the_old_place_good(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    sql("INSERT INTO t VALUES (1)")
    source = followed()
    _, at = through(source, spark)
    sql("INSERT INTO t VALUES (2)")
    with end_of(source, spark, None) as again:
        assert records(source, spark, None, again.position, "id") == [(1,), (2,)]
    assert through(source, spark, "id", after=at)[0] == [(2,)]


def test_the_snapshot_of_a_process_that_ended_is_not_replaced_by_a_later_one(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = followed()
    with end_of(source, spark, None) as end:
        pass
    with end_of(source, spark, None):
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
    spark, sql, followed
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
    source = replace(source, far=1 << 20)
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


def test_a_user_needs_no_more_than_the_page_on_databases_says(
    spark, sql, followed, port, database
):
    for role in ("owner", "reader"):
        sql(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'a-word'")
    sql(f"GRANT CREATE ON DATABASE {database} TO owner")
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    sql("ALTER TABLE t OWNER TO owner")
    sql("GRANT SELECT ON t TO reader")
    owned = followed(user="owner", password="a-word", slot=f"owner_{database}")
    _, at = through(owned, spark)
    sql("INSERT INTO t VALUES (1)")
    assert through(owned, spark, "id", after=at)[0] == [(1,)]
    read = followed(
        user="reader",
        password="a-word",
        slot=f"reader_{database}",
        publication="of_others",
        create=False,
    )
    for verb in ("CREATE PUBLICATION", "SELECT pg_create_logical_replication_slot"):
        told = refused("STREAM_UNREACHABLE", read.end, spark, None)
        sql(next(line[line.index(verb) :] for line in told.splitlines() if verb in line))
    rows, at = through(read, spark, "id")
    assert rows == [(1,)]
    sql("INSERT INTO t VALUES (2)")
    assert through(read, spark, "id", after=at)[0] == [(2,)]
    for slot in (owned.slot, read.slot):
        sql("SELECT pg_drop_replication_slot(%s)", (slot,))


def test_a_slot_that_the_source_names_is_left_to_its_owner(spark, sql, followed):
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    ours, theirs = followed(), followed(slot=f"own_{uuid.uuid4().hex[:8]}", reader="other")
    for source in (ours, theirs):
        through(source, spark)
    assert "is removed" in ours.forget()
    assert f"pg_drop_replication_slot('{theirs.slot}')" in theirs.forget()
    there = {name for (name,) in sql("SELECT slot_name FROM pg_replication_slots").fetchall()}
    assert theirs.slot in there
    assert ours.slot not in there
    sql("SELECT pg_drop_replication_slot(%s)", (theirs.slot,))


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
    engine.create_streaming_table(
        table,
        f"SELECT id, v, _op, _seq FROM lake.{schema}.stream",
        stream=f"lake.{schema}.stream",
        source={"connector": "postgres", "options": options_of(port, database)},
        key=["id"],
        sequence_by="_seq",
        delete_when="_op = 'd'",
        truncate_when="_op = 't'",
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
